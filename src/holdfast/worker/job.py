"""A task that this worker holds, from the claim until its end is on disk."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal

Stop = Literal["cancelled", "deleted", "lost", "shutdown", "timeout"]


class Job:
    """Mutable on purpose, and small: tens of thousands are made and dropped in a second."""

    __slots__ = (
        "attempt",
        "executor",
        "lane_id",
        "lease_ends",
        "max_attempts",
        "metadata",
        "payload",
        "progress",
        "run_at",
        "running",
        "started",
        "stop",
        "task_id",
        "timeout",
        "token",
        "transaction",
        "type",
    )

    def __init__(self, row: Sequence[Any], now: float) -> None:
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
        ) = row
        # By our own steady clock: the server's is only ever compared with itself.
        self.lease_ends = now + (lease_until - clock)
        self.started: float | None = None
        self.running: asyncio.Task[None] | Future[None] | None = None
        self.stop: Stop | None = None
        self.progress: dict[str, Any] | None = None
        self.transaction: Any = None

    @property
    def seconds_running(self) -> float:
        return 0.0 if self.started is None else time.monotonic() - self.started
