"""Links by which a person answers a waiting run."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from holdfast._engine.statement import Rows, Statement, select, sql_function

CallbackAnswer = Literal["kept", "answered", "expired", "ended", "unknown"]


@dataclass(frozen=True, slots=True)
class Callback:
    """What a link asks, and whether it may still be answered: open, answered, expired or ended."""

    signal: str
    question: str
    labels: list[str]
    state: str


@sql_function("queues.read_callback")
def read_callback(task_id: UUID, link: str) -> Statement[Callback | None]:
    """What a link asks; None if there is no such link."""


def expiry_of(task_id: UUID, link: str) -> Statement[datetime | None]:
    """When the link can no longer be answered."""
    rows = Rows(
        "to_timestamp((answer.result->>'expires_at')::double precision)",
        lambda found: found[0][0] if found else None,
    )
    rest = (
        "where answer.task_id = $1 and starts_with(answer.name, 'callback[') and answer.result->>'link' = $2"
    )
    return select(rows, "queues.step_status", rest, (task_id, link))


@sql_function("queues.answer_callback")
def answer_callback(task_id: UUID, link: str, choice: int) -> Statement[CallbackAnswer]:
    """Send the signal of a choice, counted from 1."""
