"""The heartbeat: renews leases in a thread, on a connection of its own, so that no handler can delay it."""

import contextlib
import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import psycopg

from holdfast._connections.session import configure_session, with_defaults
from holdfast._connections.worker_connection import Outage, hang_up
from holdfast._engine import Engine, leases, workers
from holdfast._engine.leases import FleetState
from holdfast._telemetry.logs import Log
from holdfast._worker.essential_thread import EssentialThread, Failed
from holdfast._worker.jobs import HeldJobs, Job, Stop
from holdfast._worker.leader import Execute
from holdfast._worker.metrics import Metrics
from holdfast._worker.report import DatabaseClock
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    InvalidArgument,
    TransactionConflict,
    translate,
)

HEARTBEAT = "heartbeat"
PROGRESS_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 2.0
MAX_AT_ONCE = 5000
BEATS_PER_LEASE = 3
LOCK_SECONDS = 0.25
LEAST_BUSY_SECONDS = 1.0


class Errand(Protocol):
    """Other work for this thread and its connection, when all leases are renewed."""

    @property
    def due(self) -> float: ...
    def run(self, execute: Execute, /) -> tuple[FleetState, float] | None:
        """Returns the state of the fleet and when it was asked for, if it was, so that all learn it."""

    def learn(self, state: FleetState, asked: float, /) -> None: ...


class Heartbeat(EssentialThread):
    """Renews the leases of held tasks, and stops lost tasks. Then it runs the errands that are due.

    While the worker has no tasks, its claim loop shows that it is alive (`rest`), and no heartbeat is sent.
    """

    def __init__(
        self,
        *,
        url: str,
        worker_id: str,
        interval: timedelta,
        lease: timedelta,
        jobs: HeldJobs,
        stop: Callable[[Job, Stop], None],
        told: Callable[[Job], None],
        errands: Sequence[Errand],
        clock: DatabaseClock,
        log: Log,
        outage: Outage,
        metrics: Metrics,
        failed: Failed,
    ) -> None:
        super().__init__(HEARTBEAT, failed)
        self._url = with_defaults(url, worker=True)
        self._worker_id = worker_id
        self._interval = interval.total_seconds()
        self._lease = lease.total_seconds()
        self._jobs = jobs
        self._stop_job = stop
        self._told = told
        self._errands = errands
        self._clock = clock
        self._log = log
        self._outage = outage
        self._metrics = metrics
        self._connection: psycopg.Connection[Any] | None = None
        self._opened = 0
        self._waiting_since: float | None = None
        self._wake = threading.Event()
        self._schedule = threading.Lock()
        self._closed = False
        self._next_beat = 0.0
        self._rested_at = float("-inf")
        self._failures = 0
        self._warned = False
        self.failing = False

    def beat_within(self, seconds: float) -> None:
        """Send the next heartbeat within this time. Any thread may call it; cheap if one is due anyway."""
        due = time.monotonic() + seconds
        if due < self._next_beat:
            with self._schedule:
                self._next_beat = min(self._next_beat, due)
            self._wake.set()

    def renew_in_time(self, jobs: Sequence[Job]) -> None:
        """Beat sooner if one of these tasks has a shorter lease of its own."""
        shortest = min((job.lease_seconds for job in jobs), default=self._lease)
        if shortest < self._lease * 0.9:
            self.beat_within(shortest / BEATS_PER_LEASE)

    def send_progress_soon(self) -> None:
        self.beat_within(PROGRESS_SECONDS)

    def wake(self) -> None:
        """Look at once for errands that are due."""
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self.is_alive():
            self.join(timeout=0.5)
        if self.is_alive() and self._connection is not None:
            hang_up(self._connection)
            self.join(timeout=2)

    def work(self) -> None:
        try:
            while not self._closed:
                try:
                    self._run_due_work()
                except Exception as error:  # noqa: BLE001 - if this thread ended, every lease would expire
                    self._failed(error)
                self._wake.wait(self._seconds_until_next())
                self._wake.clear()
        finally:
            self.failing = not self._closed
            self._disconnect()

    def check_deadline(self) -> None:
        """Called by the watchdog, because this thread may wait for an answer that never comes.

        A handler is stopped after half a lease without renewal, so that it ends before the lease does.
        """
        now, since = time.monotonic(), self._waiting_since
        silent = 0.0 if since is None else now - since
        if self.failing or silent > self._lease / 4:
            for job in list(self._jobs.held):
                if job.lease_ends - now < job.lease_seconds / 2:
                    self._stop_job(job, "lost")
        if silent > max(1.0, self._lease / 4) and (connection := self._connection) is not None:
            hang_up(connection)

    def _seconds_until_next(self) -> float:
        due = self._next_beat
        if not self.failing:
            due = min(due, *(errand.due for errand in self._errands))
        return max(0.0, due - time.monotonic())

    def _run_due_work(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat and not self._skip_beat(now):
            # Set before the round trip, so that progress reported meanwhile is sent soon.
            with self._schedule:
                self._next_beat = now + self._interval * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
            self._beat(now)
        self._learn_from_claim_loop()
        for errand in self._errands:
            if now >= errand.due:
                learned = errand.run(self._execute)
                if learned is not None:
                    self._learn(*learned)

    def _skip_beat(self, now: float) -> bool:
        """A worker without tasks needs no heartbeat while its claim loop rests."""
        self._learn_from_claim_loop()
        until = self._rested_at + self._interval
        if self._jobs.held or until <= now:
            return False
        with self._schedule:
            self._next_beat = until
        return True

    def _beat(self, sent: float) -> None:
        # Those in trouble come last: the batch that completes the list tells of them.
        jobs = sorted(self._jobs.held, key=lambda job: job.trouble is not None)
        batches = deque(jobs[n : n + MAX_AT_ONCE] for n in range(0, max(1, len(jobs)), MAX_AT_ONCE))
        told_all = True
        while batches:
            batch = batches.popleft()
            try:
                told_all &= self._send_batch(batch, sent, complete=told_all and not batches)
            except TransactionConflict:
                # A locked row must not cost the others their leases: halve the batch.
                half = len(batch) // 2
                told_all = told_all and half > 0
                batches.extend(part for part in (batch[:half], batch[half:]) if part and half)
        self._learn(self._execute(workers.fleet_state(self._worker_id)), sent)
        self._failures = 0
        self.failing = False
        self._outage.works(HEARTBEAT)
        if self._warned:
            self._warned = False
            self._log.info("heartbeat_recovered")
        self.renew_in_time(jobs)

    def _send_batch(self, jobs: list[Job], sent: float, *, complete: bool) -> bool:
        """Whether the database knows of each that it has begun, if it has."""
        told = True
        # Before the round trip: a task that begins and ends meanwhile is listed as one that has not begun.
        ended = {job for job in jobs if job.phase == "ended" and job.has_used_attempt}
        try:
            verdicts = self._send(jobs, with_progress=True, complete=complete)
        except InvalidArgument:  # no lease may be lost because a handler reported odd progress
            verdicts = self._send(jobs, with_progress=False, complete=complete)
        for job, verdict in zip(jobs, verdicts, strict=True):
            if job in ended and verdict != "busy":
                self._told(job)
            if verdict == "held":
                job.lease_ends = max(job.lease_ends, sent + job.lease_seconds)
            elif verdict == "busy":  # another session has locked the row: try again while the lease lasts
                told &= job.started is None
                self.beat_within(max(LEAST_BUSY_SECONDS, (job.lease_ends - sent) / BEATS_PER_LEASE))
            else:
                self._stop_job(job, verdict)
        return told

    def _send(self, jobs: list[Job], *, with_progress: bool, complete: bool) -> Any:
        held = [self._entry(job, with_progress=with_progress) for job in jobs]
        self._metrics.sent("heartbeat", len(jobs))
        statement = leases.heartbeat(self._worker_id, held, self._metrics.vitals(), complete=complete)
        return self._execute(statement)

    def _entry(self, job: Job, *, with_progress: bool) -> str:
        started_at = None if job.started is None else self._clock.at(job.started)
        progress = job.progress if with_progress else None
        return leases.held_json(
            job.task_id,
            job.token,
            started_at=started_at,
            progress=None if progress is None else json.dumps(progress),
            trouble=job.trouble,
        )

    def _learn_from_claim_loop(self) -> None:
        rest = self._jobs.looks.last_rest
        if rest is None or rest[0] == self._rested_at:
            return
        self._rested_at, state = rest
        self._learn(state, self._rested_at)

    def _learn(self, state: FleetState, asked: float) -> None:
        for errand in self._errands:
            errand.learn(state, asked)

    def _execute(self, statement: Any) -> Any:
        self._waiting_since = time.monotonic()
        try:
            return Engine(self._connected()).run(statement)
        finally:
            self._waiting_since = None

    def _failed(self, error: Exception) -> None:
        if isinstance(error, DatabaseUnavailable):
            self._outage.failed(HEARTBEAT, error)
        elif not self._warned:
            self._warned = True
            self._log.warning("heartbeat_failed", error=str(error).strip() or type(error).__name__)
        self._failures += 1
        self.failing = True
        longest = min(LONGEST_PAUSE_SECONDS, self._lease / 10, 0.1 * 2 ** min(self._failures, 10))
        self._next_beat = time.monotonic() + longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
        self._disconnect()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            try:
                # From here on the watchdog can hang up if the server does not answer.
                self._connection = psycopg.connect(self._url, autocommit=True)
                configure_session(self._connection, min(LOCK_SECONDS, self._lease / 50), lazy_commit=True)
            except psycopg.Error as error:
                raise translate(error) from error
            self._outage.opened(HEARTBEAT)
            self._metrics.reconnects += self._opened > 0
            self._opened += 1
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, HoldfastError):
                connection.close()
