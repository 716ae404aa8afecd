"""Retention: how long data is kept, and pruning."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from holdfast.engine.statement import (
    Bound,
    Statement,
    boolean,
    call,
    columns_of,
    integer,
    many,
    nothing,
    only,
    scalar,
    text,
    uuid,
)

Prunable = Literal["succeeded", "failed", "dead_letter", "cancelled", "deleted", "history", "messages"]
"""What retention has policies for: how a task ended, or that it was deleted; and what else is remembered."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long tasks are kept that ended so, or were deleted, and whose types begin so. None is for ever."""

    status: Prunable
    type_prefix: str
    keep: timedelta | None
    changed_at: datetime | None
    changed_by: str | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many were removed of how many that were looked at, and past which task to go on."""

    pruned: int
    examined: int
    next: UUID | None


def set_retention(
    status: Prunable, keep: timedelta | None, type_prefix: str | None = None
) -> Statement[None]:
    """None keeps for ever."""
    arguments = {
        "status": text(status),
        "keep": Bound("interval", keep),
        "type_prefix": text(type_prefix),
    }
    return call("queues.set_retention", nothing, arguments)


def drop_retention(status: Prunable, type_prefix: str | None = None) -> Statement[bool]:
    """Answers whether there was such a policy."""
    arguments = {"status": text(status), "type_prefix": text(type_prefix)}
    return call("queues.drop_retention", scalar, arguments)


def retention_policies() -> Statement[list[RetentionPolicy]]:
    sql = (
        f"select {columns_of(RetentionPolicy)} from queues.retention_policy answer"  # noqa: S608 - our names only
        " order by answer.status, answer.type_prefix"
    )
    return Statement(sql, (), many(RetentionPolicy))


def prune(
    status: Prunable,
    max_tasks: int | None = None,
    past: UUID | None = None,
    *,
    dry_run: bool = False,
) -> Statement[Pruned]:
    """Remove what the policy no longer keeps, oldest first. Call it again with `next` until that is None."""
    arguments = {
        "status": text(status),
        "max_tasks": integer(max_tasks),
        "past": uuid(past),
        "dry_run": boolean(dry_run),
    }
    return call("queues.prune", only(Pruned), arguments, columns_of(Pruned))
