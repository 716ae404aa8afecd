"""What `assert_enqueued` expects, and what it says when the assertion fails."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast._engine.tasks import TaskStatus
from holdfast._serialization.codec import explain
from holdfast._worker.handler import Handler
from holdfast.errors import HoldfastError, InvalidArgument

MAX_LISTED = 20


@dataclass(frozen=True)
class Expectation:
    """A type, optionally a queue and arguments. Arguments have the types that the handler declares."""

    type: str
    handler: Handler | None
    queue: str | None
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.handler is not None:
            typed = {name: _typed(self.handler, name, value) for name, value in self.arguments.items()}
            object.__setattr__(self, "arguments", typed)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.type}({given})" + (f" in queue {self.queue}" if self.queue else "")

    def matches(self, task: TaskStatus) -> bool:
        if task.type != self.type or self.queue not in (None, task.queue):
            return False
        found = self._arguments_of(task)
        return all(name in found and _equal(found[name], value) for name, value in self.arguments.items())

    def _arguments_of(self, task: TaskStatus) -> Mapping[str, Any]:
        if self.handler is None:
            return task.payload if isinstance(task.payload, dict) else {}
        fields = self.handler.arguments.fields.items()
        defaults = {name: field.default for name, field in fields if not field.required}
        try:
            return defaults | self.handler.arguments.decode(json.dumps(task.payload))
        except HoldfastError:
            return {}


def explain_count(
    expected: Expectation, found: int, wanted: str, waiting: Sequence[TaskStatus], ended: int = 0
) -> str:
    """The message of a failed assertion."""
    amount = {0: "no task", 1: "1 task"}.get(found, f"{found} tasks")
    verb = "wait" if found > 1 else "waits"
    past = f"{ended} such task has" if ended == 1 else f"{ended} such tasks have"
    over = f"; {past} already ended" if ended else ""
    return f"{amount} {expected} {verb}, expected {wanted}{over}. {_listed(waiting)}"


def _typed(handler: Handler, name: str, value: Any) -> Any:
    field = handler.arguments.fields.get(name)
    if field is None:
        if handler.arguments.takes_others:
            return value
        known = ", ".join(handler.arguments.names) or "none"
        raise InvalidArgument(f"{handler.type} has no argument {name}", hint=f"Its arguments are: {known}.")
    try:
        return TypeAdapter(field.annotation).validate_python(value)
    except ValidationError as error:
        raise InvalidArgument(f"{handler.type}: {name} can never be {value!r}: {explain(error)}") from None


def _equal(found: Any, expected: Any) -> bool:
    """Equal as they are, or as JSON, where a tuple is a list."""
    if found == expected:
        return True
    try:
        return bool(to_jsonable_python(found) == to_jsonable_python(expected))
    except PydanticSerializationError:
        return False


def _listed(tasks: Sequence[TaskStatus]) -> str:
    if not tasks:
        return "No task waits."
    lines = [f"  {_line(task)}" for task in tasks[:MAX_LISTED]]
    if len(tasks) > MAX_LISTED:
        lines.append(f"  and {len(tasks) - MAX_LISTED} more")
    return "\n".join(["Waiting tasks:", *lines])


def _line(task: TaskStatus) -> str:
    payload = json.dumps(task.payload, ensure_ascii=False)
    return f"{task.type} {payload} in queue {task.queue}, {task.status}, due {task.run_at.isoformat()}"
