"""The wake-up throttle: while tasks come fast, one worker looks for all, and enqueueing wakes no worker.

A NOTIFY takes a lock that all commits of the server share, and wakes every listener: too expensive for each
task under load. So one worker holds the wake-ups of its queues: while it does, enqueueing sends none, and the
worker looks for new tasks itself and notifies the idle workers.
"""

import asyncio
import time
from collections.abc import Sequence

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import workers
from holdfast._telemetry.logs import Log
from holdfast.errors import HoldfastError

LOOK_SECONDS = 0.01
QUIET_LOOKS = 20
LAST_LOOK_SECONDS = 0.2
HOLD_SECONDS = 0.2  # less than half of what hold_wakeups grants
REST_SECONDS = 1.0


class WakeupThrottle:
    """Holds wake-ups from the moment that they come fast until nothing has come for a while.

    The hold is a row in the database that expires by itself, so that a stuck worker delays nothing.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        worker_id: str,
        queues: Sequence[str],
        crowded: asyncio.Event,
        log: Log,
    ) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._queues = queues
        self._log = log
        self._crowded = crowded

    async def run(self) -> None:
        """Run until cancelled."""
        while self._queues:
            await self._crowded.wait()
            try:
                await self._hold_wakeups()
            except HoldfastError as error:
                self._log.warning("wakeups_not_held", error=str(error))
            await self._connection.leave()
            await asyncio.sleep(REST_SECONDS)
            self._crowded.clear()

    async def _hold_wakeups(self) -> None:
        await self._connection.connection()
        if self._connection.pooled:  # each look would cost a round trip through the pooler
            return
        held = await self._connection.run(lambda: workers.hold_wakeups(self._worker_id, self._queues))
        since = time.monotonic()
        quiet = 0 if held else QUIET_LOOKS
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            if time.monotonic() - since > HOLD_SECONDS:
                since = time.monotonic()
                await self._connection.run(lambda: workers.hold_wakeups(self._worker_id, held))
            quiet = 0 if await self._notify_idle(held) else quiet + 1
        # Release first, then look: a task enqueued just before sent no wake-up, and may commit just after.
        await self._connection.run(lambda: workers.release_wakeups(self._worker_id, held))
        await self._notify_idle(held)
        await asyncio.sleep(LAST_LOOK_SECONDS)
        await self._notify_idle(held)

    async def _notify_idle(self, queues: Sequence[str]) -> bool:
        """Wake idle workers if tasks are due; returns whether any were."""
        return await self._connection.run(lambda: workers.notify_idle(queues))
