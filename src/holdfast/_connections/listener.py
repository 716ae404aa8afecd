"""Listening for notifications. They are hints: without them, callers find out by polling."""

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from holdfast._connections.session import keeps_session
from holdfast._connections.watched_socket import WatchedSocket
from holdfast._connections.worker_connection import WorkerConnection, deadline
from holdfast._telemetry.logs import Log
from holdfast.errors import HoldfastError, translate

TASK_READY = "holdfast"
TASK_DONE = "holdfast_done"
PROBE_SECONDS = 30.0
CROWD, CROWD_SECONDS = 30, 0.1  # 30 wake-ups within a tenth of a second
REPLY_SECONDS = 5.0

AsyncConnection = psycopg.AsyncConnection[Any]


class NotificationsUnavailable(Exception):
    """Statements reach the server, but its notifications do not reach us."""


class Listener:
    """Listens on a channel and reconnects after a loss.

    It asks the server for a reply when nothing has come for a while: a connection that is gone looks like one
    on which nothing happens.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[AsyncConnection]],
        channel: str,
        *,
        notified: Callable[[str], None],
        connected: Callable[[], None],
        lost: Callable[[HoldfastError], Awaitable[None]],
        needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`notified` gets each payload. `connected` is called once notifications come through: what happened
        before may have been missed. `lost` waits before the next attempt. The listener ends when it is no
        longer `needed`, which it checks at least every PROBE_SECONDS.
        """
        self.listening = False
        self._connect = connect
        self._channel = channel
        self._notified = notified
        self._connected = connected
        self._lost = lost
        self._needed = needed
        self._connection: AsyncConnection | None = None
        self._probe = f"holdfast_probe_{uuid.uuid4().hex}"

    async def run(self) -> None:
        """Listen until cancelled or not needed. Raises NotificationsUnavailable if listening is useless."""
        while self._needed():
            try:
                self._connection = await self._connect()
                await self._listen(self._connection)
            except (HoldfastError, psycopg.Error) as error:
                self.close()
                await self._lost(translate(error) if isinstance(error, psycopg.Error) else error)
            finally:
                self.close()

    def close(self) -> None:
        """Close the connection. Works from any thread if the event loop has ended."""
        self.listening = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()

    async def _listen(self, connection: AsyncConnection) -> None:
        if not keeps_session(connection):
            # They would reach the client to which the pooler gives the server connection next.
            raise NotificationsUnavailable("a connection pooler is between this process and the database")
        if not await self._hears_itself(connection, f'listen {self._channel}; listen "{self._probe}"; '):
            raise NotificationsUnavailable("notifications do not come through")
        # For notifications that come while psycopg reads the reply of a probe.
        connection.add_notify_handler(lambda heard: self._pass_on(heard.channel, heard.payload))
        self.listening = True
        self._connected()
        while self._needed():
            if not await self._receive(connection, PROBE_SECONDS) and self._needed():
                await self._probe_connection(connection)

    async def _probe_connection(self, connection: AsyncConnection) -> None:
        """Wait for a reply of the server. A NOTIFY would start a transaction in every listening session."""
        with deadline(connection, REPLY_SECONDS):
            async with connection.pipeline() as pipeline:
                await pipeline.sync()

    async def _receive(self, connection: AsyncConnection, seconds: float) -> bool:
        """Pass on what comes during this time, and return whether something came.

        A reader of our own: `notifies` of psycopg takes several steps of the event loop for each wake-up, and
        wakes up ten times per second by itself.
        """
        loop = asyncio.get_running_loop()
        pgconn, heard = connection.pgconn, False
        lost = loop.create_future()

        def read() -> None:
            nonlocal heard
            try:
                pgconn.consume_input()
                while (found := pgconn.notifies()) is not None:
                    heard = True
                    self._pass_on(found.relname.decode(), found.extra.decode())
            except psycopg.Error as error:
                if not lost.done():
                    lost.set_exception(error)

        watched = WatchedSocket(pgconn, read)
        read()  # libpq may have buffered one already, and then the socket stays silent
        try:
            async with asyncio.timeout(seconds):
                await lost
        except TimeoutError:
            return heard
        finally:
            watched.close()
        return heard

    async def _hears_itself(self, connection: AsyncConnection, first: str = "") -> bool:
        with deadline(connection, REPLY_SECONDS):
            await connection.execute(f'{first}notify "{self._probe}"'.encode())
        heard, end = False, time.monotonic() + REPLY_SECONDS
        while not heard and (left := end - time.monotonic()) > 0:
            # Read to the end: leaving the loop early would lose what came in the same packet.
            async for notification in connection.notifies(timeout=left, stop_after=1):
                heard = heard or notification.channel == self._probe
                self._pass_on(notification.channel, notification.payload)
        return heard

    def _pass_on(self, channel: str, payload: str) -> None:
        if channel == self._channel:
            self._notified(payload)


class WakeupListener:
    """Wakes the loop of a worker or a dispatcher when there may be something to do."""

    def __init__(
        self,
        connection: WorkerConnection,
        log: Log,
        *,
        channel: str = TASK_READY,
        queues: frozenset[str] | None = None,
    ) -> None:
        """Without queues, every notification on the channel wakes the loop."""
        self.woken = asyncio.Event()
        self.crowded = asyncio.Event()
        """Set while wake-ups come so fast that it is cheaper to look without them."""
        self._recent: deque[float] = deque(maxlen=CROWD)
        self._connection = connection
        self._log = log
        self._queues = queues
        self._listener = Listener(
            connection.connection,
            channel,
            notified=self._notified,
            connected=self._connected,
            lost=self._lost,
        )

    @property
    def listening(self) -> bool:
        return self._listener.listening

    async def run(self) -> None:
        """Listen until cancelled, or until it turns out that notifications do not reach this process."""
        try:
            await self._listener.run()
        except NotificationsUnavailable as error:
            self._log.warning("no_wake_ups", why=f"{error}: looking for work by polling")

    async def wait(self, seconds: float) -> bool:
        """Return when woken, or after this time; True if woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        return self.woken.is_set()

    def _notified(self, payload: str) -> None:
        if self._queues is not None and payload not in self._queues:
            return
        self.woken.set()
        now = time.monotonic()
        self._recent.append(now)
        if len(self._recent) == CROWD and now - self._recent[0] < CROWD_SECONDS:
            self.crowded.set()

    def _connected(self) -> None:
        self._connection.mark_working()
        self.woken.set()  # a look now finds what was committed before we listened

    async def _lost(self, error: HoldfastError) -> None:
        self.woken.set()
        await self._connection.close()
        await self._connection.pause(error)
