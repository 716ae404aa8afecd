"""What is shown without its values: which shape documents have, and which kind errors are, not what they say.

The text of an error often quotes what it failed on. So it counts as a value, like the payload.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.engine.health import HealthLine
from holdfast.engine.tasks import TaskError, TaskEvent, TaskStatus

MAX_MEMBERS = 200
MAX_LEVELS = 8
LAST_ERROR = "Latest error: "  # as queues.health puts it


def hide(value: Any, level: int = 0) -> Any:
    """Names and sizes stay, values go."""
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
        error=_hide_texts(task.error, "message", "detail"),
        last_error=kind_of(task),
        reason=task.reason if task.status == "cancelled" else hide(task.reason),
    )


def kind_of(task: TaskStatus) -> str | None:
    """What is shown of the last error."""
    return str(task.error.get("kind")) if isinstance(task.error, Mapping) else None


def hide_why(why: str, task: TaskStatus) -> str:
    """The sentence of queues.explain without the text of the error, after a colon or in brackets."""
    for text in (task.last_error, None if task.status == "cancelled" else task.reason):
        for before, after in ((": ", ". Retry"), (" (", ");"), ("", "")):
            if text and f"{before}{text}{after}" in why:
                return why.replace(f"{before}{text}{after}", f"{before}{hide(text)}{after}")
    return why


def hide_event(event: TaskEvent) -> TaskEvent:
    """Why a person acted stays; why an attempt went wrong goes."""
    is_decision = event.actor is not None or event.event_type == "cancelled"
    reason = event.reason if is_decision else hide(event.reason)
    return replace(event, reason=reason, data=_hide_texts(event.data, "reason"))


def hide_error(error: TaskError) -> TaskError:
    return replace(error, message=hide(error.message), detail=hide(error.detail))


def hide_line(line: HealthLine) -> HealthLine:
    before, found, text = line.message.partition(LAST_ERROR)
    return replace(line, message=f"{before}{found}{hide(text)}") if found else line


def _hide_texts(document: Any, *names: str) -> Any:
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
