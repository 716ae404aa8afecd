"""Actions on many tasks at once, and how many tasks have each status."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from holdfast._engine.statement import Statement, call, many, sql_function, text, timestamptz
from holdfast._engine.tasks import Status, TaskFilter, search_arguments

Action = Literal["cancel", "retry", "delete", "restore", "reschedule"]
ACTIONS: tuple[Action, ...] = get_args(Action)

PAST = {
    "cancel": "cancelled",
    "retry": "retried",
    "delete": "deleted",
    "restore": "restored",
    "reschedule": "rescheduled",
}
WAITING: tuple[Status, ...] = ("scheduled", "suspended", "pending", "retrying")
# In the order in which a task passes through them, so that one that moves on is still found.
APPLIES_TO: dict[Action, tuple[Status, ...]] = {
    "cancel": (*WAITING, "claimed", "running"),
    "retry": ("failed", "dead_letter", "cancelled"),
    "reschedule": WAITING,
}
"""The statuses from which an action is possible; without an entry, all of them."""
# Cancelled tasks are retried only on request: somebody decided that they should not run.
RETRIED_BY_DEFAULT: tuple[Status, ...] = ("failed", "dead_letter")

MAX_ACTED = 50
MAX_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class ActedTask:
    """What became of a task. If it was not changed, `problem` says why."""

    task_id: UUID
    changed: bool
    status: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class StatusCount:
    """How many tasks have this status; there may be older ones that were not examined."""

    status: Status
    tasks: int
    more: bool


@sql_function("queues.act_on_tasks")
def act_on_tasks(
    act: Action,
    task_ids: Sequence[UUID],
    reason: str | None = None,
    run_at: datetime | None = None,
    *,
    dry_run: bool = False,
) -> Statement[list[ActedTask]]:
    """Act on at most MAX_ACTED tasks; a dry run examines at most MAX_COUNTED and changes nothing."""


def statuses_for(act: Action, status: Status | None) -> tuple[Status | None, ...]:
    """The statuses to search for tasks to act on. None means all."""
    if status is not None:
        return (status,) if status in APPLIES_TO.get(act, (status,)) else ()
    if act == "retry":
        return RETRIED_BY_DEFAULT
    return APPLIES_TO.get(act, (None,))


def count_tasks(matching: TaskFilter) -> Statement[list[StatusCount]]:
    """The status of the filter is ignored."""
    arguments = {
        "queue": text(matching.queue),
        "type_prefix": text(matching.type_prefix),
        "since": timestamptz(matching.since),
        **search_arguments(matching),
    }
    return call("queues.count_tasks", many(StatusCount), arguments)
