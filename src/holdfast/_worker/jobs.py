"""Jobs: the tasks that this worker holds, which of them wait and run, and how many more it wants."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from holdfast._engine.leases import Claimed, Rest
from holdfast._telemetry.logs import Log, is_verbose
from holdfast._worker.executor import Phase
from holdfast._worker.metrics import Metrics
from holdfast.options import IN_DATABASE

if TYPE_CHECKING:
    from holdfast._worker.batches import RunningBatch
    from holdfast._worker.transactions import JobTransaction
    from holdfast._worker.watchdog import WatchedHandler
    from holdfast._workflows.calls import Calls
    from holdfast._workflows.run import Run

Stop = Literal["cancelled", "deleted", "lost", "shutdown"]

PREFETCH_SECONDS = 0.05
MAX_PREFETCHED = 1000
MAX_UNREPORTED = 4000
"""Tasks whose handlers have ended and whose reports are not stored yet."""
FORGET_SECONDS = 1.0
_ENDINGS = {"snooze": "snoozed", "suspend": "suspended", "continue": "continued"}
_GOES_ON = ("retrying", "snoozed", "suspended", "continued")
SHARE_OF_LEASE = 0.1
LATE = "too little was left of their leases"
NOT_SETTLED = ("busy", "refused")
"""Verdicts after which the lease still exists: of the database, and of a worker that gives up a report."""


class Job:
    """A claimed task, until its report is on disk. Mutable and small: a worker makes thousands per second."""

    __slots__ = (
        "ahead",
        "attempt",
        "calls",
        "claimed",
        "ends",
        "ends_at",
        "executor",
        "lane_id",
        "lease_ends",
        "lease_seconds",
        "max_attempts",
        "metadata",
        "outside",
        "payload",
        "phase",
        "progress",
        "queue",
        "run",
        "run_at",
        "running",
        "seconds_due",
        "started",
        "status",
        "stop",
        "task_id",
        "timeout",
        "token",
        "transaction",
        "trouble",
        "type",
    )

    def __init__(self, claimed: Claimed, asked: float) -> None:
        (
            self.task_id,
            self.token,
            self.type,
            self.payload,
            self.attempt,
            self.max_attempts,
            self.executor,
            self.metadata,
            self.timeout,
            lease_until,
            self.run_at,
            self.lane_id,
            self.queue,
            self.ends_at,
            clock,
        ) = claimed
        # Measured with our own steady clock: times of the server are only compared with each other.
        self.claimed = asked
        self.ahead: float = clock - asked
        self.lease_seconds: float = lease_until - clock
        self.seconds_due: float = clock - self.run_at
        self.lease_ends = asked + self.lease_seconds
        if self.executor in IN_DATABASE:
            self.ends_at = None
        self.ends = None if self.ends_at is None else asked + self.ends_at - clock
        self.phase: Phase = "waiting"
        self.status = ""
        self.started: float | None = None
        self.running: asyncio.Task[None] | WatchedHandler | RunningBatch | None = None
        self.stop: Stop | None = None
        # True once a provider may have received the message: the next attempt has to know about this one.
        self.outside = False
        self.progress: dict[str, Any] | None = None
        # What delays its run, as the log says it: its heartbeat tells health.
        self.trouble: str | None = None
        self.transaction: JobTransaction | None = None
        # What its handler has to await.
        self.calls: Calls | None = None
        # Of a handler with steps: what it remembers.
        self.run: Run | None = None

    @property
    def waits_for_signal(self) -> bool:
        """Whether its run was suspended until a signal comes."""
        return self.run is None or self.run.waits_for_signal

    @property
    def waits_for_tasks(self) -> bool:
        """Whether its run was suspended until other tasks end."""
        return self.run is not None and self.run.waits_for_tasks

    @property
    def may_begin(self) -> bool:
        """Whether there is time to tell the database that it has begun, before its lease ends."""
        return time.monotonic() < self.lease_ends - self.lease_seconds / 2

    @property
    def has_used_attempt(self) -> bool:
        """Whether its attempt counts although its result is not stored: a provider may have received the
        message, or its handler had begun, and has ended by itself, because its lease could not be renewed, or
        with its worker although it may run only once.
        """
        if self.outside or self.started is None:
            return self.outside
        return self.stop in (None, "lost") or (self.stop == "shutdown" and self.has_begun_for_good)

    @property
    def has_begun_for_good(self) -> bool:
        """Whether it may run at most once, and has begun. What an executor in the database did is undone."""
        return self.started is not None and self.max_attempts == 1 and self.executor not in IN_DATABASE

    @property
    def is_past_deadline(self) -> bool:
        return self.ends is not None and time.monotonic() >= self.ends

    def limit(self, *declared: float | None) -> float | None:
        """The seconds that the attempt may take: of the task, else as declared, and within the deadline."""
        limit = self.timeout
        for given in declared:
            limit = given if limit is None else limit
        if self.ends is None:
            return limit
        left = max(self.ends - time.monotonic(), 0.001)
        return left if limit is None else min(left, limit)

    def now(self) -> float:
        """The time of the database, estimated from the answer to the claim."""
        return time.monotonic() + self.ahead

    @property
    def seconds_running(self) -> float:
        return 0.0 if self.started is None else time.monotonic() - self.started

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every log line about this task."""
        return {"task_id": self.task_id, "type": self.type, "attempt": self.attempt}


class Demand:
    """How many tasks to claim in advance: as many as start in a twentieth of a second.

    Few enough that each starts within a fraction of its lease, and that a crash strands few.
    """

    def __init__(self, concurrency: int, lease: timedelta) -> None:
        self._concurrency = concurrency
        self._ahead = min(PREFETCH_SECONDS, SHARE_OF_LEASE * lease.total_seconds())
        self._per_second = 0.0
        self._since = time.monotonic()
        self._started = 0

    def wanted(self, running: int, waiting: int) -> int:
        """Return 0 while half of what may wait is left, so that claims come in batches."""
        if time.monotonic() - self._since > FORGET_SECONDS:
            self.started(0)
        prefetch = min(MAX_PREFETCHED, int(self._per_second * self._ahead))
        room = max(0, self._concurrency - running) + prefetch
        return 0 if waiting > room // 2 else room - waiting

    def started(self, count: int) -> None:
        self._started += count
        elapsed = time.monotonic() - self._since
        if elapsed >= PREFETCH_SECONDS:
            before = self._per_second if elapsed < FORGET_SECONDS else 0.0
            self._per_second = (before + self._started / elapsed) / 2
            self._since += elapsed
            self._started = 0


class Slots:
    """What waits to start and what runs.

    Changed in the event loop only, but the heartbeat's thread takes what is stale.
    """

    def __init__(self, concurrency: int, lease: timedelta, log: Log, metrics: Metrics) -> None:
        self.waiting: deque[Job] = deque()
        self.running: set[Job] = set()
        self.nothing_runs = asyncio.Event()
        self.nothing_runs.set()
        self._gathered: dict[str, list[Job]] = {}
        # A batch takes one place: this many of those that run take none.
        self._without_place = 0
        self._concurrency = concurrency
        self._demand = Demand(concurrency, lease)
        self._log = log
        self._verbose = is_verbose(log)
        self._metrics = metrics

    def next_to_start(self) -> Job | None:
        """Remove and return the first waiting job, or None if nothing waits or too many run."""
        if not self.waiting or len(self.running) - self._without_place >= self._concurrency:
            return None
        try:
            return self.waiting.popleft()
        except IndexError:  # the heartbeat's thread gave the last one back meanwhile
            return None

    def begin(self, job: Job, now: float) -> None:
        self.running.add(job)
        self.nothing_runs.clear()
        job.started = now
        job.phase = "running"
        if self._verbose:
            self._log.debug("task_started", **job.log_fields)

    def begin_batch(self, jobs: list[Job]) -> None:
        now = time.monotonic()
        for job in jobs:
            self.begin(job, now)
        self._without_place += len(jobs) - 1

    def end(self, job: Job) -> bool:
        """Return False if the job was not running any more."""
        if job not in self.running:
            return False
        self.running.discard(job)
        job.running = None
        job.phase = "ended"
        attempts = self._metrics.attempts_of(job.queue, job.type)
        attempts.run.add(job.seconds_running)
        if job.started is not None:
            attempts.delay.add(job.seconds_due + job.started - job.claimed)
        if not self.running:
            self.nothing_runs.set()
        return True

    def end_batch(self, batch: "RunningBatch") -> None:
        """Before each of its jobs has ended. May be called twice."""
        if not batch.ended:
            batch.ended = True
            self._without_place -= len(batch.jobs) - 1

    def gather(self, job: Job) -> int:
        """Let it wait for others of its type. Returns how many have gathered."""
        gathered = self._gathered.setdefault(job.type, [])
        gathered.append(job)
        return len(gathered)

    def take_gathered(self, task_type: str) -> list[Job]:
        return self._gathered.pop(task_type, [])

    def wanted(self) -> int:
        """How many more may be claimed, to start soon."""
        return self._demand.wanted(len(self.running) - self._without_place, len(self.waiting))

    def count_started(self, count: int) -> None:
        self._demand.started(count)

    def take_waiting(self) -> list[Job]:
        """Return everything that has not started; it will not start any more."""
        gathered = [job for jobs in self._gathered.values() for job in jobs]
        waiting = [job for job in list(self.waiting) if self._withdraw(job)]
        return waiting + [job for job in gathered if self._withdraw_gathered(job)]

    def take_stale(self) -> list[Job]:
        """What has waited for a fraction of its lease; it will not start. For the heartbeat's thread."""
        now = time.monotonic()
        stale = [job for job in list(self.waiting) if now - job.claimed > SHARE_OF_LEASE * job.lease_seconds]
        stale = [job for job in stale if self._withdraw(job)]
        for job in stale:
            job.phase = "ended"
        return stale

    def withdraw(self, job: Job) -> bool:
        """Remove a job that waits; False if it was started meanwhile."""
        return self._withdraw(job) or self._withdraw_gathered(job)

    def job_of(self, task: "asyncio.Task[object]") -> Job | None:
        return next((job for job in list(self.running) if job.running is task), None)

    def _withdraw(self, job: Job) -> bool:
        try:
            self.waiting.remove(job)
        except (ValueError, IndexError):
            return False
        return True

    def _withdraw_gathered(self, job: Job) -> bool:
        """In the event loop only: the heartbeat's thread must not take a job out of a batch that starts."""
        gathered = self._gathered.get(job.type, [])
        if job not in gathered:
            return False
        gathered.remove(job)
        return True


class Looks:
    """What the claim loop has found, and whether it has to look again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waits_for_slot = False
        """Whether due tasks wait under a limit, so that the end of any task may make room for them."""
        self._ended_since_look = False
        self.last_rest: tuple[float, Rest] | None = None
        """When, and with what answer; the heartbeat's thread reads it."""

    def after_ends(self) -> bool:
        """Whether this worker claims by itself when a task has ended."""
        return self._waits_for_slot

    def begin(self) -> None:
        """The claim loop looks for due tasks."""
        self._ended_since_look = False

    def rested(self, found: Rest) -> None:
        """Record what the claim loop learned when it found nothing to claim."""
        self._waits_for_slot = found.held
        if found.held and self._ended_since_look:
            self._wake()  # the slot may have become free after the look
        if found.registered:
            self.last_rest = (time.monotonic(), found)

    def task_ended(self, *, goes_on: bool) -> None:
        self._ended_since_look = True
        if self._waits_for_slot or goes_on:
            self._wake()  # a task may be due before the worker would look by itself


class HeldJobs:
    """What the worker holds, and renews, until the database has answered the report or the release.

    Changed in the event loop only, but the heartbeat's thread lets go of what was stale.
    """

    def __init__(
        self,
        slots: Slots,
        looks: Looks,
        *,
        release: Callable[[list[Job], Callable[[Job], None]], None],
        suspended: Callable[[Job], None],
        ended: Callable[[Job], None],
        log_tasks: bool,
        log: Log,
        metrics: Metrics,
    ) -> None:
        """`suspended` is called with each job whose run waits, `ended` with each whose task has ended."""
        self.slots = slots
        self.looks = looks
        self.held: set[Job] = set()
        self._returning: set[Job] = set()
        self._room = asyncio.Event()
        self._needs_room = False
        self._release = release
        self._suspended = suspended
        self._ended = ended
        self._log_tasks = log_tasks
        self._log = log
        self._verbose = is_verbose(log)
        self._metrics = metrics

    def add(self, jobs: Sequence[Job]) -> None:
        self.held.update(jobs)
        self.slots.waiting.extend(jobs)
        self._metrics.in_flight = len(self.held)

    def still_held(self, jobs: list[Job]) -> list[Job]:
        """Those that may begin. The others are given back."""
        late = [job for job in jobs if not job.may_begin]
        self.give_back(late, why=LATE)
        return [job for job in jobs if job in self.held and job not in self._returning]

    def wanted(self) -> int:
        """How many tasks to claim now."""
        if len(self.held) - len(self.slots.running) - len(self.slots.waiting) > MAX_UNREPORTED:
            return 0
        return self.slots.wanted()

    def count_started(self, count: int) -> None:
        self.slots.count_started(count)
        self._offer_room()

    async def wait_for_room(self) -> None:
        self._room.clear()
        self._needs_room = True
        await self._room.wait()
        self._needs_room = False

    def stop_waiting(self) -> None:
        """End `wait_for_room`, because the worker stops."""
        self._room.set()

    def stop(self, job: Job, why: Stop) -> None:
        """End a handler whose task is no longer ours: cancel a coroutine; a thread ends at a checkpoint."""
        if job not in self.held or job.stop is not None or job.phase not in ("waiting", "running"):
            return
        job.stop = why
        self._log.warning("task_stopped", **job.log_fields, why=why)
        if why == "lost":
            self._metrics.lost_leases += 1
        if isinstance(job.running, asyncio.Task):
            job.running.cancel()
        elif job.running is not None:
            job.running.stopped(why)
        elif job.phase == "waiting" and self.slots.withdraw(job):
            self.drop(job)

    def drop(self, job: Job) -> None:
        """Let go of a stopped job, and release it if its lease is still ours; the token protects others."""
        if job.stop == "cancelled":
            self.let_go(job)
        else:
            self.give_back([job])

    def give_back(self, jobs: Sequence[Job], why: str | None = None) -> None:
        """Release what will not run, and hold it until the database has answered.

        A task that has used its attempt is left to the end of its lease, and held until a heartbeat has told
        the database that it has begun.
        """
        jobs = [job for job in jobs if job in self.held and job not in self._returning]
        self._returning.update(jobs)
        for job in jobs:
            job.phase = "ended"
        if jobs and why is not None:
            self._log.info("tasks_released", tasks=len(jobs), why=why)
        self._release([job for job in jobs if not job.has_used_attempt], self.let_go)

    def told(self, job: Job) -> None:
        """A heartbeat has told the database that it has begun, or learned that its lease is gone."""
        if job in self._returning:
            self.let_go(job)

    def let_go(self, job: Job) -> None:
        self.held.discard(job)
        self._returning.discard(job)
        self._metrics.in_flight = len(self.held)

    def settled(self, job: Job, verdict: str) -> None:
        """The report about this job was answered, or given up."""
        if verdict in NOT_SETTLED and job.started is not None:
            job.stop = job.stop or "lost"
            self.give_back([job])
        else:
            self.let_go(job)
        self._offer_room()
        if verdict not in ("accepted", "already_done"):
            self._metrics.refused[verdict] += 1
            self._metrics.lost_leases += verdict == "lost" and job.stop is None
            self._log.warning("result_refused", **job.log_fields, verdict=verdict)
            return
        ending = ending_of(job)
        self._metrics.attempts_of(job.queue, job.type).endings[ending] += 1
        if ending == "suspended" and job.waits_for_signal:
            self._suspended(job)
        elif ending not in _GOES_ON:
            self._ended(job)
        self.looks.task_ended(goes_on=ending in _GOES_ON)
        self._log_end(job, ending)

    def _offer_room(self) -> None:
        if self._needs_room and self.wanted():
            self._room.set()

    def _log_end(self, job: Job, ending: str) -> None:
        if ending in ("failed", "dead_letter"):
            self._log.warning("task_ended", **job.log_fields, status=ending)
        elif self._log_tasks:
            seconds = round(job.seconds_running, 3)
            self._log.info("task_ended", **job.log_fields, status=ending, seconds=seconds)
        elif self._verbose:
            self._log.debug("task_ended", **job.log_fields, status=ending)


def ending_of(job: Job) -> str:
    """The status that an accepted report led to."""
    if job.status == "retry":
        return "dead_letter" if job.attempt >= job.max_attempts else "retrying"
    return _ENDINGS.get(job.status, job.status)
