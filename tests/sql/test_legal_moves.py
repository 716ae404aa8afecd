"""Every state of a task against everything that can be done to it: what is answered, and what it leads to.

A cell reads answer/status. The status ends in ! if the task is deleted, and is = if nothing moved. Deeds of
workers use the last token that the task was claimed with; for a task that never was, one that no worker has.
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.engine import (
    Connection,
    Row,
    act,
    claim,
    claim_one,
    end,
    enqueue,
    heartbeat,
    held,
    release,
    status,
    sweep,
)
from support.invariant import assert_invariant

MOVES = """
state             claim           heartbeat    succeeded           failed           retry                snooze           cancelled           release          sweep                cancel               redrive         delete                restore               reschedule
scheduled         -/=             lost/=       lost/=              lost/=           lost/=               lost/=           lost/=              lost/=           -/=                  cancelled/cancelled  QF412/=         deleted/scheduled!    scheduled/=           pending/pending
pending           claimed/claimed lost/=       lost/=              lost/=           lost/=               lost/=           lost/=              lost/=           -/=                  cancelled/cancelled  QF412/=         deleted/pending!      pending/=             pending/=
retrying          claimed/claimed lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  cancelled/cancelled  QF412/=         deleted/retrying!     retrying/=            retrying/=
recovered         claimed/claimed lost/=       lost/=              lost/=           lost/=               lost/=           lost/=              lost/=           -/=                  cancelled/cancelled  QF412/=         deleted/retrying!     retrying/=            retrying/=
snoozed           claimed/claimed lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  cancelled/cancelled  QF412/=         deleted/pending!      pending/=             pending/=
released          claimed/claimed lost/=       lost/=              lost/=           lost/=               lost/=           lost/=              already_done/=   -/=                  cancelled/cancelled  QF412/=         deleted/pending!      pending/=             pending/=
redriven          claimed/claimed lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  cancelled/cancelled  QF412/=         deleted/pending!      pending/=             pending/=
claimed           -/=             held/running accepted/succeeded  accepted/failed  accepted/retrying    accepted/pending accepted/cancelled  released/pending recovered/retrying   cancelled/cancelled  QF412/=         deleted/claimed!      claimed/=             claimed/=
running           -/=             held/=       accepted/succeeded  accepted/failed  accepted/retrying    accepted/pending accepted/cancelled  released/pending recovered/retrying   cancelled/cancelled  QF412/=         deleted/running!      running/=             running/=
last_attempt      -/=             held/=       accepted/succeeded  accepted/failed  accepted/dead_letter accepted/pending accepted/cancelled  released/pending dead/dead_letter     cancelled/cancelled  QF412/=         deleted/running!      running/=             running/=
succeeded         -/=             lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  succeeded/=          QF412/=         deleted/succeeded!    succeeded/=           succeeded/=
failed            -/=             lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  failed/=             pending/pending deleted/failed!       failed/=              failed/=
dead_letter       -/=             lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  dead_letter/=        pending/pending deleted/dead_letter!  dead_letter/=         dead_letter/=
abandoned         -/=             lost/=       lost/=              lost/=           lost/=               lost/=           lost/=              lost/=           -/=                  dead_letter/=        pending/pending deleted/dead_letter!  dead_letter/=         dead_letter/=
cancelled         -/=             cancelled/=  cancelled/=         cancelled/=      cancelled/=          cancelled/=      cancelled/=         cancelled/=      -/=                  cancelled/=          pending/pending deleted/cancelled!    cancelled/=           cancelled/=
withdrawn         -/=             lost/=       lost/=              lost/=           lost/=               lost/=           lost/=              lost/=           -/=                  cancelled/=          pending/pending deleted/cancelled!    cancelled/=           cancelled/=
deleted_pending   -/=             lost/=       lost/=              lost/=           lost/=               lost/=           lost/=              lost/=           -/=                  cancelled/cancelled! QF412/=         deleted/=             pending/pending       pending/=
deleted_running   -/=             deleted/=    accepted/succeeded! accepted/failed! accepted/retrying!   accepted/pending! accepted/cancelled! released/pending! recovered/retrying! cancelled/cancelled! QF412/=         deleted/=             running/running       running/=
deleted_last      -/=             deleted/=    accepted/succeeded! accepted/failed! accepted/dead_letter! accepted/pending! accepted/cancelled! released/pending! dead/dead_letter!  cancelled/cancelled! QF412/=         deleted/=             running/running       running/=
deleted_succeeded -/=             lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  succeeded/=          QF412/=         deleted/=             succeeded/succeeded   succeeded/=
deleted_failed    -/=             lost/=       already_done/=      already_done/=   already_done/=       already_done/=   already_done/=      lost/=           -/=                  failed/=             QF412/=         deleted/=             failed/failed         failed/=
"""  # noqa: E501 - a table is read by its columns

NOBODYS_TOKEN = 2**62


def _state(tx: Connection, clock: Clock, name: str) -> Row:
    """Bring a task into a state and answer its id and last token."""
    if name == "scheduled":
        return {"task_id": enqueue(tx, run_at=clock.after(3600)), "token": NOBODYS_TOKEN}
    if name.startswith("deleted_"):
        task = _state(tx, clock, {"deleted_last": "last_attempt"}.get(name, name.removeprefix("deleted_")))
        act(tx, "delete_task", task["task_id"])
        return task
    once = name in {"last_attempt", "dead_letter", "abandoned"}
    task_id = enqueue(tx, max_attempts=1 if once else 3)
    if name in {"pending", "withdrawn"}:
        if name == "withdrawn":
            act(tx, "cancel", task_id)
        return {"task_id": task_id, "token": NOBODYS_TOKEN}
    task = claim_one(tx)
    _from_claimed(tx, clock, task, name)
    return task


def _from_claimed(tx: Connection, clock: Clock, task: Row, name: str) -> None:
    if name == "claimed":
        return
    heartbeat(tx, held(task, started_at=clock.now))
    if name in {"running", "last_attempt"}:
        return
    if name in {"recovered", "abandoned"}:
        clock.advance(31)
        sweep(tx)
    elif name == "cancelled":
        act(tx, "cancel", task["task_id"])
    elif name == "released":
        release(tx, held(task))
    else:
        said = {"retrying": "retry", "dead_letter": "retry", "snoozed": "snooze", "redriven": "failed"}
        end(tx, task, said.get(name, name), run_at=clock.now)
        if name == "redriven":
            act(tx, "retry", task["task_id"])


def _claim(tx: Connection, clock: Clock, task: Row) -> str:
    return "claimed" if [got["task_id"] for got in claim(tx)] == [task["task_id"]] else "-"


def _heartbeat(tx: Connection, clock: Clock, task: Row) -> str:
    return heartbeat(tx, held(task, started_at=clock.now))[0]


def _release(tx: Connection, clock: Clock, task: Row) -> str:
    return release(tx, held(task))[0]


def _sweep(tx: Connection, clock: Clock, task: Row) -> str:
    clock.advance(31)
    return next((what for what, number in sweep(tx).items() if number), "-")


def _finish(said: str) -> Callable[[Connection, Clock, Row], str]:
    return lambda tx, clock, task: end(tx, task, said, run_at=clock.now)


def _act(function: str) -> Callable[[Connection, Clock, Row], str]:
    return lambda tx, _clock, task: act(tx, function, task["task_id"])


def _reschedule(tx: Connection, clock: Clock, task: Row) -> str:
    return act(tx, "reschedule", task["task_id"], run_at=clock.now)


DEEDS: dict[str, Callable[[Connection, Clock, Row], str]] = {
    "claim": _claim,
    "heartbeat": _heartbeat,
    **{said: _finish(said) for said in ("succeeded", "failed", "retry", "snooze", "cancelled")},
    "release": _release,
    "sweep": _sweep,
    "cancel": _act("cancel"),
    "redrive": _act("retry"),
    "delete": _act("delete_task"),
    "restore": _act("restore_task"),
    "reschedule": _reschedule,
}


def _cells() -> list[Any]:
    header, *lines = (line.split() for line in MOVES.strip().splitlines())
    return [
        pytest.param(state, deed, *cell.split("/"), id=f"{state}-{deed}")
        for state, *cells in lines
        for deed, cell in zip(header[1:], cells, strict=True)
    ]


def _shown(tx: Connection, task: Row) -> str:
    now = status(tx, task["task_id"])
    return f"{now['status']}{'!' if now['deleted_at'] else ''}"


@pytest.mark.parametrize(("state", "deed", "answer", "leads_to"), _cells())
def test_every_deed_in_every_state(
    tx: Connection, clock: Clock, *, state: str, deed: str, answer: str, leads_to: str
) -> None:
    task = _state(tx, clock, state)
    before = _shown(tx, task)
    assert_invariant(tx)

    try:
        with tx.transaction():
            answered = DEEDS[deed](tx, clock, task)
    except psycopg.Error as error:
        answered = error.sqlstate or "?"

    assert (answered, _shown(tx, task)) == (answer, before if leads_to == "=" else leads_to)
    assert_invariant(tx)


def test_the_table_knows_every_status_and_every_deed() -> None:
    cells = [cell.values for cell in _cells()]

    assert {deed for _, deed, *_ in cells} == set(DEEDS)
    assert {state for state, *_ in cells} >= {
        *("scheduled", "pending", "retrying", "claimed", "running"),
        *("succeeded", "failed", "dead_letter", "cancelled"),
    }
