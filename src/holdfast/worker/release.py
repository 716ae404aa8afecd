"""Giving back: tasks that this worker will not run go to others at once, and their attempt does not count."""

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from holdfast.engine import Statement
from holdfast.engine import lease as statements
from holdfast.errors import DatabaseUnavailable, HoldfastError, TryAgain
from holdfast.worker.job import Job
from holdfast.worker.link import Link
from holdfast.worker.logs import Log
from holdfast.worker.metrics import Metrics

BUSY_SECONDS = 0.1


def release_of(worker_id: str, jobs: Iterable[Job]) -> Statement[Sequence[Sequence[Any]]]:
    held = json.dumps([{"task_id": job.task_id, "token": job.token} for job in jobs])
    return statements.settle_work("release", worker_id, held)


class Releaser:
    """Tries until it is heard, or until the leases have ended, which gives the tasks back as well.

    What has gone outside is left to that: its attempt counts, and the next one knows that there was one.
    """

    def __init__(self, link: Link, worker_id: str, log: Log, metrics: Metrics) -> None:
        self._link = link
        self._worker_id = worker_id
        self._log = log
        self._metrics = metrics
        self._under_way: set[asyncio.Task[None]] = set()

    def release_soon(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        releasing = asyncio.create_task(self.release(jobs))
        self._under_way.add(releasing)
        releasing.add_done_callback(self._under_way.discard)

    async def release(self, jobs: list[Job]) -> None:
        while jobs := [job for job in jobs if job.lease_ends > time.monotonic() and not job.outside]:
            try:
                self._metrics.sent("release", len(jobs))
                verdicts = await self._link.run(partial(release_of, self._worker_id, jobs))
            except TryAgain as error:
                if len(jobs) > 1:  # what one of them waits for in vain must not keep its neighbours
                    await asyncio.gather(self.release(jobs[::2]), self.release(jobs[1::2]))
                    return
                await self._link.pause(error)
            except DatabaseUnavailable as error:
                await self._link.pause(error)
            except HoldfastError as error:
                self._log.error("release_refused", tasks=len(jobs), error=str(error))
                return
            else:
                jobs = [job for job, (_, verdict) in zip(jobs, verdicts, strict=True) if verdict == "busy"]
                if jobs:
                    await asyncio.sleep(BUSY_SECONDS)

    async def emptied(self) -> None:
        """Wait until nothing is on its way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def close(self) -> None:
        for releasing in self._under_way:
            releasing.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
