"""Links by which a person answers a waiting run."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from holdfast.engine.statement import Statement, call, first, integer, scalar, text, uuid

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


def answer_callback(task_id: UUID, link: str, choice: int) -> Statement[CallbackAnswer]:
    """Send the signal of a choice, counted from 1."""
    arguments = {"task_id": uuid(task_id), "link": text(link), "choice": integer(choice)}
    return call("queues.answer_callback", scalar, arguments)
