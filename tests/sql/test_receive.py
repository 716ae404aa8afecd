"""queues.receive: the inbox, in which every event is new once."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, answer, refused
from support.sessions import in_background, wait_until_blocked


def _receive(conn: Connection, event_id: str | None = "1", source: str | None = "urn:shop") -> Any:
    return answer(conn, "queues.receive", {"event_id": event_id, "source": source})


def test_an_event_is_new_once(tx: Connection) -> None:
    assert [_receive(tx), _receive(tx)] == [True, False]


def test_the_same_id_of_another_source_is_another_event(tx: Connection) -> None:
    assert [_receive(tx), _receive(tx, source="urn:bank")] == [True, True]


@pytest.mark.parametrize("committed", [True, False])
def test_who_comes_second_waits_and_takes_it_only_if_the_first_gave_up(db: Database, committed: bool) -> None:
    first, second = (db.connect("holdfast_client", autocommit=False) for _ in range(2))
    assert _receive(first) is True

    with in_background(lambda: _receive(second)) as answered:
        wait_until_blocked(db.connect(), second)
        first.commit() if committed else first.rollback()
        assert answered.result() is not committed


def test_an_event_is_forgotten_after_a_while(tx: Connection, clock: Clock) -> None:
    _receive(tx, "1")
    clock.advance(86401)
    _receive(tx, "2")

    assert answer(tx, "queues.prune_inbox", {"older_than": timedelta(days=1)}) == 1
    assert [_receive(tx, "1"), _receive(tx, "2")] == [True, False]


def test_it_is_forgotten_in_bounded_steps(tx: Connection, clock: Clock) -> None:
    for number in range(5):
        _receive(tx, str(number))
    clock.advance(31 * 86400)

    assert [answer(tx, "queues.prune_inbox", {"max_events": 2}) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize(("event_id", "source"), [(None, "s"), ("1", None), ("", "s"), ("1", "x" * 501)])
def test_what_names_no_event_is_refused(tx: Connection, event_id: str | None, source: str | None) -> None:
    with refused(tx, "QF400"):
        _receive(tx, event_id, source)


def test_an_absurd_age_is_refused(tx: Connection) -> None:
    for arguments in ({"older_than": timedelta(-1)}, {"max_events": 0}):
        with refused(tx, "QF400", "prune_inbox needs"):
            answer(tx, "queues.prune_inbox", arguments)
