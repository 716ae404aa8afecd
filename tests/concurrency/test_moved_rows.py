"""The row of a waiting task moves while another session waits for it: the result has a serial equivalent.

Whoever waits for a row that another transaction deletes and inserts anew has to look again until it has found
the task. Then an acknowledged cancel, deletion or reschedule holds, and an enqueue of a unique or debounced
task sees the one that waits.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from support import moved_rows
from support.database import cloned_database
from support.interleaving import Call, Side, Steps, Theatre, ends, opened
from support.start_states import Stage

QUICK = {"set_aside", "reschedule", "signal", "claim and release"}
"""Paired with every waiter also by `make test`; every mover is by `make test-full`."""

TABLES = ("ready", "lease", "outcome", "deletion")


@pytest.fixture(scope="module")
def theatre(server: EmbeddedServer, template: str) -> Iterator[Theatre]:
    with cloned_database(server, template) as database:
        stage = Stage(database.connect())
        moved_rows.build(stage)
        yield Theatre(database, stage, moved_rows.AFTERWARDS)


@pytest.fixture(autouse=True)
def _count(theatre: Theatre, record_property: Callable[[str, object], None]) -> Iterator[None]:
    before = theatre.played
    yield
    record_property("schedules", theatre.played - before)


def cases() -> list[Any]:
    return [
        pytest.param(
            state,
            mover,
            id=f"{mover}, {state}",
            marks=() if mover.name in QUICK else pytest.mark.full,
        )
        for state, movers in moved_rows.MOVERS.items()
        for mover in movers
    ]


def waiter_beside(waiter: Call, mover: Call) -> Call:
    if waiter is moved_rows.DEBOUNCE and mover.name in moved_rows.GIVES_BACK:
        return Call(waiter.name, waiter.sql, passing=(moved_rows.DEBOUNCE_OF_A_HELD_TASK,))
    return waiter


def moves(theatre: Theatre, state: str, mover: Side) -> bool:
    """Whether the row that says where the task stands is another one afterwards."""
    theatre.stage.load(state)
    before = [place(theatre, state, table) for table in TABLES]
    theatre.session(mover.name).run(theatre.statement(state, mover))
    return before != [place(theatre, state, table) for table in TABLES]


def place(theatre: Theatre, state: str, table: str) -> Any:
    task_id = theatre.stage.names[state]["t_id"]
    found = f"select xmin::text, ctid::text from queues.{table} where task_id = %s"
    return theatre.stage.admin.execute(found.encode(), [task_id]).fetchone()


def orders(a: Side, b: Side) -> Iterator[Steps]:
    """All orders of call and end of two sessions in which the calls overlap, with every end of both."""
    for first, second in ((a, b), (b, a)):
        for _, end in ends(first, second):
            yield [*opened(first), *opened(second), *end]


@pytest.mark.parametrize(("state", "mover"), cases())
def test_who_waits_for_a_row_that_moves_finds_the_task(theatre: Theatre, state: str, mover: Call) -> None:
    a = Side("a", mover)
    assert moves(theatre, state, a)
    waiters = [*moved_rows.WAITERS, *([moved_rows.ADDS_TO_BATCH] if "after" in state else [])]
    for waiter in waiters:
        b = Side("b", waiter_beside(waiter, mover))
        for steps in orders(a, b):
            theatre.play(state, steps)
