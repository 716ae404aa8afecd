"""How much to claim, and from where on."""

import json
import time
from datetime import timedelta

from holdfast.worker.clock import written
from holdfast.worker.job import Job

CURSOR_SECONDS = 1.0
PREFETCH_SECONDS = 0.05
MAX_PREFETCHED = 500
FORGET_SECONDS = 1.0
SHARE_OF_LEASE = 0.1


class Demand:
    """How many tasks to hold in advance: as many as are started in a twentieth of a second.

    Few enough that each starts within a fraction of its lease, and that a crash strands little.
    """

    def __init__(self, concurrency: int, lease: timedelta) -> None:
        self._concurrency = concurrency
        self._ahead = min(PREFETCH_SECONDS, SHARE_OF_LEASE * lease.total_seconds())
        self._per_second = 0.0
        self._since = time.monotonic()
        self._started = 0

    def wanted(self, running: int, waiting: int) -> int:
        """Nothing while half of what is held in advance is left: claims go in batches."""
        if time.monotonic() - self._since > FORGET_SECONDS:
            self.started(0)
        prefetch = min(MAX_PREFETCHED, int(self._per_second * self._ahead))
        if waiting > prefetch // 2:
            return 0
        return max(0, self._concurrency - running) + prefetch - waiting

    def started(self, count: int) -> None:
        self._started += count
        elapsed = time.monotonic() - self._since
        if elapsed >= PREFETCH_SECONDS:
            before = self._per_second if elapsed < FORGET_SECONDS else 0.0
            self._per_second = (before + self._started / elapsed) / 2
            self._since += elapsed
            self._started = 0


class Cursor:
    """Where the last claim ended in each lane, so that the next need not walk over what it left behind."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, str]] = {}
        self._since = 0.0

    def current(self) -> str | None:
        """Dropped after a second: what was put in behind it is not seen before."""
        if self._ends and time.monotonic() - self._since > CURSOR_SECONDS:
            self._ends = {}
        return json.dumps(self._ends) if self._ends else None

    def advance(self, jobs: list[Job], *, short: bool) -> None:
        if short:
            self._ends = {}
            return
        if not self._ends:
            self._since = time.monotonic()
        for lane_id, last in {job.lane_id: job for job in jobs}.items():
            self._ends[str(lane_id)] = {"run_at": written(last.run_at), "task_id": last.task_id}
