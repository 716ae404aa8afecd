"""Keeping how runs ended that the worker had to kill because their tasks were taken from it."""

import asyncio
from functools import partial

from holdfast.engine import lease as statements
from holdfast.errors import DatabaseUnavailable, HoldfastError, TryAgain
from holdfast.worker.job import Job
from holdfast.worker.link import Link
from holdfast.worker.logs import Log

MAX_TRIES = 10


class KilledRuns:
    """Nothing depends on it, so it is tried for a while only."""

    def __init__(self, link: Link, worker_id: str, log: Log) -> None:
        self._link = link
        self._worker_id = worker_id
        self._log = log
        self._under_way: set[asyncio.Task[None]] = set()

    def record(self, job: Job, error: str) -> None:
        written = f'[{{"task_id":"{job.task_id}","token":{job.token},"error":{error}}}]'
        recording = asyncio.create_task(self._record(job, written))
        self._under_way.add(recording)
        recording.add_done_callback(self._under_way.discard)

    async def emptied(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def close(self) -> None:
        for recording in self._under_way:
            recording.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _record(self, job: Job, written: str) -> None:
        for _ in range(MAX_TRIES):
            try:
                await self._link.run(
                    partial(statements.settle_work, "record_killed", self._worker_id, written)
                )
            except (DatabaseUnavailable, TryAgain) as error:
                await self._link.pause(error)
            except HoldfastError as error:
                self._log.warning("end_not_recorded", **job.name, error=str(error))
                return
            else:
                return
