"""Hides values in responses: documents keep names and sizes, errors keep their kind.

The message of an error often quotes the data it failed on, so it counts as a value, like the payload.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.engine.health import HealthLine
from holdfast.engine.processes import HistoryStep, ProcessStatus
from holdfast.engine.schedules import ScheduleStatus
from holdfast.engine.steps import TimelineEntry
from holdfast.engine.tasks import TaskError, TaskEvent, TaskStatus
from holdfast.http.problem import Problem
from holdfast.processes.instance import Instance, SupervisorRun

R = TypeVar("R", HistoryStep, SupervisorRun)

MAX_MEMBERS = 200
MAX_LEVELS = 8
_SHOWN_OPTIONS = ("type", "queue", "priority", "max_attempts", "timeout", "lease", "executor", "delay")
LAST_ERROR = "Latest error: "  # the wording of queues.health


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
        reason=task.reason if task.status == "cancelled" else hide(task.reason),
    )


def kind_of(task: TaskStatus) -> str | None:
    """The kind of the last error."""
    return str(task.error.get("kind")) if isinstance(task.error, Mapping) else None


def hide_why(why: str, task: TaskStatus) -> str:
    """The sentence of queues.explain without the error message, which follows a colon or is in brackets."""
    for text in (task.last_error, None if task.status == "cancelled" else task.reason):
        for before, after in ((": ", ". Retry"), (" (", ");"), ("", "")):
            if text and f"{before}{text}{after}" in why:
                return why.replace(f"{before}{text}{after}", f"{before}{hide(text)}{after}")
    return why


def hide_event(event: TaskEvent) -> TaskEvent:
    """Keeps the reason of an action; hides the error of an attempt."""
    is_decision = event.actor is not None or event.event_type == "cancelled"
    reason = event.reason if is_decision else hide(event.reason)
    return replace(event, reason=reason, data=_hide_members(event.data, "reason"))


def hide_error(error: TaskError) -> TaskError:
    return replace(error, message=hide(error.message), detail=hide(error.detail))


def hide_entry(entry: TimelineEntry) -> TimelineEntry:
    """Hides the errors of steps, tries and attempts; what was decided or is waited for stays."""
    keeps = entry.actor is not None or entry.happened in ("waits", "child", "cancelled")
    return entry if keeps or entry.reason is None else replace(entry, reason=hide(entry.reason))


def hide_schedule(schedule: ScheduleStatus) -> ScheduleStatus:
    """Of the task that it enqueues, only the options in _SHOWN_OPTIONS keep their values."""
    hidden = [name for name in schedule.task or () if name not in _SHOWN_OPTIONS]
    return replace(schedule, task=_hide_members(schedule.task, *hidden))


def hide_process(process: ProcessStatus) -> ProcessStatus:
    """The reason of a decision may quote an error; that of a person who cancelled it is kept."""
    return process if process.decision == "cancelled" else replace(process, reason=hide(process.reason))


def hide_instance(instance: Instance) -> Instance:
    """Hides what its facts quote: input, results and errors."""
    return replace(
        instance,
        status=instance.status and hide_process(instance.status),
        timeline=[_hide_step(step) for step in instance.timeline],
        runs=[run if run.decision == "cancelled" else _hide_reason(run) for run in instance.runs],
    )


def _hide_step(step: HistoryStep) -> HistoryStep:
    kept = step.what.startswith(("nudged by ", "no supervisor", "next: ")) or step.what.endswith(
        ": cancelled"
    )
    return step if kept else _hide_reason(step)


def _hide_reason(given: R) -> R:
    return replace(given, reason=hide(given.reason))


def hide_line(line: HealthLine) -> HealthLine:
    before, found, text = line.message.partition(LAST_ERROR)
    return replace(line, message=f"{before}{found}{hide(text)}") if found else line


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
