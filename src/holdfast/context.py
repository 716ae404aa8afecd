"""The context of a handler: what it can read and do besides its arguments."""

import json
import math
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

import structlog

from holdfast.serialization.text import storable


class Stopped(BaseException):
    """Raised by `Context.check` when the task was cancelled, deleted or lost. Do not catch it.

    Not an Exception, so that `except Exception` in a handler does not catch it by mistake.
    """


class Held(Protocol):
    """The task of a context."""

    task_id: str
    type: str
    attempt: int
    max_attempts: int
    metadata: str | None
    progress: dict[str, Any] | None

    @property
    def stop(self) -> str | None:
        """Why the handler should end, or None."""


class Context:
    """The first argument of a handler whose first parameter is annotated with `Context`, or named `ctx`."""

    __slots__ = ("_held", "_open_transaction", "_tell")

    def __init__(self, held: Held, tell: Callable[[], None], open_transaction: Callable[[], Any]) -> None:
        self._held = held
        self._tell = tell
        self._open_transaction = open_transaction

    @property
    def task_id(self) -> UUID:
        return UUID(self._held.task_id)

    @property
    def type(self) -> str:
        return self._held.type

    @property
    def attempt(self) -> int:
        """The number of this attempt; the first is 1."""
        return self._held.attempt

    @property
    def max_attempts(self) -> int:
        return self._held.max_attempts

    @property
    def metadata(self) -> dict[str, Any]:
        return {} if self._held.metadata is None else dict(json.loads(self._held.metadata))

    @property
    def log(self) -> Any:
        """A structured logger. Every line has the id, type and attempt of the task."""
        return structlog.get_logger("holdfast.task").bind(
            task_id=self._held.task_id, type=self._held.type, attempt=self._held.attempt
        )

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress, for `handle.info()` and `holdfast show`. Cheap: only the latest report is sent."""
        self._held.progress = {
            "done": _number(done),
            "total": None if total is None else _number(total),
            "note": None if note is None else storable(str(note)[:500]),
        }
        self._tell()

    def cancelled(self) -> bool:
        """Whether the task was cancelled, deleted or lost since the handler started."""
        return self._held.stop is not None

    def check(self) -> None:
        """End the handler here if the task was cancelled, deleted or lost."""
        if self._held.stop is not None:
            raise Stopped(self._held.stop)

    def transaction(self) -> Any:
        """A connection whose commit also records the outcome: with `async with` in async handlers.

        What the handler writes through it is committed together with the outcome when the handler has
        returned. If the lease was lost by then, or the handler raises, both are rolled back.
        """
        return self._open_transaction()


def _number(given: float) -> float | None:
    """As JSON can represent it: an invalid number would make the heartbeat of all tasks fail."""
    try:
        number = float(given)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
