"""queues.register_worker, mark_idle, rest, retire_worker, lead, resign, fleet_state: the fleet."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    answer,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    heartbeat,
    held,
    refused,
    rows,
    status,
)
from support.sessions import at_once, in_background, wait_until_blocked


def _register(conn: Connection, worker_id: Any = "w1", **arguments: Any) -> None:
    call(conn, "queues.register_worker", {"worker_id": worker_id, **arguments})


def _lead(conn: Connection, worker_id: Any = "w1", **arguments: Any) -> bool:
    return bool(answer(conn, "queues.lead", {"worker_id": worker_id, **arguments}))


def _state(conn: Connection, worker_id: str = "w1") -> Row:
    (row,) = call(conn, "queues.fleet_state", {"worker_id": worker_id})
    return row


def _fleet(conn: Connection) -> list[Row]:
    return rows(conn, "select * from queues.worker_status order by worker_id")


def test_a_worker_is_entered_with_what_it_says_of_itself(tx: Connection, clock: Clock) -> None:
    _register(
        tx,
        hostname="node-3",
        pid=4711,
        version="1.2",
        queues=["billing"],
        type_prefixes=["media."],
        concurrency=8,
    )

    (worker,) = _fleet(tx)
    assert worker == {
        "worker_id": "w1",
        "hostname": "node-3",
        "pid": 4711,
        "version": "1.2",
        "queues": ["billing"],
        "type_prefixes": ["media."],
        "concurrency": 8,
        "in_flight": 0,
        "idle": False,
        "started_at": clock.now,
        "last_heartbeat": clock.now,
        "live": True,
        "leader": False,
        "term": None,
        "leader_until": None,
        "timeout": timedelta(seconds=60),
        "running": 0,
        "heartbeat": timedelta(seconds=10),
        "state": "idle",
        "memory_bytes": None,
        "finished": None,
        "per_second": None,
        "shard": None,
    }


def test_with_no_subscription_it_is_entered_for_default(tx: Connection) -> None:
    _register(tx)

    assert (_fleet(tx)[0]["queues"], _fleet(tx)[0]["type_prefixes"]) == (["default"], [])


def test_with_prefixes_alone_it_is_entered_for_no_queue(tx: Connection) -> None:
    _register(tx, type_prefixes=["media."])

    assert _fleet(tx)[0]["queues"] == []


def test_a_worker_that_registers_again_starts_afresh(tx: Connection, clock: Clock) -> None:
    _register(tx, concurrency=8)
    answer(tx, "queues.mark_idle", {"worker_id": "w1", "idle": True})
    clock.advance(5)

    _register(tx, concurrency=2)

    (worker,) = _fleet(tx)
    assert (worker["concurrency"], worker["idle"], worker["started_at"]) == (2, False, clock.now)


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 60), ("20 seconds", 20)])
def test_a_worker_that_is_silent_for_its_timeout_or_a_minute_counts_as_dead(
    tx: Connection, clock: Clock, timeout: str | None, seconds: int
) -> None:
    _register(tx, timeout=timeout)

    clock.advance(seconds - 1)
    assert _fleet(tx)[0]["live"]
    clock.advance(1)
    assert not _fleet(tx)[0]["live"]


def test_a_worker_that_is_taken_out_is_no_longer_registered(tx: Connection) -> None:
    assert _state(tx)["registered"] is False
    _register(tx)
    assert _state(tx)["registered"] is True


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"worker_id": None}, "worker_id"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "w" * 201}, "worker_id"),
        ({"hostname": None}, "hostname"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": None}, "concurrency"),
        ({"timeout": "4 seconds"}, "timeout"),
        ({"timeout": "2 days"}, "timeout"),
        ({"queues": [None]}, "queues"),
        ({"type_prefixes": [None]}, "type_prefixes"),
    ],
)
def test_a_worker_that_cannot_be_meant_is_refused(tx: Connection, arguments: Row, named: str) -> None:
    with refused(tx, "QF400", named):
        _register(tx, **arguments)


def test_a_worker_retires_once(tx: Connection) -> None:
    _register(tx)

    retired = [answer(tx, "queues.retire_worker", {"worker_id": "w1"}) for _ in range(2)]

    assert retired == [True, False]
    assert _fleet(tx) == []


def test_what_a_retired_worker_holds_is_not_touched(tx: Connection) -> None:
    enqueue(tx)
    _register(tx)
    task = claim_one(tx)

    answer(tx, "queues.retire_worker", {"worker_id": "w1"})

    assert end(tx, task) == "accepted"


def test_what_a_retiring_worker_has_not_begun_keeps_its_attempt(tx: Connection) -> None:
    """The answer of the claim, or a release, was lost."""
    ids = [enqueue(tx, max_attempts=1) for _ in range(4)]
    _register(tx)
    _register(tx, worker_id="w2")
    told, listed, _ = (claim_one(tx) for _ in range(3))
    claim_one(tx, "w2")
    heartbeat(tx, held(told, started_at="2026-01-01T00:00:00Z"))

    answer(tx, "queues.retire_worker", {"worker_id": "w1", "begun": held(listed)})

    assert [status(tx, task_id)["status"] for task_id in ids] == ["running", "claimed", "pending", "claimed"]
    assert claim_one(tx, "w2")["attempt"] == 1
    assert rows(tx, "select act from queues.act") == [{"act": "released"}]


def test_what_a_retiring_worker_has_not_begun_and_somebody_has_locked_does_not_delay_it(db: Database) -> None:
    admin, other = db.connect(), db.connect(autocommit=False)
    enqueue_many(admin, [{"type": "default.work"}] * 2)
    _register(admin)
    locked, _ = claim(admin, max_tasks=2)
    other.execute("select from queues.lease where task_id = %s for update", [locked["task_id"]])
    admin.execute("set lock_timeout = '5s'")

    assert answer(admin, "queues.retire_worker", {"worker_id": "w1", "begun": []})
    assert rows(admin, "select task_id from queues.lease") == [{"task_id": locked["task_id"]}]


def test_a_retired_leader_leads_no_more(tx: Connection) -> None:
    _register(tx)
    _lead(tx)

    answer(tx, "queues.retire_worker", {"worker_id": "w1"})

    assert _lead(tx, "w2")


def test_the_number_of_the_term_goes_on_after_a_leader_has_retired(tx: Connection) -> None:
    _register(tx)
    _lead(tx)
    answer(tx, "queues.retire_worker", {"worker_id": "w1"})

    _lead(tx, "w2")

    assert _term(tx) == 2


def test_who_resigns_leads_no_more_and_may_lead_again(tx: Connection) -> None:
    _register(tx)
    _lead(tx)

    assert answer(tx, "queues.resign", {"worker_id": "w1"}) is True

    assert not _fleet(tx)[0]["leader"]
    assert _state(tx)["term_left"] is None
    assert _lead(tx, "w2")
    answer(tx, "queues.resign", {"worker_id": "w2"})
    assert _lead(tx, "w1")
    assert _term(tx) == 3


def test_who_does_not_lead_has_nothing_to_resign_from(tx: Connection, clock: Clock) -> None:
    assert answer(tx, "queues.resign", {"worker_id": "w2"}) is False
    _lead(tx, "w1")
    assert answer(tx, "queues.resign", {"worker_id": "w2"}) is False
    clock.advance(16)
    assert answer(tx, "queues.resign", {"worker_id": "w1"}) is False


def test_what_is_left_of_a_term_is_known_to_all(tx: Connection, clock: Clock) -> None:
    assert _state(tx)["term_left"] is None
    _lead(tx)
    clock.advance(5)
    assert _state(tx)["term_left"] == timedelta(seconds=10)
    clock.advance(11)
    assert _state(tx)["term_left"] is None


def test_without_leases_nobody_has_to_sweep_while_somebody_does(tx: Connection, clock: Clock) -> None:
    assert _state(tx)["sweep_in"] == timedelta(0)
    call(tx, "queues.sweep", {})
    clock.advance(2)
    assert _state(tx)["sweep_in"] is None


def test_every_worker_has_to_sweep_when_none_has_for_two_seconds(tx: Connection, clock: Clock) -> None:
    call(tx, "queues.sweep", {})
    clock.advance(3)
    assert _state(tx)["sweep_in"] == timedelta(0)


def test_after_the_clock_was_set_back_everybody_has_to_sweep(tx: Connection, clock: Clock) -> None:
    call(tx, "queues.sweep", {})
    clock.advance(-10)
    assert _state(tx)["sweep_in"] == timedelta(0)


def test_a_worker_has_to_sweep_a_second_after_the_first_lease_has_ended(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    enqueue(tx)
    claim_one(tx, lease="10 seconds")
    claim_one(tx, lease="1 hour")
    call(tx, "queues.sweep", {})
    clock.advance(1)
    assert _state(tx)["sweep_in"] == timedelta(seconds=10)


def test_a_worker_that_rests_is_alive_and_learns_what_there_is_to_know(tx: Connection, clock: Clock) -> None:
    _register(tx, queues=["default"])
    answer(tx, "queues.mark_idle", {"worker_id": "w1", "idle": True})
    _lead(tx)
    call(tx, "queues.sweep", {})
    enqueue(tx, run_at=clock.now + timedelta(minutes=1))
    clock.advance(1)

    (found,) = call(tx, "queues.rest", {"worker_id": "w1", "holding": False, "queues": ["default"]})

    assert found == {
        "due": timedelta(seconds=59),
        "held": False,
        "idle": True,
        "registered": True,
        "term_left": timedelta(seconds=14),
        "sweep_in": None,
    }
    assert _fleet(tx)[0]["last_heartbeat"] == clock.now


def test_a_worker_with_leases_is_not_alive_because_it_rests(tx: Connection, clock: Clock) -> None:
    _register(tx)
    enqueue(tx)
    held_task = claim_one(tx)
    heartbeat(tx, held(held_task))
    clock.advance(5)

    call(tx, "queues.rest", {"worker_id": "w1", "holding": True})

    assert _fleet(tx)[0]["last_heartbeat"] < clock.now


def test_a_worker_that_was_removed_learns_it_when_it_rests(tx: Connection) -> None:
    (found,) = call(tx, "queues.rest", {"worker_id": "gone", "holding": False})
    assert (found["registered"], found["idle"]) == (False, False)


@pytest.mark.parametrize(("said", "kept"), [(True, True), (False, False), (None, False)])
def test_a_worker_says_whether_it_waits(tx: Connection, said: bool | None, kept: bool) -> None:
    _register(tx)

    assert answer(tx, "queues.mark_idle", {"worker_id": "w1", "idle": said}) is True
    assert _fleet(tx)[0]["idle"] is kept


def test_who_is_not_registered_is_told(tx: Connection) -> None:
    assert answer(tx, "queues.mark_idle", {"worker_id": "nobody", "idle": True}) is False


def test_the_first_who_asks_leads_until_its_term_ends(tx: Connection, clock: Clock) -> None:
    assert _lead(tx, "w1", term=timedelta(seconds=20))

    clock.advance(20)
    assert not _lead(tx, "w2")
    clock.advance(0.001)
    assert _lead(tx, "w2")
    assert not _lead(tx, "w1")


def test_a_leader_prolongs_its_term(tx: Connection, clock: Clock) -> None:
    _register(tx)
    _lead(tx)
    for _ in range(3):
        clock.advance(10)
        assert _lead(tx)

    (worker,) = _fleet(tx)
    assert (worker["leader"], worker["term"], worker["leader_until"]) == (True, 1, clock.after(15))


def test_every_change_and_every_gap_begins_a_new_term(tx: Connection, clock: Clock) -> None:
    terms = []
    for worker_id, seconds in (("w1", 0), ("w1", 5), ("w2", 60), ("w2", 60), ("w1", 60)):
        clock.advance(seconds)
        assert _lead(tx, worker_id)
        terms.append(_term(tx))

    assert terms == [1, 1, 2, 3, 4]


def _term(tx: Connection) -> int:
    (leadership,) = rows(tx, "select term from queues.leadership")
    return int(leadership["term"])


def test_a_leader_whose_term_is_over_is_not_shown_as_one(tx: Connection, clock: Clock) -> None:
    _register(tx)
    _lead(tx)
    clock.advance(16)

    assert not _fleet(tx)[0]["leader"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"worker_id": None},
        {"worker_id": ""},
        {"term": None},
        {"term": "0"},
        {"term": "-1 second"},
        {"term": "2 hours"},
    ],
)
def test_a_term_that_cannot_be_meant_is_refused(tx: Connection, arguments: Row) -> None:
    with refused(tx, "QF400", "lead needs"):
        _lead(tx, **arguments)


def test_of_many_who_ask_at_once_exactly_one_leads(db: Database) -> None:
    sessions = [(db.connect("holdfast_worker"), f"w{n}") for n in range(12)]

    answers = at_once(lambda session: _lead(*session), sessions)

    assert sum(answers) == 1


def test_when_a_term_ends_exactly_one_of_many_takes_over(db: Database) -> None:
    admin = db.connect()
    clock = Clock(admin)
    _lead(admin, "w0")
    clock.advance(16)
    sessions = [(db.connect("holdfast_worker"), f"w{n}") for n in range(1, 12)]

    answers = at_once(lambda session: _lead(*session), sessions)

    assert sum(answers) == 1
    assert _term(admin) == 2


def test_who_asks_while_another_leads_waits_for_nobody(db: Database) -> None:
    leader = db.connect("holdfast_worker", autocommit=False)
    _lead(leader, "w1")
    leader.commit()
    _lead(leader, "w1")

    other = db.connect("holdfast_worker")
    other.execute("set lock_timeout = '1ms'")
    assert not _lead(other, "w2")


def test_who_waits_for_a_leader_that_prolongs_does_not_lead(db: Database) -> None:
    leader = db.connect("holdfast_worker", autocommit=False)
    other = db.connect("holdfast_worker")
    _lead(leader, "w1")

    with in_background(lambda: _lead(other, "w2")) as asking:
        wait_until_blocked(db.connect(), other)
        leader.commit()

    assert asking.result() is False


def test_there_is_room_for_one_leader_whoever_writes(tx: Connection) -> None:
    _lead(tx, "w1")
    second = """insert into queues.leadership (only_one, worker_id, term, leader_since, leader_until)
                select %s, 'w2', 1, queues.clock(), queues.clock()"""
    for key, refusal in [(True, psycopg.errors.UniqueViolation), (False, psycopg.errors.CheckViolation)]:
        with pytest.raises(refusal), tx.transaction():
            tx.execute(second, [key])
