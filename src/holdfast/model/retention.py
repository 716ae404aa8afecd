"""Retention: what is kept for how long."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

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
