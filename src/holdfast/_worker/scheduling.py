"""Scheduling: duties of the leader that fire schedules and prune the record of old firings.

The leader computes when a schedule is due, and the database decides: if another leader has changed the row
meanwhile, nothing happens. So any number of leaders may act at once.
"""

from datetime import timedelta

from holdfast._engine import schedules
from holdfast._engine.schedules import Decision, DueSchedule, Firing
from holdfast._telemetry.logs import Log
from holdfast._worker.leader import Execute
from holdfast._worker.recurrence import newest_times, recurrence_of
from holdfast.errors import RequestRefused

BATCH = 50
"""Below 64, up to which PostgreSQL keeps the subtransactions of a transaction in shared memory."""
PRUNE_BATCH = 1000
SHORTEST_PAUSE_SECONDS = 0.05
BUSY_PAUSE_SECONDS = 0.2
"""When the schedules that are due are all held by other sessions."""


class FireSchedules:
    """Sleeps until a schedule is due, but looks at least every interval: schedules and clocks change."""

    name = "fire_schedules"
    interval = 2.0

    def __init__(self, log: Log) -> None:
        self._log = log

    def run(self, execute: Execute) -> float | None:
        due = execute(schedules.due_schedules(BATCH))
        if due:
            for firing in execute(schedules.decide_schedules([_decision_on(one) for one in due])):
                self._log_firing(firing)
        if len(due) == BATCH:
            return 0.0
        wait = execute(schedules.next_firing())
        if wait is None:
            return None
        shortest = BUSY_PAUSE_SECONDS if due and wait <= timedelta(0) else SHORTEST_PAUSE_SECONDS
        return min(self.interval, max(shortest, wait.total_seconds()))

    def _log_firing(self, firing: Firing) -> None:
        fields = {"schedule": firing.name, "namespace": firing.namespace}
        if firing.nominal_at is None:
            self._log.error("schedule_failed", error=firing.problem, **fields)
            return
        fields["nominal_at"] = firing.nominal_at.isoformat()
        task_id = None if firing.task_id is None else str(firing.task_id)
        if firing.decision == "fired":
            self._log.debug("schedule_fired", task_id=task_id, **fields)
        else:
            self._log.warning("schedule_skipped", why=firing.decision, task_id=task_id, **fields)


def _decision_on(due: DueSchedule) -> Decision:
    """What follows from the times of a schedule. One that cannot be read is stored as a problem."""
    try:
        recurrence = recurrence_of(due.cron, due.tz, due.every, due.anchor)
    except RequestRefused as error:
        return Decision(due, (), None, str(error))
    if due.plan_from is not None or due.next_at is None:
        return Decision(due, (), recurrence.after(due.plan_from or due.now))
    times = newest_times(recurrence, due.next_at, due.now, due.max_times)
    return Decision(due, times, recurrence.after(due.now))


class PruneFirings:
    """Deletes the record of old firings."""

    name = "prune_firings"
    interval = 600.0

    def run(self, execute: Execute) -> float | None:
        return 0.0 if execute(schedules.prune_firings(PRUNE_BATCH)) == PRUNE_BATCH else None
