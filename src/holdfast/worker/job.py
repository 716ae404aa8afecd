"""A task that this worker holds, and the clock of the database by which its times are reported."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from holdfast.engine.leases import Claimed

if TYPE_CHECKING:
    from holdfast.worker.job_transaction import JobTransaction
    from holdfast.worker.watchdog import Watched


Stop = Literal["cancelled", "deleted", "lost", "shutdown"]
Phase = Literal["waiting", "running", "ending", "ended"]
"""Ending: the handler is done and its outcome is being committed. Nobody stops it any more."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Job:
    """Mutable on purpose, and small: tens of thousands are made and dropped in a second."""

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
        # By our own steady clock: the server's is only ever compared with itself.
        self.claimed = asked
        self.lease_seconds: float = lease_until - clock
        self.lease_ends = asked + self.lease_seconds
        self.phase: Phase = "waiting"
        self.status = ""
        self.started: float | None = None
        self.running: asyncio.Task[None] | Watched | None = None
        self.stop: Stop | None = None
        # Whether somebody outside may have been told: then the next attempt has to know of this one.
        self.outside = False
        self.progress: dict[str, Any] | None = None
        self.transaction: JobTransaction | None = None

    @property
    def seconds_running(self) -> float:
        return 0.0 if self.started is None else time.monotonic() - self.started

    @property
    def name(self) -> dict[str, Any]:
        """What every line of the log about it says."""
        return {"task_id": self.task_id, "type": self.type, "attempt": self.attempt}


def written(seconds: float) -> str:
    """Seconds since 1970 as PostgreSQL reads them, exact to the microsecond."""
    return (_EPOCH + timedelta(microseconds=round(seconds * 1e6))).isoformat()


class DatabaseClock:
    """What the database's clock says now, as far as the last answer of it tells."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._last = (0, "")

    def heard(self, clock: float) -> None:
        """Right after the answer: the reading may lag by the way back, and never runs ahead."""
        self._ahead = clock - time.monotonic()

    def at(self, monotonic: float, delay: float = 0.0) -> str | None:
        """A moment of ours, or one after it, as a time of the database. Many share a millisecond."""
        if self._ahead is None:
            return None
        moment = int((monotonic + self._ahead + delay) * 1000)
        last = self._last
        if last[0] != moment:
            last = self._last = (moment, written(moment / 1000))
        return last[1]

    def now(self, delay: float = 0.0) -> str | None:
        return self.at(time.monotonic(), delay)
