"""The heartbeat: a thread and a connection of its own, so that no handler can starve it."""

import asyncio
import contextlib
import json
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg

from holdfast.engine import Engine
from holdfast.engine import lease as statements
from holdfast.errors import HoldfastError
from holdfast.worker.clock import DatabaseClock
from holdfast.worker.job import Job, Stop
from holdfast.worker.link import ARRIVAL, is_pooled, with_defaults
from holdfast.worker.logs import Log

SWEEP_SECONDS = 1.0
PROGRESS_SECONDS = 1.0
MOST_AT_ONCE = 5000


class Beater(threading.Thread):
    """Prolongs what is held, learns what is no longer, and sweeps what other workers left behind."""

    def __init__(
        self,
        *,
        url: str,
        worker_id: str,
        interval: timedelta,
        lease: timedelta,
        held: Callable[[], list[Job]],
        stop: Callable[[str, int, Stop], None],
        loop: asyncio.AbstractEventLoop,
        clock: DatabaseClock,
        log: Log,
    ) -> None:
        super().__init__(name="holdfast-heartbeat", daemon=True)
        self._url = with_defaults(url)
        self._worker_id = worker_id
        self._interval = interval.total_seconds()
        self._lease = lease.total_seconds()
        self._held = held
        self._stop_job = stop
        self._loop = loop
        self._clock = clock
        self._log = log
        self._connection: psycopg.Connection[Any] | None = None
        self._wake = threading.Event()
        self._closed = False
        self._next_beat = 0.0
        self._next_sweep = 0.0
        self._failing = False

    def tell_progress(self) -> None:
        """Let the next beat come soon. Called from handlers, so it only leaves a mark."""
        self._next_beat = min(self._next_beat, time.monotonic() + PROGRESS_SECONDS)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self.join(timeout=5)

    def run(self) -> None:
        while not self._closed:
            try:
                self._do_what_is_due()
            except (HoldfastError, psycopg.Error) as error:
                self._lost_connection(error)
            self._give_up_what_cannot_be_kept()
            self._wake.wait(timeout=0.25 if self._failing else min(0.5, self._interval / 4))
        self._disconnect()

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            # Set before the round trip, so that progress told meanwhile is sent soon.
            self._next_beat = now + self._interval * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
            self._beat(now)
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS * random.uniform(0.7, 1.3)  # noqa: S311 - spreads load
            self._sweep()

    def _beat(self, sent: float) -> None:
        jobs = self._held()
        for start in range(0, max(1, len(jobs)), MOST_AT_ONCE):
            self._beat_some(jobs[start : start + MOST_AT_ONCE], sent)

    def _beat_some(self, jobs: list[Job], sent: float) -> None:
        engine = Engine(self._connected())
        batch = json.dumps([self._described(job) for job in jobs])
        verdicts = engine.run(statements.settle_work("heartbeat", self._worker_id, batch))
        self._failing = False
        for job, (_, verdict) in zip(jobs, verdicts, strict=True):
            if verdict == "held":
                job.lease_ends = max(job.lease_ends, sent + self._lease)
            else:
                self._end_job(job, verdict)

    def _described(self, job: Job) -> dict[str, Any]:
        described: dict[str, Any] = {"task_id": job.task_id, "token": job.token}
        if job.started is not None and (at := self._clock.at(job.started)) is not None:
            described["started_at"] = at
        if job.progress is not None:
            described["progress"] = job.progress
        return described

    def _sweep(self) -> None:
        swept = Engine(self._connected()).run(statements.sweep())
        if swept.recovered or swept.dead:
            self._log.warning("leases_recovered", back_to_ready=swept.recovered, dead_letter=swept.dead)

    def _give_up_what_cannot_be_kept(self) -> None:
        """Half a lease without renewal is the last moment to stop a handler before its lease ends."""
        if not self._failing:
            return
        now = time.monotonic()
        for job in self._held():
            if job.lease_ends - now < self._lease / 2:
                self._end_job(job, "lost")

    def _end_job(self, job: Job, why: Stop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: the worker is ending
            self._loop.call_soon_threadsafe(self._stop_job, job.task_id, job.token, why)

    def _lost_connection(self, error: Exception) -> None:
        if not self._failing:
            self._log.warning("heartbeat_failed", error=str(error).strip())
        self._failing = True
        self._next_beat = 0.0
        self._disconnect()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = psycopg.connect(self._url, autocommit=True)
            row = connection.execute(ARRIVAL).fetchone()
            assert row is not None  # noqa: S101 - an aggregate has one row
            if is_pooled(connection, row[0]):
                connection.prepare_threshold = None
            elif row[1]:
                connection.execute("set role holdfast_worker")
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()
