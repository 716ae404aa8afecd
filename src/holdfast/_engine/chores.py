"""Chores: what the engine has left to do after a commit. Each kind is done in a transaction of its own."""

from typing import Literal

from holdfast._engine.statement import Statement, sql_function

Chore = Literal["wake", "join", "cancel", "waiter"]


@sql_function("queues.due_chores")
def due_chores() -> Statement[list[Chore]]:
    """The kinds of chores that are to be done."""


@sql_function("queues.do_chores")
def do_chores(kind: Chore, max_chores: int | None = None) -> Statement[int]:
    """Do chores of one kind, and return how many were done."""


@sql_function("queues.postpone_chore")
def postpone_chore(kind: Chore, error: str) -> Statement[None]:
    """Put the first chore of this kind behind the others, because it fails."""
