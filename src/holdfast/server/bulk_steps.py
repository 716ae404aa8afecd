"""Actions on all tasks that match, in bounded steps: the API and the dashboard share them.

A step finds its tasks as a search, and acts on them in a transaction of its own: a search that takes long
holds none of the connections for actions.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from holdfast._engine.task_actions import (
    MAX_ACTED,
    MAX_COUNTED,
    ActedTask,
    Action,
    act_on_tasks,
    statuses_for,
)
from holdfast._engine.tasks import STATUSES, Status, TaskFilter, find_tasks
from holdfast.server.access import Caller
from holdfast.server.problem import Problem
from holdfast.server.site import Site

COUNT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """What to do with all tasks that match, or with the named ones."""

    action: Action
    matching: TaskFilter
    task_ids: Sequence[UUID] = ()
    reason: str | None = None
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The tasks that a step has examined, and where the next one begins."""

    acted: list[ActedTask]
    next: str | None

    @property
    def changed(self) -> int:
        return sum(one.changed for one in self.acted)


async def take_step(
    site: Site, caller: Caller, request: BulkRequest, cursor: str | None = None, limit: int = MAX_ACTED
) -> Step:
    """Act on at most `limit` tasks. A step may change none although others follow."""
    return await _step(site, caller, request, cursor, limit, dry_run=False)


async def count_matching(site: Site, caller: Caller, request: BulkRequest) -> tuple[int, bool]:
    """How many tasks the action would change, and whether there may be more than were examined.

    Each step examines a bounded number of tasks, but a filter that matches little takes many steps: it takes
    no more of them when COUNT_SECONDS have passed.
    """
    changed, examined, cursor = 0, 0, None
    end = time.monotonic() + COUNT_SECONDS
    while True:
        step = await _step(site, caller, request, cursor, MAX_COUNTED, dry_run=True)
        changed, examined, cursor = changed + step.changed, examined + len(step.acted), step.next
        if cursor is None or examined >= MAX_COUNTED or time.monotonic() >= end:
            return changed, cursor is not None


async def _step(
    site: Site, caller: Caller, request: BulkRequest, cursor: str | None, limit: int, *, dry_run: bool
) -> Step:
    if request.task_ids:
        return Step(await _act(site, caller, request, request.task_ids, dry_run=dry_run), None)
    statuses = statuses_for(request.action, _status(request.matching.status))
    if not statuses:
        return Step([], None)
    status, before = (statuses[0], None) if cursor is None else _read_cursor(cursor, statuses)
    found = await site.search(find_tasks(replace(request.matching, status=status), before, limit))
    acted = await _act(site, caller, request, found.task_ids[:limit], dry_run=dry_run)
    if found.next is not None:
        return Step(acted, f"{status or 'all'}.{found.next}")
    position = statuses.index(status) + 1
    return Step(acted, f"{statuses[position]}." if position < len(statuses) else None)


async def _act(
    site: Site, caller: Caller, request: BulkRequest, task_ids: Sequence[UUID], *, dry_run: bool
) -> list[ActedTask]:
    if not task_ids:
        return []
    act = act_on_tasks(request.action, task_ids, request.reason, request.run_at, dry_run=dry_run)
    return await site.operate(caller, act, repeatable=dry_run)


def _status(given: str | None) -> Status | None:
    return next((status for status in STATUSES if status == given), None)


def _read_cursor(given: str, statuses: Sequence[Status | None]) -> tuple[Status | None, UUID | None]:
    name, _, before = given.partition(".")
    status = None if name == "all" else _status(name)
    try:
        return statuses[statuses.index(status)], UUID(before) if before else None
    except ValueError:
        raise Problem(422, "cursor: it is not one that this endpoint has returned") from None
