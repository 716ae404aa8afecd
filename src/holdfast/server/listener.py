"""The listening socket, which counts connections before TLS, and deadlines for what clients have yet to send.

The socket knows connections, the middleware requests. They meet at the address of the client.
"""

import asyncio
import socket
import time
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.connection_limit import (
    BACKLOG,
    FOR_PROBES,
    ConnectionLimiter,
    TrackedConnection,
    source_of,
)
from holdfast.server.problem import Problem
from holdfast.server.security import is_probe

BODY_SECONDS = 20.0
BODY_BYTES_PER_SECOND = 16 * 1024  # large bodies get more time; a byte now and then does not earn any
UNREAD_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 75
CLOSED = -1
NEXT_REQUEST_SECONDS = KEEP_ALIVE_SECONDS + 10.0  # uvicorn ends the silent ones, in order


class Listener(socket.socket):
    """Accepts connections as long as the limiter admits them. Needs the event loop of asyncio.

    The limiter forgets a dropped connection before the event loop has closed its file. Until then, others
    wait in the backlog of the kernel, so that files are never used up.
    """

    def __init__(self, bound: socket.socket, limiter: ConnectionLimiter) -> None:
        super().__init__(bound.family, bound.type, bound.proto, fileno=bound.detach())
        self.limiter = limiter
        self.files = 0
        self._clients: dict[tuple[str, int], TrackedConnection] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        if self.files >= self.limiter.maximum + FOR_PROBES + BACKLOG:
            raise BlockingIOError
        accepted, peer = super().accept()
        connection = _Connection(accepted, self, peer[:2])
        if connection.tracked is None:
            connection.close()
            raise ConnectionAbortedError  # what a client that left at once raises: the event loop goes on
        self._clients[peer[:2]] = connection.tracked
        return connection, peer

    def forget(self, client: tuple[str, int], connection: TrackedConnection | None) -> None:
        self.files -= 1
        if connection is not None:
            self.limiter.remove(connection)
            if self._clients.get(client) is connection:
                del self._clients[client]

    def connection_of(self, scope: Scope) -> TrackedConnection | None:
        return self._clients.get(tuple(scope.get("client") or ()))


class _Connection(socket.socket):
    def __init__(self, accepted: socket.socket, listener: Listener, client: tuple[str, int]) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        listener.files += 1
        self._listener = listener
        self._client = client
        self.tracked = listener.limiter.admit(source_of(client[0]), self.end)

    def end(self) -> None:
        """The event loop notices, and closes it."""
        with suppress(OSError):  # the client was faster
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self.fileno() != CLOSED:
            super().close()
            self._listener.forget(self._client, self.tracked)


class RequestDeadlines:
    """Tells the limiter which connections have a request in progress, and limits the time of its body."""

    def __init__(self, app: ASGIApp, listener: Listener) -> None:
        self._app = app
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._listener.connection_of(scope) if scope["type"] == "http" else None
        if connection is None:
            await self._app(scope, receive, send)
            return
        limiter = self._listener.limiter
        body = _Body(scope, receive, connection)

        async def send_and_drain(message: Message) -> None:
            """After the response, read what the application did not: else the client might not see it."""
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await send({**message, "more_body": True})
                limiter.mark_idle(connection, UNREAD_SECONDS)
                while not body.complete:
                    await body.receive()
                message = {"type": "http.response.body"}
            await send(message)

        refuses = connection.probes_only and not is_probe(scope)
        limiter.mark_busy(connection)
        try:
            await (_refuse if refuses else self._app)(
                scope, body.receive, send if body.complete else send_and_drain
            )
        finally:
            limiter.mark_idle(connection, NEXT_REQUEST_SECONDS)


class _Body:
    """The body of a request. If it does not arrive in time, the connection is dropped."""

    def __init__(self, scope: Scope, receive: Receive, connection: TrackedConnection) -> None:
        headers = Headers(scope=scope)
        self.complete = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        self._receive = receive
        self._connection = connection
        self._seconds = BODY_SECONDS

    async def receive(self) -> Message:
        """Only the time counts in which the application reads: otherwise the client may not send."""
        if self.complete:
            return await self._receive()
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(self._seconds, 0)):
                message = await self._receive()
        except TimeoutError:
            self._connection.drop()
            while (message := await self._receive())["type"] != "http.disconnect":
                pass
        self._seconds += len(message.get("body", b"")) / BODY_BYTES_PER_SECOND - (time.monotonic() - began)
        self.complete = not message.get("more_body")
        return message


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Retry-After": "5", "Connection": "close"}
    full = Problem(503, "too many connections are open", code="too_many_connections", headers=headers)
    await full.response()(scope, receive, send)
