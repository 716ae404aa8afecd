"""A task that this worker holds, and the clock of the database by which its times are reported."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from holdfast.engine.leases import Claimed
from holdfast.executors.executor import Phase

if TYPE_CHECKING:
    from holdfast.executors.job_transaction import JobTransaction
    from holdfast.worker.watchdog import WatchedHandler

Stop = Literal["cancelled", "deleted", "lost", "shutdown"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Job:
    """A claimed task, until its report is on disk. Mutable and small: a worker makes thousands per second."""

    __slots__ = (
        "attempt",
        "claimed",
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
        "run_at",
        "running",
        "started",
        "status",
        "stop",
        "task_id",
        "timeout",
        "token",
        "transaction",
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
            clock,
        ) = claimed
        # Measured with our own steady clock: times of the server are only compared with each other.
        self.claimed = asked
        self.lease_seconds: float = lease_until - clock
        self.lease_ends = asked + self.lease_seconds
        self.phase: Phase = "waiting"
        self.status = ""
        self.started: float | None = None
        self.running: asyncio.Task[None] | WatchedHandler | None = None
        self.stop: Stop | None = None
        # True once a provider may have received the message: the next attempt has to know about this one.
        self.outside = False
        self.progress: dict[str, Any] | None = None
        self.transaction: JobTransaction | None = None

    @property
    def seconds_running(self) -> float:
        return 0.0 if self.started is None else time.monotonic() - self.started

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every log line about this task."""
        return {"task_id": self.task_id, "type": self.type, "attempt": self.attempt}


def to_timestamp(seconds: float) -> str:
    """Format seconds since 1970 for PostgreSQL, exact to the microsecond."""
    return (_EPOCH + timedelta(microseconds=round(seconds * 1e6))).isoformat()


class DatabaseClock:
    """Estimates the database's time from its last answer. The wall clock of this machine is never stored."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._last = (0, "")

    def heard(self, clock: float) -> None:
        """Call right after an answer: the estimate may lag by the way back, and is never ahead."""
        self._ahead = clock - time.monotonic()

    def at(self, monotonic: float, delay: float = 0.0) -> str | None:
        """Convert a monotonic time of this process, plus a delay. The text of a millisecond is cached."""
        if self._ahead is None:
            return None
        moment = int((monotonic + self._ahead + delay) * 1000)
        last = self._last
        if last[0] != moment:
            last = self._last = (moment, to_timestamp(moment / 1000))
        return last[1]

    def now(self, delay: float = 0.0) -> str | None:
        return self.at(time.monotonic(), delay)
