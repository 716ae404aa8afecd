"""Listening for wake-ups. A hint only: who hears nothing polls."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast.connections.session import deadline
from holdfast.connections.worker_connection import WorkerConnection
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.logs import Log

CHANNEL = "holdfast"
PROBE_SECONDS = 30.0
ANSWER_SECONDS = 5.0

AsyncConnection = psycopg.AsyncConnection[Any]


class Deaf(Exception):
    """Notifications do not come through, though everything else does."""


class Listener:
    """Hears that there is work. Probes itself: a listener that went deaf looks like an empty queue."""

    def __init__(
        self,
        connection: WorkerConnection,
        log: Log,
        *,
        concerns: Callable[[str], bool],
        channel: str = CHANNEL,
        knock: Callable[[], None] | None = None,
    ) -> None:
        self.woken = asyncio.Event()
        self.hears = False
        self._connection = connection
        self._log = log
        self._channel = channel
        self._concerns = concerns
        self._knock = knock
        self._probe = f"holdfast_probe_{uuid.uuid4().hex}"

    async def run(self) -> None:
        """Until cancelled, or until it turns out that there is nothing to hear."""
        while True:
            try:
                await self._listen()
            except Deaf as error:
                self._log.warning("no_wake_ups", why=f"{error}: looking for work by polling")
                await self._connection.close()
                return
            except (HoldfastError, psycopg.Error) as error:
                self.hears = False
                self.woken.set()
                await self._connection.close()
                await self._connection.pause(error)

    async def wait(self, seconds: float) -> None:
        """Until woken, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()

    async def _listen(self) -> None:
        connection = await self._connection.connection()
        if self._connection.pooled:
            raise Deaf("a pooler stands between us and the database")
        with deadline(connection, ANSWER_SECONDS):
            await connection.execute(f'listen {self._channel}; listen "{self._probe}"')
        if not await self._hears_itself(connection):
            raise Deaf("notifications do not come through")
        self._connection.works()
        # Listen first, look then: what was committed in between is found by the look.
        self.hears = True
        self.woken.set()
        while True:
            heard = False
            async for notification in connection.notifies(timeout=PROBE_SECONDS):
                heard = True
                self._take(notification)
            if not heard and not await self._hears_itself(connection):
                raise DatabaseUnavailable("the connection no longer hears notifications")

    async def _hears_itself(self, connection: AsyncConnection) -> bool:
        with deadline(connection, ANSWER_SECONDS):
            await connection.execute("select pg_notify(%s, '')", (self._probe,))
        async for notification in connection.notifies(timeout=ANSWER_SECONDS):
            if notification.channel == self._probe:
                return True
            self._take(notification)
        return False

    def _take(self, notification: psycopg.Notify) -> None:
        if notification.channel == self._channel and self._concerns(notification.payload):
            self.woken.set()
            if self._knock is not None:
                self._knock()
