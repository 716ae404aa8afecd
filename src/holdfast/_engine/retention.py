"""Retention: how long data is kept, and pruning."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from holdfast._engine.statement import Bound, Statement, call, many, nothing, select, sql_function, text

Prunable = Literal[
    "succeeded", "failed", "dead_letter", "cancelled", "deleted", "history", "messages", "steps"
]
"""Tasks by how they ended or that they were deleted; the history; messages; and what runs remember."""
OLDEST = UUID(int=0)
"""Comes before every task."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long tasks of this status and type prefix are kept. None means forever."""

    status: Prunable
    type_prefix: str
    keep: timedelta | None
    changed_at: datetime | None
    changed_by: str | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many were removed, how many were examined, and after which task to continue."""

    pruned: int
    examined: int
    next: UUID | None


def set_retention(
    status: Prunable, keep: timedelta | None, type_prefix: str | None = None
) -> Statement[None]:
    """Set how long to keep. None means forever."""
    arguments = {
        "status": text(status),
        "keep": Bound("interval", keep),
        "type_prefix": text(type_prefix),
    }
    return call("queues.set_retention", nothing, arguments)


@sql_function("queues.drop_retention")
def drop_retention(status: Prunable, type_prefix: str | None = None) -> Statement[bool]:
    """Returns true if there was such a policy."""


def retention_policies() -> Statement[list[RetentionPolicy]]:
    rest = "order by answer.status, answer.type_prefix"
    return select(many(RetentionPolicy), "queues.retention_policy", rest)


@sql_function("queues.prune")
def prune(
    status: Prunable,
    max_tasks: int | None = None,
    past: UUID | None = None,
    *,
    dry_run: bool = False,
) -> Statement[Pruned]:
    """Remove what the policies no longer keep, oldest first, and return where to continue.

    Without `past`, it goes on where the last such call stopped, and passes over what those before have kept.
    """
