"""Chores: what the engine has left to do after a commit. Each kind is done in a transaction of its own."""

from typing import Literal

from holdfast.engine.statement import Statement, call, integer, nothing, scalar, text

Chore = Literal["wake", "join", "cancel", "waiter"]


def due_chores() -> Statement[list[Chore]]:
    """The kinds of chores that are to be done."""
    return call("queues.due_chores", scalar, {})


def do_chores(kind: Chore, max_chores: int | None = None) -> Statement[int]:
    """Do chores of one kind, and return how many were done."""
    return call("queues.do_chores", scalar, {"kind": text(kind), "max_chores": integer(max_chores)})


def postpone_chore(kind: Chore, error: str) -> Statement[None]:
    """Put the first chore of this kind behind the others, because it fails."""
    return call("queues.postpone_chore", nothing, {"kind": text(kind), "error": text(error)})
