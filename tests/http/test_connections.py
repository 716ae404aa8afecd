"""Connections: clients that send nothing, or send slowly, do not keep others out."""

import contextlib
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.server import connection_limit, listener
from holdfast.server.certificate import own_certificate
from holdfast.server.connection_limit import (
    BACKLOG,
    FOR_PROBES,
    RESERVED_FILES,
    ConnectionLimiter,
    TrackedConnection,
    source_of,
)
from support.database import Database, cloned_database
from support.web import SECRET, Web, serving, web_dsn

ALLOWED_FILES = 1024
HALF_SENT = 1100
HEAD = b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
FORM = (
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: LENGTH\r\n\r\n"
)
PATIENCE_SECONDS = 60.0


@pytest.fixture
def narrow(server: EmbeddedServer, template: str, tmp_path: Path) -> Iterator[Callable[..., "Narrow"]]:
    """Servers in their own processes, each limited to 1,024 open files."""
    with cloned_database(server, template) as database, contextlib.ExitStack() as started:

        def start(*options: str) -> Narrow:
            program = Path(sys.executable).with_name("holdfast")
            environment = os.environ | {"DATABASE_URL": web_dsn(database), "HOLDFAST_WEB_SECRET": SECRET}
            process = started.enter_context(
                subprocess.Popen(
                    [
                        "bash",
                        "-c",
                        f'ulimit -n {ALLOWED_FILES}; exec "$0" "$@"',
                        program,
                        "serve",
                        "--port",
                        "0",
                        *options,
                    ],
                    env=environment,
                    cwd=tmp_path,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            started.callback(process.terminate)
            assert process.stderr
            found = re.search(r":(\d+)$", process.stderr.readline())
            assert found
            return Narrow(int(found[1]), process.pid)

        yield start


class Narrow:
    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        address = ("127.0.0.1", self.port)
        return socket.create_connection(address, timeout=PATIENCE_SECONDS, source_address=(source, 0))

    def files(self) -> int:
        return len(list(Path(f"/proc/{self._pid}/fd").iterdir()))


def answer_to(raw: socket.socket, path: str) -> bytes:
    raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return b"".join(iter(lambda: raw.recv(65536), b""))


@contextlib.contextmanager
def many(server: Narrow, first_bytes: bytes) -> Iterator[None]:
    """More connections than the server has files, from 200 addresses; it may drop some."""
    held = []
    try:
        for number in range(HALF_SENT):
            raw = server.connect(f"127.0.1.{number % 200 + 1}")
            held.append(raw)
            with contextlib.suppress(OSError):
                raw.sendall(first_bytes)
            if number % 50 == 0:
                assert server.files() < ALLOWED_FILES - RESERVED_FILES + BACKLOG
        yield
    finally:
        for raw in held:
            raw.close()


@pytest.mark.full
@pytest.mark.timeout(200)
def test_probes_are_answered_while_more_requests_are_half_sent_than_there_are_files(
    narrow: Callable[..., Narrow],
) -> None:
    server = narrow()
    with many(server, HEAD):
        for path in ("/healthz", "/readyz", "/openapi.json"):
            with server.connect() as raw:
                assert answer_to(raw, path).startswith(b"HTTP/1.1 200 "), path


@pytest.mark.full
@pytest.mark.timeout(200)
def test_probes_are_answered_while_as_many_do_not_begin_their_tls_handshake(
    narrow: Callable[..., Narrow], tmp_path: Path
) -> None:
    own = own_certificate(tmp_path / "tls")
    server = narrow("--tls-cert", str(own.with_key), "--tls-key", str(own.with_key))
    trust = ssl.create_default_context(cafile=own.certificate)
    with (
        many(server, b"\x16\x03\x01"),
        trust.wrap_socket(server.connect(), server_hostname="localhost") as raw,
    ):
        assert answer_to(raw, "/healthz").startswith(b"HTTP/1.1 200 ")


@pytest.fixture
def hasty(module_db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A server with short timeouts."""
    monkeypatch.setattr(connection_limit, "FIRST_REQUEST_SECONDS", 0.2)
    for name in ("BODY_SECONDS", "NEXT_REQUEST_SECONDS", "UNREAD_SECONDS"):
        monkeypatch.setattr(listener, name, 0.2)
    monkeypatch.setattr(listener, "BODY_BYTES_PER_SECOND", 1_000_000)
    with serving(module_db) as web:
        yield web


@contextlib.contextmanager
def raw_connection(web: Web) -> Iterator[socket.socket]:
    port = urlsplit(web.url).port or 0
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as raw:
        yield raw


def drip(raw: socket.socket) -> bytes:
    """Sends byte by byte until the server closes the connection; returns the response."""
    over = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                raw.sendall(b"x")

    sending = threading.Thread(target=send)
    sending.start()
    answered = b""
    try:
        with contextlib.suppress(ConnectionError):
            while piece := raw.recv(65536):
                answered += piece
    finally:
        over.set()
        sending.join()
    return answered


def test_a_head_that_comes_byte_by_byte_times_out(hasty: Web) -> None:
    with raw_connection(hasty) as raw:
        raw.sendall(HEAD)
        assert drip(raw) == b""


def test_the_head_of_a_second_request_times_out_too(hasty: Web) -> None:
    with raw_connection(hasty) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD)
        answered = drip(raw)
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert answered.count(b"HTTP/1.1") == 1


def test_a_body_that_comes_byte_by_byte_times_out(hasty: Web) -> None:
    head = FORM.replace(b"LENGTH", b"60000")
    with raw_connection(hasty) as raw:
        raw.sendall(head)
        assert drip(raw) == b""


def test_a_body_that_the_server_does_not_read_times_out(hasty: Web) -> None:
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
    with raw_connection(hasty) as raw:
        raw.sendall(head)
        assert drip(raw).startswith(b"HTTP/1.1 401 ")


def test_a_connection_without_a_request_times_out(hasty: Web) -> None:
    with raw_connection(hasty) as raw:
        assert raw.recv(1) == b""


def test_a_large_body_that_comes_steadily_is_accepted(hasty: Web) -> None:
    """The time allowed grows with the bytes received."""
    text = b'{"type": "steady.one", "payload": "' + b"x" * 200_000 + b'"}'
    bearer = hasty.token("enqueue").encode()
    with raw_connection(hasty) as raw:
        raw.sendall(
            b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer "
            + bearer
            + b"\r\nContent-Length: "
            + str(len(text)).encode()
            + b"\r\n\r\n"
        )
        for place in range(0, len(text), 20_000):
            raw.sendall(text[place : place + 20_000])
        assert raw.recv(65536).startswith(b"HTTP/1.1 201 ")


class Ended(list[str]):
    def of(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)


def enter(
    limiter: ConnectionLimiter, source: str, ended: Ended, name: str, *, asks: bool = False
) -> TrackedConnection | None:
    place = limiter.admit(source, ended.of(name))
    if place is not None and asks:
        limiter.mark_busy(place)
    return place


def test_the_longest_idle_connection_is_dropped_for_another_of_its_address() -> None:
    ended, limiter = Ended(), ConnectionLimiter(10, 2)
    for name in ("first", "second", "third"):
        enter(limiter, "a", ended, name)
    assert ended == ["first"]
    enter(limiter, "b", ended, "other")
    assert ended == ["first"]


def test_at_the_limit_an_idle_connection_of_the_busiest_address_is_dropped() -> None:
    ended, limiter = Ended(), ConnectionLimiter(4, 4)
    for source, name in [("a", "a1"), ("b", "b1"), ("b", "b2"), ("b", "b3")]:
        enter(limiter, source, ended, name)
    enter(limiter, "c", ended, "c1")
    assert (ended, len(limiter)) == (["b1"], 4)


def test_without_idle_connections_only_probes_are_admitted_up_to_a_limit() -> None:
    ended, limiter = Ended(), ConnectionLimiter(2, 2)
    places = [enter(limiter, "a", ended, str(number), asks=True) for number in range(2 + FOR_PROBES)]
    assert [place.probes_only for place in places if place] == [False] * 2 + [True] * FOR_PROBES
    assert limiter.admit("b", ended.of("b")) is None
    assert ended == []
    for place in places:
        assert place
        limiter.remove(place)
        limiter.remove(place)
    assert len(limiter) == 0
    found = limiter.admit("b", ended.of("b"))
    assert found
    assert found.probes_only is False


def test_a_proxy_may_use_all_connections() -> None:
    ended, limiter = Ended(), ConnectionLimiter(10, 2, lambda source: source == "proxy")
    for number in range(10):
        enter(limiter, "proxy", ended, str(number), asks=True)
    assert (len(limiter), ended) == (10, [])


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_network_of_one_customer_counts_as_one_address(address: str, source: str) -> None:
    assert source_of(address) == source


def test_dropped_connections_count_until_their_files_are_closed() -> None:
    limiter = ConnectionLimiter(1, 1)
    with (
        listener.Listener(socket.create_server(("127.0.0.1", 0)), limiter) as accepting,
        contextlib.ExitStack() as opened,
    ):
        opened.enter_context(socket.create_connection(accepting.getsockname()))
        first, _ = accepting.accept()
        for _ in range(FOR_PROBES + BACKLOG):
            opened.enter_context(socket.create_connection(accepting.getsockname()))
            opened.callback(accepting.accept()[0].close)
        assert len(limiter) == 1
        opened.enter_context(socket.create_connection(accepting.getsockname()))
        with pytest.raises(BlockingIOError):
            accepting.accept()
        first.close()
        opened.callback(accepting.accept()[0].close)


def test_a_server_that_is_full_says_so_and_still_answers_probes(module_db: Database) -> None:
    with serving(module_db, web_max_connections=4) as web, contextlib.ExitStack() as open_now:
        for _ in range(2):  # half of all connections, each with a request whose body is incomplete
            raw = open_now.enter_context(raw_connection(web))
            raw.sendall(FORM.replace(b"LENGTH", b"1"))
        until(lambda: len(web.server.server_state.tasks) == 2)
        with raw_connection(web) as raw:
            assert answer_to(raw, "/healthz").startswith(b"HTTP/1.1 200 ")
        with raw_connection(web) as raw:
            answer = answer_to(raw, "/v1/queues")
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"too_many_connections" in answer


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.mark.parametrize(
    "suite", ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES128-SHA"]
)
def test_tls_agrees_on_no_suite_without_authenticated_encryption(
    module_db: Database, tmp_path: Path, suite: str
) -> None:
    own = own_certificate(tmp_path / "tls")
    old = ssl.create_default_context(cafile=own.certificate)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(module_db, certificate=(own.with_key, own.with_key)) as web:
        with raw_connection(web) as raw, old.wrap_socket(raw, server_hostname="localhost") as agreed:
            chosen = agreed.cipher()
            assert chosen
            assert "GCM" in chosen[0] or "CHACHA20" in chosen[0]
        old.set_ciphers(suite)
        with raw_connection(web) as raw, pytest.raises((ssl.SSLError, OSError)):
            old.wrap_socket(raw, server_hostname="localhost")
