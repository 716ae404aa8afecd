"""Scheduling: duties of the leader that fire schedules and prune the record of old firings.

The leader computes when a schedule is due, and the database decides: if another leader has changed the row
meanwhile, nothing happens. So any number of leaders may act at once.
"""

from datetime import datetime

from holdfast.engine import schedules
from holdfast.engine.schedules import DueSchedule, Firing
from holdfast.errors import Refused, UnexpectedDatabaseError
from holdfast.logs import Log
from holdfast.recurrence import newest_times, recurrence_of
from holdfast.worker.leader import Execute

BATCH = 20
PRUNE_BATCH = 1000
SHORTEST_PAUSE_SECONDS = 0.05


class FireSchedules:
    """Sleeps until a schedule is due, but looks at least every interval: schedules and clocks change."""

    name = "fire_schedules"
    interval = 2.0

    def __init__(self, log: Log) -> None:
        self._log = log

    def run(self, execute: Execute) -> float | None:
        due = execute(schedules.due_schedules(BATCH))
        for one in due:
            self._decide(one, execute)
        if len(due) == BATCH:
            return 0.0
        wait = execute(schedules.next_firing())
        if wait is None:
            return None
        return min(self.interval, max(SHORTEST_PAUSE_SECONDS, wait.total_seconds()))

    def _decide(self, due: DueSchedule, execute: Execute) -> None:
        try:
            recurrence = recurrence_of(due.cron, due.tz, due.every, due.anchor)
        except Refused as error:
            self._give_up(due, execute, error, None)
            return
        if due.plan_from is not None or due.next_at is None:
            execute(schedules.plan_schedule(due, recurrence.after(due.plan_from or due.now)))
            return
        times = newest_times(recurrence, due.next_at, due.now, due.max_times)
        following = recurrence.after(due.now)
        try:
            firings = execute(schedules.fire_schedule(due, times, following))
        except (Refused, UnexpectedDatabaseError) as error:
            self._give_up(due, execute, error, following)
        else:
            self._log_firings(due, firings)

    def _give_up(
        self, due: DueSchedule, execute: Execute, error: Exception, following: datetime | None
    ) -> None:
        """Store the error with the schedule. The other schedules go on firing."""
        self._log.error("schedule_failed", schedule=due.name, namespace=due.namespace, error=str(error))
        execute(schedules.plan_schedule(due, following, str(error)))

    def _log_firings(self, due: DueSchedule, firings: list[Firing]) -> None:
        for firing in firings:
            task_id = None if firing.task_id is None else str(firing.task_id)
            fields = {
                "schedule": due.name,
                "namespace": due.namespace,
                "nominal_at": firing.nominal_at.isoformat(),
                "task_id": task_id,
            }
            if firing.decision == "fired":
                self._log.debug("schedule_fired", **fields)
            else:
                self._log.warning("schedule_skipped", why=firing.decision, **fields)


class PruneFirings:
    """Deletes the record of old firings."""

    name = "prune_firings"
    interval = 600.0

    def run(self, execute: Execute) -> float | None:
        return 0.0 if execute(schedules.prune_firings(PRUNE_BATCH)) == PRUNE_BATCH else None
