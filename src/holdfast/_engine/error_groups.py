"""Groups of errors of one type that differ only in numbers, ids and quoted values."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast._engine.statement import Statement, sql_function


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """How often an error occurred since a time, and an example."""

    error_group: str
    type: str
    kind: str
    exception: str | None
    title: str
    errors: int
    ended: int
    type_errors: int
    first_seen: datetime
    last_seen: datetime
    example_id: UUID
    trend: list[int]
    step: str | None
    """That failed last with it, if tries of steps failed."""
    counted_since: datetime | None
    """When the oldest of the errors that were counted occurred, if there were too many to count all."""


@sql_function("queues.list_error_groups")
def list_error_groups(
    since: datetime | None = None,
    type_prefix: str | None = None,
    max_groups: int | None = None,
) -> Statement[list[ErrorGroup]]:
    """Returns the most frequent first."""
