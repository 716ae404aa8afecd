"""Hides values in responses: documents keep names and sizes, errors keep their kind.

The message of an error often quotes the data it failed on, so it counts as a value, like the payload. So does
the reason that a handler gives, and the note of its progress. Each of them is a column of its own.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from holdfast._engine.deliveries import Delivery
from holdfast._engine.events import OutboxStatus
from holdfast._engine.health import HealthLine
from holdfast._engine.processes import HistoryStep, ProcessStatus
from holdfast._engine.schedules import ScheduleStatus
from holdfast._engine.steps import TimelineEntry
from holdfast._engine.tasks import Explanation, TaskError, TaskEvent, TaskSnapshot, TaskStatus
from holdfast._serialization.text import load_json
from holdfast.processes.instance import EngineStep, Instance, SupervisorRun
from holdfast.server.problem import Problem

R = TypeVar("R", HistoryStep, SupervisorRun, ProcessStatus)

MAX_MEMBERS = 200
MAX_LEVELS = 8
_SHOWN_OPTIONS = ("type", "queue", "priority", "max_attempts", "timeout", "lease", "executor", "delay")
_SHOWN_PROGRESS = ("done", "total")


def hide(value: Any, level: int = 0) -> Any:
    """Replaces values; names and sizes stay."""
    if isinstance(value, dict | list) and level >= MAX_LEVELS:
        return "(hidden)"
    if isinstance(value, dict):
        shown = {str(name): hide(member, level + 1) for name, member in list(value.items())[:MAX_MEMBERS]}
        return shown if len(value) <= MAX_MEMBERS else shown | {"…": f"{len(value)} members in all"}
    if isinstance(value, list):
        first = [hide(member, level + 1) for member in value[:1]]
        return first if len(value) <= 1 else [*first, f"… {len(value)} elements in all"]
    return None if value is None else f"(hidden: {_kind(value)})"


def hide_task(task: TaskStatus) -> TaskStatus:
    return replace(
        task,
        payload=hide(task.payload),
        metadata=hide(task.metadata),
        result=hide(task.result),
        error=_hide_members(task.error, "message", "detail"),
        last_error=kind_of(task),
        reason=task.reason if task.cancelled_by is not None else hide(task.reason),
        progress=hide_progress(task.progress),
    )


def kind_of(task: TaskStatus) -> str | None:
    """The kind of the last error."""
    return str(task.error.get("kind")) if isinstance(task.error, Mapping) else None


def hide_progress(progress: Any) -> Any:
    """Keeps how far the task has come, if that is a number."""
    if not isinstance(progress, Mapping):
        return hide(progress)
    return {
        str(name): value if name in _SHOWN_PROGRESS and isinstance(value, int | float) else hide(value)
        for name, value in progress.items()
    }


def hide_snapshot(task: TaskSnapshot) -> TaskSnapshot:
    """What a wait shows. Its documents are text."""
    return replace(
        task,
        progress_json=_hide_text(task.progress_json, hide_progress),
        result_json=_hide_text(task.result_json, hide),
    )


def _hide_text(written: str | None, hide_document: Callable[[Any], Any]) -> str | None:
    return None if written is None else json.dumps(hide_document(load_json(written)))


def hide_why(explanation: Explanation) -> Explanation:
    return Explanation([replace(reason, error=hide(reason.error)) for reason in explanation.reasons])


def hide_event(event: TaskEvent) -> TaskEvent:
    """Keeps the reason of a person; hides that of a handler, and the error of an attempt."""
    reason = event.reason if event.actor is not None else hide(event.reason)
    return replace(event, reason=reason, data=_hide_members(event.data, "reason"))


def hide_error(error: TaskError) -> TaskError:
    return replace(error, message=hide(error.message), detail=hide(error.detail))


def hide_entry(entry: TimelineEntry) -> TimelineEntry:
    """Hides the errors of steps, tries and attempts; what a person decided and what is waited for stays."""
    keeps = entry.actor is not None or entry.happened in ("waits", "child")
    return entry if keeps or entry.reason is None else replace(entry, reason=hide(entry.reason))


def hide_schedule(schedule: ScheduleStatus) -> ScheduleStatus:
    """Of the task that it enqueues, only the options in _SHOWN_OPTIONS keep their values."""
    hidden = [name for name in schedule.task or () if name not in _SHOWN_OPTIONS]
    return replace(schedule, task=_hide_members(schedule.task, *hidden), problem=hide(schedule.problem))


def hide_subscription(subscription: OutboxStatus) -> OutboxStatus:
    return replace(subscription, last_error=hide(subscription.last_error), problem=hide(subscription.problem))


def hide_delivery(delivery: Delivery) -> Delivery:
    """A receiver may answer with what it was sent."""
    return replace(delivery, last_error=hide(delivery.last_error))


def hide_process(process: ProcessStatus) -> ProcessStatus:
    """The reason of a decision may quote facts; that of a person who cancelled it is kept."""
    return process if process.decision == "cancelled" else _hide_reason(process)


def hide_instance(instance: Instance) -> Instance:
    """Hides what its facts quote: input, results and errors."""
    status = instance.status
    kept = status.reason if status is not None and status.decision == "cancelled" else None
    return replace(
        instance,
        status=status and hide_process(status),
        timeline=[_hide_step(step, kept) for step in instance.timeline],
        runs=[run if kept is not None and run.reason == kept else _hide_reason(run) for run in instance.runs],
    )


def _hide_step(step: HistoryStep, kept: str | None) -> HistoryStep:
    is_kept = isinstance(step, EngineStep) or (kept is not None and step.reason == kept)
    return step if is_kept else _hide_reason(step)


def _hide_reason(given: R) -> R:
    return replace(given, reason=hide(given.reason))


def hide_line(line: HealthLine) -> HealthLine:
    return replace(line, error=hide(line.error))


def values_hidden() -> Problem:
    """For a search in values: what is found would tell them."""
    return Problem(403, "this server hides values, so they cannot be searched", code="values_hidden")


def _hide_members(document: Any, *names: str) -> Any:
    if not isinstance(document, Mapping):
        return document
    return {name: hide(value) if name in names else value for name, value in document.items()}


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return f"text of {len(value)} characters"
    return "number"
