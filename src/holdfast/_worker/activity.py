"""Reports to the database what this worker has run, for the charts. Nothing depends on it."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import activity
from holdfast._telemetry.logs import Log
from holdfast._worker.metrics import AttemptCounts, Metrics
from holdfast.errors import DatabaseUnavailable, HoldfastError

REPORT_SECONDS = 10.0
MAX_AT_ONCE = 500
ENDINGS = {
    "succeeded": ("succeeded",),
    "failed": ("failed", "dead_letter"),
    "cancelled": ("cancelled",),
    "retrying": ("retrying",),
}
"""What is reported, and the endings that count for it."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A copy of the counts of one type in one queue."""

    endings: tuple[int, ...] = (0,) * len(ENDINGS)
    run_seconds: float = 0.0
    delay_seconds: float = 0.0

    @classmethod
    def of(cls, attempts: AttemptCounts) -> "Counted":
        endings = tuple(sum(attempts.endings[one] for one in ending) for ending in ENDINGS.values())
        return cls(endings, attempts.run.total, attempts.delay.total)

    def report(self, before: "Counted", queue: str, type_: str) -> str:
        """What was counted since `before`, as JSON."""
        ended = zip(ENDINGS, self.endings, before.endings, strict=True)
        return json.dumps(
            {
                "queue": queue,
                "type": type_,
                **{ending: now - then for ending, now, then in ended},
                "run_seconds": max(0.0, self.run_seconds - before.run_seconds),
                "delay_seconds": max(0.0, self.delay_seconds - before.delay_seconds),
            }
        )


class ActivityReporter:
    """Sends what was counted since its last report, if there is anything, every ten seconds."""

    def __init__(self, connection: WorkerConnection, metrics: Metrics, log: Log) -> None:
        self._connection = connection
        self._metrics = metrics
        self._log = log
        self._reported: dict[tuple[str, str], Counted] = {}
        self._failing = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            await self.report()

    async def report(self) -> None:
        """A report that fails is sent again with the next one."""
        batch: dict[tuple[str, str], Counted] = {}
        try:
            for key, counted in self._changed():
                batch[key] = counted
                if len(batch) == MAX_AT_ONCE:
                    await self._send(batch)
                    batch = {}
            if batch:
                await self._send(batch)
        except HoldfastError as error:
            known = self._failing or isinstance(error, DatabaseUnavailable)  # an outage is logged as such
            write = self._log.debug if known else self._log.warning
            write("activity_not_reported", error=str(error))
            self._failing = True
        else:
            self._failing = False

    def _changed(self) -> Iterator[tuple[tuple[str, str], Counted]]:
        for key, attempts in list(self._metrics.attempts.items()):
            counted = Counted.of(attempts)
            if counted != self._reported.get(key, Counted()):
                yield key, counted

    async def _send(self, batch: dict[tuple[str, str], Counted]) -> None:
        reports = [counted.report(self._reported.get(key, Counted()), *key) for key, counted in batch.items()]
        await self._connection.run(partial(activity.record_activity, reports))
        self._reported.update(batch)
