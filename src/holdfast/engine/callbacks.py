"""Links by which a person answers a waiting run."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from holdfast.engine.statement import Rows, Statement, call, first, integer, scalar, select, text, uuid

CallbackAnswer = Literal["kept", "answered", "expired", "ended", "unknown"]


@dataclass(frozen=True, slots=True)
class Callback:
    """What a link asks, and whether it may still be answered: open, answered, expired or ended."""

    signal: str
    question: str
    labels: list[str]
    state: str


def read_callback(task_id: UUID, link: str) -> Statement[Callback | None]:
    return call("queues.read_callback", first(Callback), {"task_id": uuid(task_id), "link": text(link)})


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


def answer_callback(task_id: UUID, link: str, choice: int) -> Statement[CallbackAnswer]:
    """Send the signal of a choice, counted from 1."""
    arguments = {"task_id": uuid(task_id), "link": text(link), "choice": integer(choice)}
    return call("queues.answer_callback", scalar, arguments)
