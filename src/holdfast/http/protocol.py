"""A connection: its TLS, how long it may take to say what it wants, and HTTP/1.1 on it."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.http.connection_limit import ConnectionLimiter, TrackedConnection, source_of
from holdfast.http.problem import Problem
from holdfast.http.security import is_probe

HANDSHAKE_SECONDS = 10.0
HEAD_SECONDS = 10.0
BODY_SECONDS = 20.0
BODY_BYTES_PER_SECOND = 16 * 1024  # more time for more, but not for a byte now and then
UNREAD_SECONDS = 5.0
CLOSE_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 75

Phase = Literal["idle", "head", "body", "answer", "unread", "closing"]


class ConnectionAcceptor(asyncio.Protocol):
    """Counts a connection as soon as it is accepted, before its TLS, and hands it to HTTP."""

    def __init__(
        self, limiter: ConnectionLimiter, tls: ssl.SSLContext | None, make: Callable[[], "DeadlineProtocol"]
    ) -> None:
        self._crowd = limiter
        self._tls = tls
        self._make = make
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # of a socket
        peer = transport.get_extra_info("peername")
        place = self._crowd.admit(source_of(str(peer[0]) if peer else ""), transport.abort)
        if place is None:
            transport.abort()
            return
        connection = self._make()
        if self._tls is None:
            transport.set_protocol(connection)
            connection.begin(transport, self._crowd, place)
        else:
            transport.pause_reading()  # until TLS is there to read it
            shaking = self._shake_hands(transport, connection, self._tls, place)
            self._handshake = asyncio.get_running_loop().create_task(shaking)

    def data_received(self, data: bytes) -> None:
        """Uvloop reads after connection_made, even if it was asked not to."""
        self._early += data

    async def _shake_hands(
        self,
        transport: asyncio.Transport,
        connection: "DeadlineProtocol",
        tls: ssl.SSLContext,
        place: TrackedConnection,
    ) -> None:
        loop = asyncio.get_running_loop()
        encrypted: asyncio.Transport | None = None
        starting = loop.create_task(
            loop.start_tls(
                transport, connection, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        )
        try:
            await asyncio.sleep(0)  # by now it reads in our place, and is about to begin
            loop.call_soon(_pass_on, self._early, transport)
            with suppress(OSError):  # whoever does not manage it has gone, or is sent away
                encrypted = await starting
        finally:
            starting.cancel()
            if encrypted is None or encrypted.is_closing():
                self._crowd.leave(place)
                transport.abort()
        if encrypted is not None and not encrypted.is_closing():
            connection.begin(encrypted, self._crowd, place)


def _pass_on(data: bytes, transport: asyncio.Transport) -> None:
    """To the protocol that now reads from this transport."""
    reader: Any = transport.get_protocol()  # a BufferedProtocol, which uvloop's is without saying so
    while data and hasattr(reader, "buffer_updated") and not transport.is_closing():
        buffer = memoryview(reader.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        reader.buffer_updated(size)
        data = data[size:]


class DeadlineProtocol(H11Protocol):
    """Uvicorn's, with a deadline for each thing that a client has to send."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._crowd: ConnectionLimiter | None = None
        self._place: TrackedConnection | None = None
        self._early = b""
        self._phase: tuple[Phase, object] = ("idle", None)
        self._deadline: asyncio.TimerHandle | None = None
        self._body_began = 0.0
        self._body_bytes = 0

    def begin(
        self, transport: asyncio.Transport, limiter: ConnectionLimiter, place: TrackedConnection
    ) -> None:
        self._crowd, self._place = limiter, place
        place.drop = transport.abort
        if place.probes_only:
            self.app = probes_only(self.app)
        self.connection_made(transport)
        self._enter("head")
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._place is None:  # TLS has given it to us before it told us that it is there
            self._early += data
            return
        self._body_bytes += len(data)
        super().data_received(data)
        self._notice()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._notice()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._notice()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._crowd is not None and self._place is not None:
            self._crowd.leave(self._place)
        if self.transport is not None:  # else it went during the handshake
            super().connection_lost(exc)

    def _notice(self) -> None:
        """Which phase it is in after what has just happened."""
        cycle: RequestResponseCycle | None = self.cycle
        if self.transport.is_closing():
            self._enter("closing", cycle)
        elif cycle is not None and not cycle.response_complete:
            self._enter("body" if cycle.more_body else "answer", cycle)
        elif self.conn.their_state is h11.SEND_BODY:
            self._enter("unread", cycle)
        elif self.conn.trailing_data[0]:
            self._enter("head", cycle)
        else:
            self._enter("idle", cycle)

    def _enter(self, phase: Phase, request: object = None) -> None:
        if self._phase == (phase, request):
            return
        self._phase = (phase, request)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._crowd is not None and self._place is not None:
            is_asking = phase in ("body", "answer")
            (self._crowd.asking if is_asking else self._crowd.silent)(self._place)
        if phase == "body":
            self._body_began, self._body_bytes = self.loop.time(), 0
            self._deadline = self.loop.call_later(BODY_SECONDS, self._check_body)
        elif phase == "head":
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up_on_head)
        elif phase == "unread":
            self._deadline = self.loop.call_later(UNREAD_SECONDS, self._close)
        elif phase == "closing":
            self._deadline = self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def _check_body(self) -> None:
        allowed = BODY_SECONDS + self._body_bytes / BODY_BYTES_PER_SECOND
        left = self._body_began + allowed - self.loop.time()
        # While the server itself does not read, the client cannot send.
        if left > 0 or self.flow.read_paused:
            self._deadline = self.loop.call_later(max(left, 1.0), self._check_body)
        else:
            self._close()

    def _close(self) -> None:
        """What was answered is still sent, but not to a client that takes it drop by drop."""
        self.transport.close()
        self._notice()

    def _give_up_on_head(self) -> None:
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            for event in (h11.Response(status_code=408, headers=headers), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self._close()


def probes_only(app: ASGIApp) -> ASGIApp:
    """For those who come when there is no room: whoever watches over the process still gets an answer."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if is_probe(scope):
            await app(scope, receive, send)
            return
        headers = {"Retry-After": "5", "DeadlineProtocol": "close"}
        full = Problem(503, "too many connections are open", code="too_many_connections", headers=headers)
        await full.response()(scope, receive, send)

    return answer
