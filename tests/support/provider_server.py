"""A real HTTP server in the place of a provider: it keeps what it delivers, and fails as it is told to."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request, before or after it is carried out: an answer, or a cut connection."""

    status: int | None = None
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    accepted: bool = False
    wait: threading.Event | None = None
    """With it, the server says nothing until the event is set."""

    @classmethod
    def cut(cls, *, accepted: bool) -> Self:
        return cls(accepted=accepted)


Plan = Callable[[Request], Fault | None]


class ProviderServer:
    """Its subclasses know what an API looks like. Faults are taken from `faults`, then asked of `plan`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.faults: deque[Fault | None] = deque()
        self.plan: Plan = lambda _: None
        self.url = ""
        self._turn = threading.Lock()

    def carry_out(self, request: Request) -> Answer:
        """What the API does when nothing goes wrong. One request at a time."""
        raise NotImplementedError

    def forget_keys(self) -> None:
        """As an API with idempotency keys does after a while."""

    def explain(self, fault: Fault) -> bytes:
        """The body of an answer that says what went wrong."""
        raise NotImplementedError

    def meet(self, request: Request) -> Answer | None:
        """None is a cut connection."""
        with self._turn:
            self.requests.append(request)
            fault = self.faults.popleft() if self.faults else self.plan(request)
            answer = self.carry_out(request) if fault is None or fault.accepted else None
        if fault is None:
            return answer
        if fault.wait is not None:
            fault.wait.wait(60)
        if fault.status is None:
            return None
        return Answer(fault.status, self.explain(fault), fault.headers)

    @contextmanager
    def running(self) -> Iterator[Self]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(owner: ProviderServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = owner.meet(Request(self.command, self.path, headers, body))
            self.close_connection = answer is None
            if answer is None:
                return
            self.send_response(answer.status)
            for name, value in {"content-type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *words: Any) -> None:
            """Says nothing."""

    return Handler
