"""The heartbeat: a thread and a connection of its own, so that no handler can starve it."""

import contextlib
import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from holdfast.connections.session import configure_session, hang_up, with_defaults
from holdfast.engine import Engine, Statement, leases, workers
from holdfast.errors import HoldfastError, InvalidArgument, TryAgain, translate
from holdfast.logs import Log
from holdfast.worker.job import DatabaseClock, Job, Stop
from holdfast.worker.leader import Candidate
from holdfast.worker.metrics import Metrics
from holdfast.worker.settling import release_of

SWEEP_SECONDS = 1.0
PROGRESS_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 2.0
MAX_AT_ONCE = 5000
BEATS_PER_LEASE = 3
LOCK_SECONDS = 0.25
LEAST_BUSY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Hands:
    """What the heartbeat may do to the tasks of the worker. Called from its thread."""

    held: Callable[[], list[Job]]
    stop: Callable[[Job, Stop], None]
    take_stale: Callable[[], list[Job]]


class Beater(threading.Thread):
    """Prolongs what is held, learns what is no longer, sweeps what others left behind, asks to lead."""

    def __init__(
        self,
        *,
        url: str,
        worker_id: str,
        interval: timedelta,
        lease: timedelta,
        hands: Hands,
        register: Callable[[], Statement[None]],
        candidate: Candidate,
        clock: DatabaseClock,
        log: Log,
        metrics: Metrics,
    ) -> None:
        super().__init__(name="holdfast-heartbeat", daemon=True)
        self._url = with_defaults(url, worker=True)
        self._worker_id = worker_id
        self._interval = interval.total_seconds()
        self._lease = lease.total_seconds()
        self._hands = hands
        self._register = register
        self._candidate = candidate
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self.registered_again: Callable[[], None] = lambda: None
        self._connection: psycopg.Connection[Any] | None = None
        self._opened = 0
        self._asked: float | None = None
        self._wake = threading.Event()
        self._schedule = threading.Lock()
        self._closed = False
        self._next_beat = 0.0
        self._next_sweep = 0.0
        self._failures = 0

    @property
    def failing(self) -> bool:
        return self._failures > 0

    def beat_within(self, seconds: float) -> None:
        """Let the next beat come so soon. From any thread, and cheap where it comes soon anyway."""
        due = time.monotonic() + seconds
        if due < self._next_beat:
            with self._schedule:
                self._next_beat = min(self._next_beat, due)
            self._wake.set()

    def expect(self, jobs: Sequence[Job]) -> None:
        """Tasks with a shorter lease of their own are renewed in time, too."""
        shortest = min((job.lease_seconds for job in jobs), default=self._lease)
        if shortest < self._lease * 0.9:
            self.beat_within(shortest / BEATS_PER_LEASE)

    def tell_progress(self) -> None:
        self.beat_within(PROGRESS_SECONDS)

    def withdraw(self) -> None:
        """Hand leadership over, soon and from this thread: nothing that asks for it can come after that."""
        self._candidate.withdraw()
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self.is_alive():
            self.join(timeout=0.5)
        if self.is_alive() and self._connection is not None:
            hang_up(self._connection)
            self.join(timeout=2)

    def run(self) -> None:
        while not self._closed:
            try:
                self._do_what_is_due()
            except Exception as error:  # noqa: BLE001 - if this thread ended, every lease would
                self._failed(error)
            self._wake.wait(self._seconds_until_next())
            self._wake.clear()
        self._disconnect()

    def look_after(self) -> None:
        """By the watchdog, because this thread may be waiting for an answer that never comes.

        Half a lease without renewal is the last moment to stop a handler before its lease ends.
        """
        now, asked = time.monotonic(), self._asked
        silent = 0.0 if asked is None else now - asked
        if self.failing or silent > self._lease / 4:
            for job in self._hands.held():
                if job.lease_ends - now < job.lease_seconds / 2:
                    self._hands.stop(job, "lost")
        if silent > max(1.0, self._lease / 4) and (connection := self._connection) is not None:
            hang_up(connection)

    def _seconds_until_next(self) -> float:
        due = self._next_beat
        if not self.failing:
            due = min(due, self._next_sweep, self._candidate.due)
        return max(0.0, due - time.monotonic())

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            # Set before the round trip, so that progress told meanwhile is sent soon.
            with self._schedule:
                self._next_beat = now + self._interval * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
            self._beat(now)
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS * random.uniform(0.7, 1.3)  # noqa: S311 - spreads load
            self._give_back_stale()
            self._sweep()
        if now >= self._candidate.due:
            self._candidate.stand(self._ask)

    def _beat(self, sent: float) -> None:
        jobs = self._hands.held()
        batches = deque(jobs[n : n + MAX_AT_ONCE] for n in range(0, max(1, len(jobs)), MAX_AT_ONCE))
        while batches:
            batch = batches.popleft()
            try:
                self._beat_some(batch, sent)
            except TryAgain:
                # What one of them waits for in vain must not cost the others their leases.
                half = len(batch) // 2
                batches.extend(part for part in (batch[:half], batch[half:]) if part and half)
        if not self._ask(workers.is_registered(self._worker_id)):
            self._ask(self._register())
            self._log.warning("registered_again", why="another worker took this one for dead")
            self.registered_again()
        if self._failures:
            self._failures = 0
            self._log.info("heartbeat_back")
        self.expect(jobs)

    def _beat_some(self, jobs: list[Job], sent: float) -> None:
        try:
            verdicts = self._send(jobs, with_progress=True)
        except InvalidArgument:  # nobody shall lose a lease over what some handler tells of its progress
            verdicts = self._send(jobs, with_progress=False)
        for job, verdict in zip(jobs, verdicts, strict=True):
            if verdict == "held":
                job.lease_ends = max(job.lease_ends, sent + job.lease_seconds)
            elif verdict == "busy":  # another session has locked it: ask again while its lease lasts
                self.beat_within(max(LEAST_BUSY_SECONDS, (job.lease_ends - sent) / BEATS_PER_LEASE))
            else:
                self._hands.stop(job, verdict)

    def _send(self, jobs: list[Job], *, with_progress: bool) -> Any:
        held = [self._described(job, with_progress=with_progress) for job in jobs]
        self._metrics.sent("heartbeat", len(jobs))
        return self._ask(leases.heartbeat(self._worker_id, held))

    def _described(self, job: Job, *, with_progress: bool) -> str:
        started_at = None if job.started is None else self._clock.at(job.started)
        progress = job.progress if with_progress else None
        return leases.held_json(
            job.task_id,
            job.token,
            started_at=started_at,
            progress=None if progress is None else json.dumps(progress),
        )

    def _give_back_stale(self) -> None:
        """What was claimed in advance and cannot be started soon is better off elsewhere."""
        stale = self._hands.take_stale()
        if stale:
            self._metrics.sent("release", len(stale))
            self._ask(release_of(self._worker_id, stale))
            self._log.info("given_back", tasks=len(stale), why="they waited too long for room")

    def _sweep(self) -> None:
        swept = self._ask(leases.sweep())
        if swept.recovered or swept.dead:
            self._log.warning("leases_recovered", back_to_ready=swept.recovered, dead_letter=swept.dead)

    def _ask(self, statement: Any) -> Any:
        self._asked = time.monotonic()
        try:
            return Engine(self._connected()).run(statement)
        finally:
            self._asked = None

    def _failed(self, error: Exception) -> None:
        if not self._failures:
            self._log.warning("heartbeat_failed", error=str(error).strip() or type(error).__name__)
        self._failures += 1
        longest = min(LONGEST_PAUSE_SECONDS, self._lease / 10, 0.1 * 2 ** min(self._failures, 10))
        self._next_beat = time.monotonic() + longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
        self._disconnect()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            try:
                # Known to the watchdog from here on, which hangs up if nothing is heard.
                self._connection = psycopg.connect(self._url, autocommit=True)
                configure_session(self._connection, min(LOCK_SECONDS, self._lease / 50))
            except psycopg.Error as error:
                raise translate(error) from error
            self._metrics.reconnects += self._opened > 0
            self._opened += 1
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, HoldfastError):
                connection.close()
