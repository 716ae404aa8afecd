"""Keeping the door: while tasks come fast, one worker looks for all, and those who enqueue wake nobody.

A wake-up takes a lock that all commits of the server share, and wakes every listener: too much for each task.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import workers
from holdfast.errors import HoldfastError
from holdfast.logs import Log

KNOCKS, WITHIN_SECONDS = 30, 0.1
LOOK_SECONDS = 0.01
QUIET_LOOKS = 20
LAST_LOOK_SECONDS = 0.2
KEEP_SECONDS = 0.2  # less than half of what keep_door gives
REST_SECONDS = 1.0


class Door:
    """Kept from the moment that wake-ups come fast until nothing has come for a while.

    The door is a row that expires by itself, so that nobody waits for us when we are stuck.
    """

    def __init__(self, link: WorkerConnection, worker_id: str, queues: Sequence[str], log: Log) -> None:
        self._link = link
        self._worker_id = worker_id
        self._queues = queues
        self._log = log
        self._knocks: deque[float] = deque(maxlen=KNOCKS)
        self._crowded = asyncio.Event()

    def knock(self) -> None:
        """For every wake-up."""
        now = time.monotonic()
        self._knocks.append(now)
        if len(self._knocks) == KNOCKS and now - self._knocks[0] < WITHIN_SECONDS:
            self._crowded.set()

    async def run(self) -> None:
        """Until cancelled."""
        while self._queues:
            await self._crowded.wait()
            try:
                await self._keep()
            except HoldfastError as error:
                self._log.warning("door_not_kept", error=str(error))
            await self._link.leave()
            await asyncio.sleep(REST_SECONDS)
            self._crowded.clear()

    async def _keep(self) -> None:
        await self._link.connection()
        if self._link.pooled:  # each look would cost a round trip through the pooler
            return
        kept = await self._link.run(lambda: workers.keep_door(self._worker_id, self._queues))
        since = time.monotonic()
        quiet = 0 if kept else QUIET_LOOKS
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            if time.monotonic() - since > KEEP_SECONDS:
                since = time.monotonic()
                await self._link.run(lambda: workers.keep_door(self._worker_id, kept))
            quiet = 0 if await self._ring(kept) else quiet + 1
        # Left first, looked then: who came just before woke nobody, and may commit just after.
        await self._link.run(lambda: workers.leave_door(self._worker_id, kept))
        await self._ring(kept)
        await asyncio.sleep(LAST_LOOK_SECONDS)
        await self._ring(kept)

    async def _ring(self, queues: Sequence[str]) -> bool:
        return await self._link.run(lambda: workers.ring(queues))
