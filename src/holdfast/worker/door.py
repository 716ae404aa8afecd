"""Keeping the door: while tasks come fast, one worker looks for all, and those who enqueue wake nobody.

A wake-up takes a lock that all commits of the server share, and wakes every listener: too much for each task.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from holdfast.engine import fleet
from holdfast.errors import HoldfastError
from holdfast.worker.link import Link
from holdfast.worker.logs import Log

KNOCKS, WITHIN_SECONDS = 30, 0.1
LOOK_SECONDS = 0.01
QUIET_LOOKS = 20
LAST_LOOK_SECONDS = 0.2
REST_SECONDS = 1.0


class Door:
    """Kept from the moment that wake-ups come fast until nothing has come for a while.

    On a connection of its own, so that the server lets go of the door when we are stuck.
    """

    def __init__(self, link: Link, queues: Sequence[str], log: Log) -> None:
        self._link = link
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
        if self._link.pooled:  # the door would be kept by whoever has the session next
            return
        kept = await self._link.run(lambda: fleet.keep_door(self._queues))
        quiet = 0 if kept else QUIET_LOOKS
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            quiet = 0 if await self._ring(kept) else quiet + 1
        # Left first, looked then: who came just before woke nobody, and may commit just after.
        await self._link.run(lambda: fleet.leave_door(kept))
        await self._ring(kept)
        await asyncio.sleep(LAST_LOOK_SECONDS)
        await self._ring(kept)

    async def _ring(self, queues: Sequence[str]) -> bool:
        return await self._link.run(lambda: fleet.ring(queues))
