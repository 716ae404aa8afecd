"""Facts: the rows that `read_steps` returns about a run."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from holdfast.errors import HoldfastError, TooLarge

StepKind = Literal["step", "transaction", "sleep", "signal", "children", "first", "since"]


class FactRow(NamedTuple):
    """A row of `read_steps`. Documents are JSON text, times Unix seconds."""

    fact: str
    name: str | None
    number: int | None
    kind: str | None
    until: float | None
    signal_id: int | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class StepFact:
    """How a step ended. A sleep is recorded when it begins, and is over at `until`."""

    name: str
    kind: str
    until: float | None
    result: str | None
    error: Any


@dataclass(frozen=True, slots=True)
class FailedTry:
    """The last failed try of a step that has not ended."""

    number: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class Signal:
    """One that no wait has taken."""

    signal_id: int
    payload: str


def unreadable_row(error: HoldfastError) -> FactRow:
    """The only row of a run that the database refuses to read."""
    kind = "too_large" if isinstance(error, TooLarge) else "refused"
    return FactRow("unreadable", None, None, kind, None, None, None, str(error))
