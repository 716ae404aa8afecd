"""Settling: results gather while one round trip is in flight; then all of them go at once."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.engine import lease as statements
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.worker.job import Job
from holdfast.worker.link import Link
from holdfast.worker.logs import Log

MOST_AT_ONCE = 1000

Settled = tuple[Job, str]
"""A job and its result as JSON text."""


class Settler:
    """Keeps every result until the database has acknowledged it, however often it must be sent."""

    def __init__(self, link: Link, worker_id: str, log: Log, done: Callable[[Job, str], None]) -> None:
        self._link = link
        self._worker_id = worker_id
        self._log = log
        self._done = done
        self._waiting: list[Settled] = []
        self._sending = 0
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, job: Job, written: str) -> None:
        self._waiting.append((job, written))
        self._more.set()
        self._empty.clear()

    @property
    def unsettled(self) -> int:
        return len(self._waiting) + self._sending

    async def emptied(self) -> None:
        """Wait until all that was added is acknowledged."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._more.wait()
            batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            self._sending = len(batch)
            await self._send(batch)
            self._sending = 0
            if not self._waiting:
                self._more.clear()
                self._empty.set()

    async def _send(self, batch: list[Settled]) -> None:
        while True:
            try:
                verdicts = await self._finish([written for _, written in batch])
            except DatabaseUnavailable as error:
                # The same tokens again: what was accepted before the connection broke answers already_done.
                await self._link.pause(error)
            except HoldfastError as error:
                await self._refused(batch, error)
                return
            else:
                for (job, _), (_, verdict) in zip(batch, verdicts, strict=True):
                    self._done(job, verdict)
                return

    async def _refused(self, batch: list[Settled], error: HoldfastError) -> None:
        """One that cannot be stored must not keep its neighbours: each goes alone, and the culprit fails."""
        if len(batch) > 1:
            for one in batch:
                await self._send([one])
            return
        job, written = batch[0]
        plain = json.dumps(
            {
                "task_id": job.task_id,
                "token": job.token,
                "status": "failed",
                "error": {
                    "kind": "result_not_storable",
                    "message": f"the result could not be stored: {type(error).__name__}",
                },
            }
        )
        if written == plain:
            self._log.error("result_refused", task_id=job.task_id, error=str(error))
            self._done(job, "lost")
        else:
            await self._send([(job, plain)])

    async def _finish(self, results: Sequence[str]) -> Sequence[Sequence[Any]]:
        batch = f"[{','.join(results)}]"
        return await self._link.run(lambda: statements.settle_work("finish", self._worker_id, batch))
