"""How a task stands to others: after them, unique among them, or debounced."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from holdfast.engine import Statement
from holdfast.engine.enqueue import Enqueued, NewTask, Unique, When, enqueue_after, enqueue_unique
from holdfast.errors import InvalidArgument
from holdfast.handle import Handle
from holdfast.options import Options, check_duration


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a task stands to others: after them, or unique among them. Each needs a statement of its own."""

    after: tuple[UUID, ...] | None = None
    when: When = "succeeded"
    unique: Unique | None = None
    debounce: timedelta | None = None
    debounce_max: timedelta | None = None

    @classmethod
    def of(cls, given: Options) -> "Arrangement":
        after, unique, debounce = given.get("after"), given.get("unique"), given.get("debounce")
        most, when = given.get("debounce_max"), given.get("when")
        if not any(option is not None for option in (after, unique, debounce, most, when)):
            return PLAIN
        if after is not None and (unique is not None or debounce is not None):
            raise InvalidArgument("a task that comes after others cannot be unique or debounced")
        if when is not None and after is None:
            raise InvalidArgument("when needs after=[…]")
        if (unique is not None or debounce is not None) and given.get("key") is None:
            raise InvalidArgument(
                "a unique or debounced task needs a key", hint='using(key="…", unique="waiting")'
            )
        if debounce is not None and (given.get("delay") is not None or given.get("run_at") is not None):
            raise InvalidArgument("a debounced task has no delay or run_at of its own")
        return cls(
            None if after is None else _ids_of(after),
            when or "succeeded",
            unique,
            None if debounce is None else check_duration("debounce", debounce),
            None if most is None else check_duration("debounce_max", most),
        )

    def statement(self, task: NewTask) -> Statement[Enqueued] | None:
        """What enqueues the task; None if it is a plain one."""
        if self.after is not None:
            many = enqueue_after([task], self.after, self.when)
            return Statement(many.sql, many.params, lambda rows: many.decode(rows)[0])
        if self.unique is not None or self.debounce is not None or self.debounce_max is not None:
            return enqueue_unique(task, self.unique, self.debounce, self.debounce_max)
        return None


PLAIN = Arrangement()


def _ids_of(after: Sequence[Any]) -> tuple[UUID, ...]:
    for given in after:
        if not isinstance(given, Handle):
            raise InvalidArgument(f"after takes handles of tasks, not {given!r}")
    return tuple(dict.fromkeys(handle.task_id for handle in after))


def refuse_arranged(arrangement: Arrangement) -> None:
    """Of a task in a batch."""
    if arrangement is not PLAIN:
        raise InvalidArgument(
            "after, unique and debounce are options of single tasks, not of batches",
            hint="Call enqueue for each, in one transaction; or enqueue_many(…, then=…).",
        )
