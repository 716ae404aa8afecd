"""Listening for wake-ups. A hint only: who hears nothing polls."""

import asyncio
import contextlib
import uuid

import psycopg

from holdfast.errors import HoldfastError
from holdfast.worker.link import Link
from holdfast.worker.logs import Log

CHANNEL = "holdfast"
PROBE_SECONDS = 30.0
ANSWER_SECONDS = 5.0


class Listener:
    """Hears that a queue has work. Probes itself: a listener that went deaf looks like an empty queue."""

    def __init__(self, link: Link, log: Log) -> None:
        self.woken = asyncio.Event()
        self.hears = False
        self._link = link
        self._log = log
        self._probe = f"holdfast_probe_{uuid.uuid4().hex}"
        self._warned = False

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except (HoldfastError, psycopg.Error, TimeoutError) as error:
                self.hears = False
                self.woken.set()
                await self._link.close()
                await self._link.pause(error)
            else:
                return

    async def _listen(self) -> None:
        connection = await self._link.connection()
        if self._link.pooled:
            self._log.warning("no_wake_ups", why="a pooler stands between: looking for work by polling")
            return
        await connection.execute(f'listen {CHANNEL}; listen "{self._probe}"')
        # Listen first, look then: what was committed in between is found by the look.
        self.hears = True
        self.woken.set()
        while True:
            heard = False
            async for notification in connection.notifies(timeout=PROBE_SECONDS):
                heard = True
                if notification.channel == CHANNEL:
                    self.woken.set()
            if not heard:
                await self._check(connection)

    async def _check(self, connection: psycopg.AsyncConnection[object]) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            await connection.execute("select pg_notify(%s, '')", (self._probe,))
            async for notification in connection.notifies():
                if notification.channel == CHANNEL:
                    self.woken.set()
                else:
                    return

    async def wait(self, seconds: float) -> None:
        """Until woken, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()
