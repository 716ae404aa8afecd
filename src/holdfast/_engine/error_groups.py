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


@sql_function("queues.count_errors")
def count_errors(max_errors: int | None = None) -> Statement[int]:
    """Count new errors in their groups. Returns how many were examined."""


@sql_function("queues.list_error_groups")
def list_error_groups(
    since: datetime | None = None,
    type_prefix: str | None = None,
    only_group: str | None = None,
    max_groups: int | None = None,
) -> Statement[list[ErrorGroup]]:
    """Returns the most frequent first. Errors are counted some seconds after they occur."""
