"""Two at once: supervisors of the same send, and a supervisor and a handler."""

import pytest

from support.clock import Clock
from support.comms import CHANNELS, Channel
from support.database import Database
from support.engine import Connection, status
from support.sessions import at_once, in_background, wait_until_blocked


@pytest.fixture(params=CHANNELS, ids=lambda channel: channel.name)
def channel(request: pytest.FixtureRequest) -> Channel:
    given: Channel = request.param
    return given


@pytest.fixture
def conn(db: Database) -> Connection:
    return db.connect()


@pytest.fixture
def first(db: Database) -> Connection:
    return db.connect(autocommit=False)


@pytest.fixture
def second(db: Database) -> Connection:
    return db.connect()


def test_two_supervisors_at_once_schedule_one_attempt(
    conn: Connection, first: Connection, second: Connection, channel: Channel
) -> None:
    send = channel.kick_off(conn)

    assert channel.supervise(first, send)["decision"] == "attempt"
    with in_background(lambda: channel.supervise(second, send)) as other:
        wait_until_blocked(conn, second)
        first.commit()
        assert other.result()["decision"] == "wait"

    assert channel.counts(conn, send)["scheduled"] == 1
    assert channel.decisions(conn, send) == ["attempt", "wait"]


def test_the_same_run_at_once_happens_once(
    conn: Connection, first: Connection, second: Connection, channel: Channel
) -> None:
    send = channel.kick_off(conn)

    assert channel.supervise(first, send, run=1)["decision"] == "attempt"
    with in_background(lambda: channel.supervise(second, send, run=1)) as other:
        wait_until_blocked(conn, second)
        first.commit()
        assert other.result()["decision"] == "none"

    assert len(channel.tasks(conn, send, channel.supervisor)) == 2


def test_ten_supervisors_at_once_schedule_one_attempt_after_each_failure(
    db: Database, conn: Connection, channel: Channel
) -> None:
    send = channel.kick_off(conn, max_attempts=3)
    sessions = [db.connect() for _ in range(10)]
    for attempt in (1, 2, 3):
        at_once(lambda session: channel.supervise(session, send), sessions[:5])
        assert channel.counts(conn, send)["scheduled"] == attempt
        channel.fail(conn, send, attempt)
    decisions = [
        told["decision"] for told in at_once(lambda session: channel.supervise(session, send), sessions)
    ]

    assert sorted(decisions) == ["failed", *["none"] * 9]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_under_a_stricter_isolation_the_second_is_refused_or_finds_the_attempt(
    conn: Connection, first: Connection, second: Connection, channel: Channel, level: str
) -> None:
    send = channel.kick_off(conn)
    second.autocommit = False
    for session in (first, second):
        session.execute(f"set transaction isolation level {level}".encode())
        session.execute("select 1")
    second.execute("select from queues.task limit 1")  # its snapshot is from before

    channel.supervise(first, send)
    with in_background(lambda: channel.supervise(second, send)) as other:
        wait_until_blocked(conn, second)
        first.commit()
        error = other.exception()
    second.rollback()

    assert getattr(error, "sqlstate", None) in ("40001", "23505")
    assert channel.counts(conn, send)["scheduled"] == 1


def test_a_fact_that_comes_while_the_supervisor_runs_is_not_overlooked(
    conn: Connection, first: Connection, second: Connection, channel: Channel
) -> None:
    clock = Clock(conn)
    send = channel.kick_off(conn)
    channel.supervise(conn, send)
    clock.advance(1)

    assert channel.supervise(first, send)["decision"] == "wait"
    with in_background(lambda: channel.fail(second, send)) as handler:
        wait_until_blocked(conn, second)
        first.commit()
        assert handler.result() == {"success": True}

    (*_, last) = channel.facts(conn, "supervised", send)
    waiting = status(conn, last["next_task_id"])
    assert (waiting["status"], waiting["run_at"]) == ("pending", clock.now)


def test_a_success_and_a_failure_of_one_attempt_at_once_leave_one_of_them(
    conn: Connection, first: Connection, second: Connection, channel: Channel
) -> None:
    send = channel.kick_off(conn)
    channel.supervise(conn, send)

    assert channel.succeed(first, send, 1) == {"success": True}
    with in_background(lambda: channel.fail(second, send, 1)) as handler:
        wait_until_blocked(conn, second)
        first.commit()
        assert "is recorded as succeeded" in handler.result()["validation_failure_message"]

    counts = channel.counts(conn, send)
    assert (counts["succeeded"], counts["failed"]) == (1, 0)
