"""Groups of errors of one type that differ only in numbers, ids and quoted values."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast.engine.statement import Statement, call, integer, many, scalar, text, timestamptz


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


def count_errors(max_errors: int | None = None) -> Statement[int]:
    """Count new errors in their groups. Returns how many were examined."""
    return call("queues.count_errors", scalar, {"max_errors": integer(max_errors)})


def list_error_groups(
    since: datetime | None = None,
    type_prefix: str | None = None,
    only_group: str | None = None,
    max_groups: int | None = None,
) -> Statement[list[ErrorGroup]]:
    """Returns the most frequent first. Errors are counted some seconds after they occur."""
    arguments = {
        "since": timestamptz(since),
        "type_prefix": text(type_prefix),
        "only_group": text(only_group),
        "max_groups": integer(max_groups),
    }
    return call("queues.list_error_groups", many(ErrorGroup), arguments)
