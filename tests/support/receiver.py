"""A receiver of webhooks, in the event loop of the test."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
OK: Answer = (204, {}, b"")


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        """Of a structured one."""
        return dict(json.loads(self.body))


@dataclass
class Receiver:
    """Responds as `answer` says, and records the requests."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    answer: Callable[[Request], Awaitable[Answer]] | None = None
    scheme: str = "http"
    most_at_once: int = 0
    _now: int = 0
    _connections: set["asyncio.Task[None]"] = field(default_factory=set)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [request.event["id"] for request in self.requests]

    async def wait_for(self, count: int, seconds: float = 30) -> list[Request]:
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        try:
            while True:
                request = await _read(reader)
                async with self._arrived:
                    self.requests.append(request)
                    self._arrived.notify_all()
                await self._respond(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def hang_up(self) -> None:
        """On everybody who is connected."""
        ending = list(self._connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.sleep(0)  # transports are closed in the next turn of the loop

    async def _respond(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            status, headers, body = await self.answer(request) if self.answer else OK
        finally:
            self._now -= 1
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        lines.append(f"content-length: {len(body)}")
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().rstrip().split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split()[1], headers, body)


@contextlib.asynccontextmanager
async def receiving(
    answer: Callable[[Request], Awaitable[Answer]] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer=answer, scheme="https" if tls else "http")
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.hang_up()
