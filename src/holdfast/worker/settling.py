"""Settling: results gather while one round trip is in flight; then all of them go at once."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import Statement, leases
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    InvalidArgument,
    TryAgain,
    UnexpectedDatabaseError,
)
from holdfast.logs import Log
from holdfast.worker.job import Job
from holdfast.worker.metrics import Metrics

MAX_AT_ONCE = 1000
SHORTEST_ASIDE_SECONDS = 0.02
ASIDE_SECONDS = 2.0
MAX_CHARACTERS = 16 * 1024 * 1024
_QUERY_CANCELED = "57014"

Settled = tuple[Job, str]
"""A job and its result as JSON text."""
BUSY_SECONDS = 0.1
MAX_TRIES = 10


class Settler:
    """Keeps every result until the database has acknowledged it, however often it must be sent."""

    def __init__(
        self,
        link: WorkerConnection,
        worker_id: str,
        log: Log,
        metrics: Metrics,
        done: Callable[[Job, str], None],
    ) -> None:
        self._link = link
        self._worker_id = worker_id
        self._log = log
        self._metrics = metrics
        self._done = done
        self._waiting: list[Settled] = []
        self._sending = 0
        self._aside = 0
        self._delays: dict[tuple[str, int], float] = {}
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, job: Job, written: str) -> None:
        self._waiting.append((job, written))
        self._more.set()
        self._empty.clear()

    @property
    def unsettled(self) -> int:
        return len(self._waiting) + self._sending + self._aside

    @property
    def failing(self) -> bool:
        return self._link.failing

    async def emptied(self) -> None:
        """Wait until all that was added is acknowledged."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._more.wait()
            batch = self._take()
            self._sending = len(batch)
            await self._send(batch)
            self._sending = 0
            if not self._waiting:
                self._more.clear()
            if not self.unsettled:
                self._empty.set()

    def _take(self) -> list[Settled]:
        """As many as go into one statement; of large results, fewer."""
        batch = self._waiting[:MAX_AT_ONCE]
        characters = 0
        for n, (_, written) in enumerate(batch):
            characters += len(written)
            if characters > MAX_CHARACTERS:
                batch = batch[: max(1, n)]
                break
        self._waiting = self._waiting[len(batch) :]
        return batch

    async def _send(self, batch: list[Settled]) -> None:
        while True:
            try:
                verdicts = await self._finish([written for _, written in batch])
            except TryAgain:
                await self._locked(batch)
                return
            except HoldfastError as error:
                if _is_about_content(error):
                    await self._refused(batch, error)
                    return
                # The same tokens again: what was accepted before the connection broke answers already_done.
                await self._link.pause(error)
            else:
                for (job, written), verdict in zip(batch, verdicts, strict=True):
                    if verdict == "busy":
                        self._put_aside(job, written)
                    else:
                        self._delays.pop((job.task_id, job.token), None)
                        self._done(job, verdict)
                return

    async def _locked(self, batch: list[Settled]) -> None:
        """What one of them waits for in vain must not keep its neighbours: it goes again later."""
        if len(batch) > 1:
            half = len(batch) // 2
            await self._send(batch[:half])
            await self._send(batch[half:])
            return
        self._put_aside(*batch[0])

    def _put_aside(self, job: Job, written: str) -> None:
        """Mostly for the moment of a heartbeat; for longer where an application keeps a transaction open."""
        name = (job.task_id, job.token)
        delay = self._delays.get(name, SHORTEST_ASIDE_SECONDS)
        self._delays[name] = min(2 * delay, ASIDE_SECONDS)
        self._aside += 1
        asyncio.get_running_loop().call_later(delay, self._resume, job, written)

    def _resume(self, job: Job, written: str) -> None:
        self._aside -= 1
        self.add(job, written)

    async def _refused(self, batch: list[Settled], error: HoldfastError) -> None:
        """One that cannot be stored must not keep its neighbours: each goes alone, and the culprit fails."""
        if len(batch) > 1:
            for one in batch:
                await self._send([one])
            return
        job, written = batch[0]
        plain = _not_storable(job, error)
        if written == plain:
            self._log.error("result_refused", **job.name, error=str(error))
            self._done(job, "lost")
        else:
            job.status = "failed"
            await self._send([(job, plain)])

    async def _finish(self, results: Sequence[str]) -> list[leases.Verdict]:
        self._metrics.sent("finish", len(results))
        finish = leases.finish(self._worker_id, results)
        return await self._link.run(lambda: finish)


def _is_about_content(error: HoldfastError) -> bool:
    """Everything else may be over soon: a lost connection, a deadlock, a migration, a full disk."""
    if isinstance(error, InvalidArgument):
        return True
    return isinstance(error, UnexpectedDatabaseError) and error.sqlstate != _QUERY_CANCELED


def _not_storable(job: Job, error: HoldfastError) -> str:
    reason = f"the result could not be stored: {type(error).__name__}"
    described = json.dumps({"kind": "result_not_storable", "message": reason})
    return leases.result_json(job.task_id, job.token, "failed", error=described)


def release_of(worker_id: str, jobs: Iterable[Job]) -> Statement[list[leases.Verdict]]:
    return leases.release(worker_id, [leases.held_json(job.task_id, job.token) for job in jobs])


class Releaser:
    """Tries until it is heard, or until the leases have ended, which gives the tasks back as well.

    What has gone outside is left to that: its attempt counts, and the next one knows that there was one.
    """

    def __init__(self, link: WorkerConnection, worker_id: str, log: Log, metrics: Metrics) -> None:
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
                jobs = [job for job, verdict in zip(jobs, verdicts, strict=True) if verdict == "busy"]
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


class KilledRuns:
    """Nothing depends on it, so it is tried for a while only."""

    def __init__(self, link: WorkerConnection, worker_id: str, log: Log) -> None:
        self._link = link
        self._worker_id = worker_id
        self._log = log
        self._under_way: set[asyncio.Task[None]] = set()

    def record(self, job: Job, error: str) -> None:
        killed = leases.killed_json(job.task_id, job.token, error)
        recording = asyncio.create_task(self._record(job, killed))
        self._under_way.add(recording)
        recording.add_done_callback(self._under_way.discard)

    async def emptied(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def close(self) -> None:
        for recording in self._under_way:
            recording.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _record(self, job: Job, killed: str) -> None:
        for _ in range(MAX_TRIES):
            try:
                await self._link.run(partial(leases.record_killed, self._worker_id, [killed]))
            except (DatabaseUnavailable, TryAgain) as error:
                await self._link.pause(error)
            except HoldfastError as error:
                self._log.warning("end_not_recorded", **job.name, error=str(error))
                return
            else:
                return
