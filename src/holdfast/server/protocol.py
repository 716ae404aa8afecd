"""HTTP/1.1 connections: counted when they are accepted, TLS, and a deadline for everything a client sends."""

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

from holdfast.server.connection_limit import ConnectionLimiter, TrackedConnection, source_of
from holdfast.server.problem import Problem
from holdfast.server.security import is_probe

HANDSHAKE_SECONDS = 10.0
HEAD_SECONDS = 10.0
BODY_SECONDS = 20.0
BODY_BYTES_PER_SECOND = 16 * 1024  # large bodies get more time; a byte now and then does not earn any
UNREAD_SECONDS = 5.0
CLOSE_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 75

Phase = Literal["idle", "head", "body", "response", "unread", "closing"]


class ConnectionAcceptor(asyncio.Protocol):
    """Counts a connection as soon as it is accepted, before TLS, and hands it to a DeadlineProtocol."""

    def __init__(
        self,
        limiter: ConnectionLimiter,
        tls: ssl.SSLContext | None,
        make: Callable[[TrackedConnection], "DeadlineProtocol"],
    ) -> None:
        self._limiter = limiter
        self._tls = tls
        self._make = make
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # of a socket
        peer = transport.get_extra_info("peername")
        tracked = self._limiter.admit(source_of(str(peer[0]) if peer else ""), transport.abort)
        if tracked is None:
            transport.abort()
            return
        protocol = self._make(tracked)
        if self._tls is None:
            transport.set_protocol(protocol)
            protocol.begin(transport)
        else:
            transport.pause_reading()  # until TLS reads
            handshake = self._start_tls(transport, protocol, self._tls, tracked)
            self._handshake = asyncio.get_running_loop().create_task(handshake)

    def data_received(self, data: bytes) -> None:
        """Uvloop reads once after connection_made, even if reading was paused there."""
        self._early += data

    async def _start_tls(
        self,
        transport: asyncio.Transport,
        protocol: "DeadlineProtocol",
        tls: ssl.SSLContext,
        tracked: TrackedConnection,
    ) -> None:
        loop = asyncio.get_running_loop()
        encrypted: asyncio.Transport | None = None
        starting = loop.create_task(
            loop.start_tls(
                transport, protocol, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        )
        try:
            await asyncio.sleep(0)  # start_tls has installed its protocol now
            loop.call_soon(_feed, self._early, transport)
            with suppress(OSError):  # the handshake failed or timed out
                encrypted = await starting
        finally:
            starting.cancel()
            if encrypted is None or encrypted.is_closing():
                self._limiter.remove(tracked)
                transport.abort()
        if encrypted is not None and not encrypted.is_closing():
            protocol.begin(encrypted)


def _feed(data: bytes, transport: asyncio.Transport) -> None:
    """Pass data to the protocol that now reads from this transport."""
    reader: Any = transport.get_protocol()  # a BufferedProtocol, although uvloop's does not say so
    while data and hasattr(reader, "buffer_updated") and not transport.is_closing():
        buffer = memoryview(reader.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        reader.buffer_updated(size)
        data = data[size:]


class DeadlineProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1, with a deadline for each part of a request."""

    def __init__(
        self,
        limiter: ConnectionLimiter,
        tracked: TrackedConnection,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: Any = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limiter = limiter
        self._tracked = tracked
        self._early = b""
        self._phase: tuple[Phase, object] = ("idle", None)
        self._deadline: asyncio.TimerHandle | None = None
        self._body_began = 0.0
        self._body_bytes = 0
        if tracked.probes_only:
            self.app = probes_only(self.app)

    def begin(self, transport: asyncio.Transport) -> None:
        self._tracked.drop = transport.abort
        self.connection_made(transport)
        self._enter("head")
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self.transport is None:  # TLS delivers data before start_tls returns
            self._early += data
            return
        self._body_bytes += len(data)
        super().data_received(data)
        self._update_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_phase()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._update_phase()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._limiter.remove(self._tracked)
        if self.transport is not None:  # else it was lost during the handshake
            super().connection_lost(exc)

    def _update_phase(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if self.transport.is_closing():
            self._enter("closing", cycle)
        elif cycle is not None and not cycle.response_complete:
            self._enter("body" if cycle.more_body else "response", cycle)
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
        if phase in ("body", "response"):
            self._limiter.mark_busy(self._tracked)
        else:
            self._limiter.mark_idle(self._tracked)
        if phase == "body":
            self._body_began, self._body_bytes = self.loop.time(), 0
            self._deadline = self.loop.call_later(BODY_SECONDS, self._check_body)
        elif phase == "head":
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._reject_slow_head)
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
        """Sends what is buffered, for at most CLOSE_SECONDS."""
        self.transport.close()
        self._update_phase()

    def _reject_slow_head(self) -> None:
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            for event in (h11.Response(status_code=408, headers=headers), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self._close()


def probes_only(app: ASGIApp) -> ASGIApp:
    """Serves /healthz and /readyz, and refuses everything else: for connections above the limit."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        if is_probe(scope):
            await app(scope, receive, send)
            return
        headers = {"Retry-After": "5", "Connection": "close"}
        full = Problem(503, "too many connections are open", code="too_many_connections", headers=headers)
        await full.response()(scope, receive, send)

    return respond
