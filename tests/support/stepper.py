"""A worker that does one thing at a time: what it claims, runs and records next is the test's to say."""

import time
from types import TracebackType
from typing import Any, Self

from holdfast._engine import Engine, leases
from holdfast._worker.jobs import Job
from holdfast._worker.report import DatabaseClock, Reporter
from holdfast.settings import Settings
from holdfast.testing.drain import in_database
from support.database import Database

WORKER_ID = "stepper"


class Stepper:
    """With the rights of a worker, and the same executors."""

    def __init__(self, db: Database, **settings: Any) -> None:
        self._engine = Engine(db.connect("holdfast_worker"))
        self._clock = DatabaseClock()
        self._reporter = Reporter(self._clock)
        self._settings = Settings.load(**settings)
        here = self._settings.model_copy(update={"database_url": db.dsn_as("holdfast_worker")})
        self._executors = in_database(here, WORKER_ID, self._reporter.write)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._executors.close()

    def claim(self) -> Job | None:
        claimed = self._engine.run(
            leases.claim(
                WORKER_ID, 1, queues=["comms"], type_prefixes=None, lease=self._settings.lease, after=None
            )
        )
        if not claimed:
            return None
        self._clock.heard(claimed[0].clock)
        job = Job(claimed[0], time.monotonic())
        job.started, job.phase = time.monotonic(), "running"
        return job

    async def run(self, job: Job) -> None:
        end = await self._executors.find(job.executor).run(job, None)
        if end is not None:
            self._engine.run(leases.finish(WORKER_ID, [self._reporter.write(job, end)]))

    async def step(self) -> str | None:
        """Run the next task that is due, and answer its type."""
        job = self.claim()
        if job is None:
            return None
        await self.run(job)
        return str(job.type)
