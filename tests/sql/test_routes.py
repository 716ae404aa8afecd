"""Routes: an enqueue that has one does what one without does, whatever has changed since it was added."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, answer, end, enqueue, rows, value
from support.invariant import assert_invariant
from support.limits import take
from support.sessions import in_background, wait_until_blocked

TYPE = "mail.send"


@pytest.fixture
def admin(db: Database) -> Connection:
    return db.connect()


@pytest.fixture
def client(db: Database) -> Connection:
    return db.connect("holdfast_client")


@pytest.fixture
def other(db: Database) -> Connection:
    """Another session of the same login, in a transaction that stays open, and that waits for nobody."""
    connection = db.connect("holdfast_client", autocommit=False)
    connection.execute("set lock_timeout = '1ms'")
    connection.commit()
    return connection


def task(conn: Connection, task_id: UUID) -> dict[str, Any]:
    [found] = rows(
        conn,
        "select t.queue, t.priority, t.max_attempts, t.lease, t.deadline, t.namespace, "
        "l.queue as lane_queue, l.priority as lane_priority from queues.task t "
        "join queues.ready r on r.task_id = t.task_id join queues.lane l on l.lane_id = r.lane_id "
        "where t.task_id = %s",
        [task_id],
    )
    return found


def routes(conn: Connection) -> int:
    """Those that are valid."""
    found: int = value(
        conn,
        "select count(*) from queues.route r where r.version = (select last_value from queues.route_version)",
    )
    return found


def declare(conn: Connection, task_type: str = TYPE, **options: Any) -> None:
    answer(conn, "queues.register_types", {"types": [{"type": task_type, "schema": {}, **options}]})


def join(conn: Connection, client: Connection, namespace: str = "shop") -> None:
    answer(conn, "queues.add_to_namespace", {"login": client.info.user, "namespace": namespace})


def leave(conn: Connection, client: Connection) -> None:
    answer(conn, "queues.remove_from_namespace", {"login": client.info.user})


def mark_idle_lanes(conn: Connection) -> None:
    for found in take(conn):
        end(conn, found)
    Clock(conn).advance(61)
    assert answer(conn, "queues.tidy_lanes", {}) == 1


CHANGES: list[Any] = [
    pytest.param(lambda admin, _: declare(admin, max_attempts=9), "max_attempts", 9, id="defaults"),
    pytest.param(lambda admin, _: declare(admin, queue="letters"), "lane_queue", "letters", id="queue"),
    pytest.param(lambda admin, _: declare(admin, priority=7), "lane_priority", 7, id="priority"),
    pytest.param(join, "namespace", "shop", id="namespace"),
]
Change = Callable[[Connection, Connection], None]


def test_the_first_enqueue_of_a_type_adds_a_route_and_the_next_ones_use_it(
    admin: Connection, client: Connection
) -> None:
    declare(admin, queue="letters", priority=7, max_attempts=9, lease="40", deadline="3600")
    first = task(admin, enqueue(client, TYPE))
    assert routes(admin) == 1
    admin.execute("update queues.route set max_attempts = 8")  # as nobody does, to see that it is read

    assert task(admin, enqueue(client, TYPE)) == {**first, "max_attempts": 8}
    assert routes(admin) == 1
    assert first == {
        "queue": "letters",
        "priority": 7,
        "max_attempts": 9,
        "lease": timedelta(seconds=40),
        "deadline": timedelta(hours=1),
        "namespace": client.info.user,
        "lane_queue": "letters",
        "lane_priority": 7,
    }


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "other"},
        {"priority": 3},
        {"queue": "letters", "priority": 7, "max_attempts": 2, "lease": timedelta(seconds=2)},
        {"concurrency_key": "customer"},
        {"idempotency_key": "once"},
        {"run_at": "2090-01-01T00:00:00+00:00"},
    ],
    ids=str,
)
def test_options_that_a_task_sets_apply_as_without_a_route(
    admin: Connection, client: Connection, options: dict[str, Any]
) -> None:
    declare(admin, queue="letters", priority=7, max_attempts=9, lease="40")
    enqueue(client, TYPE)
    assert routes(admin) == 1

    found = task(admin, enqueue(client, TYPE, **options))

    assert found["queue"] == found["lane_queue"] == options.get("queue", "letters")
    assert found["priority"] == found["lane_priority"] == options.get("priority", 7)
    assert found["max_attempts"] == options.get("max_attempts", 9)
    assert found["lease"] == options.get("lease", timedelta(seconds=40))
    assert routes(admin) == 1
    assert_invariant(admin)


@pytest.mark.parametrize(("change", "name", "changed"), CHANGES)
def test_a_change_is_seen_by_the_next_enqueue(
    admin: Connection, client: Connection, change: Change, name: str, changed: object
) -> None:
    before = task(admin, enqueue(client, TYPE))
    change(admin, client)

    assert task(admin, enqueue(client, TYPE))[name] == changed
    assert before[name] != changed
    assert routes(admin) == 1, "a new one"


def test_a_login_that_leaves_a_namespace_enqueues_in_its_own_again(
    admin: Connection, client: Connection
) -> None:
    join(admin, client)
    assert task(admin, enqueue(client, TYPE))["namespace"] == "shop"
    leave(admin, client)
    assert task(admin, enqueue(client, TYPE))["namespace"] == client.info.user


@pytest.mark.parametrize(("change", "name", "changed"), CHANGES)
def test_a_route_of_a_long_transaction_is_not_used_after_a_change(  # noqa: PLR0917 - three sessions
    admin: Connection, client: Connection, other: Connection, change: Change, name: str, changed: object
) -> None:
    """It was read before the change, and is committed after it."""
    enqueue(other, TYPE)
    change(admin, client)
    other.commit()

    assert task(admin, enqueue(client, TYPE))[name] == changed


@pytest.mark.parametrize(("change", "name", "changed"), CHANGES)
def test_while_a_change_is_open_no_route_is_added_and_nobody_waits(  # noqa: PLR0917 - three sessions
    db: Database, admin: Connection, client: Connection, change: Change, name: str, changed: object
) -> None:
    """One that was added then would have what was there before, and be valid after the change."""
    client.execute("set lock_timeout = '1ms'")
    changing = db.connect(autocommit=False)
    change(changing, client)

    assert task(admin, enqueue(client, TYPE))[name] != changed
    assert routes(admin) == 0
    changing.commit()
    assert task(admin, enqueue(client, TYPE))[name] == changed
    assert routes(admin) == 1


@pytest.mark.parametrize(("change", "name", "changed"), CHANGES)
def test_a_change_that_is_undone_leaves_no_trace(
    admin: Connection, client: Connection, change: Change, name: str, changed: object
) -> None:
    before = task(admin, enqueue(client, TYPE))
    with admin.transaction(force_rollback=True):
        change(admin, client)
    with admin.transaction(), admin.transaction(force_rollback=True):
        change(admin, client)
        enqueue(admin, TYPE)

    assert task(admin, enqueue(client, TYPE)) == before
    assert before[name] != changed
    if name != "namespace":
        assert task(admin, enqueue(admin, TYPE))[name] == before[name]


def test_a_change_does_not_wait_for_a_transaction_that_has_added_a_route(
    admin: Connection, client: Connection, other: Connection
) -> None:
    enqueue(other, TYPE)
    admin.execute("set lock_timeout = '1ms'")
    declare(admin, max_attempts=9)
    join(admin, client)


def test_two_sessions_that_need_the_same_route_do_not_wait_for_each_other(
    admin: Connection, client: Connection, other: Connection
) -> None:
    enqueue(client, "mail.first")  # so that the lane exists
    client.execute("set lock_timeout = '1ms'")
    enqueue(other, TYPE)
    enqueue(client, TYPE)
    other.commit()

    assert routes(admin) == 3
    assert len(take(admin)) == 3
    assert_invariant(admin)


def test_a_route_of_a_transaction_that_is_undone_is_gone(
    admin: Connection, client: Connection, other: Connection
) -> None:
    enqueue(other, TYPE)
    other.rollback()
    assert routes(admin) == 0
    enqueue(client, TYPE)
    assert_invariant(admin)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_old_snapshot_neither_uses_nor_adds_a_route(
    admin: Connection, client: Connection, other: Connection, level: str
) -> None:
    enqueue(client, TYPE)
    admin.execute("update queues.route set max_attempts = 8")
    other.execute(f"set transaction isolation level {level}".encode())
    used, added = enqueue(other, TYPE), enqueue(other, "mail.more")
    other.commit()

    assert task(admin, used)["max_attempts"] == task(admin, added)["max_attempts"] == 3
    assert routes(admin) == 1


def test_each_login_has_its_own_routes(db: Database, admin: Connection, client: Connection) -> None:
    process = db.connect("holdfast_process")
    join(admin, client)
    for _ in range(2):
        assert task(admin, enqueue(client, TYPE))["namespace"] == "shop"
        assert task(admin, enqueue(process, TYPE))["namespace"] == process.info.user
    assert routes(admin) == 2


def test_a_lane_that_is_about_to_go_has_no_route(admin: Connection, client: Connection) -> None:
    enqueue(client, TYPE)
    assert routes(admin) == 1
    mark_idle_lanes(admin)
    assert routes(admin) == 0

    enqueue(client, TYPE)

    assert routes(admin) == 1, "to another lane"
    assert answer(admin, "queues.tidy_lanes", {}) == 1
    assert len(take(admin)) == 1
    assert_invariant(admin)


def test_a_lane_stays_while_somebody_may_use_it_who_has_read_only_a_route(
    admin: Connection, client: Connection, other: Connection
) -> None:
    enqueue(client, TYPE)
    used = enqueue(other, TYPE)
    assert (
        value(
            admin,
            "select count(*) from pg_locks where pid = %s and relation = 'queues.lane'::regclass",
            [other.info.backend_pid],
        )
        == 0
    ), "what the test is about"
    mark_idle_lanes(admin)

    assert answer(admin, "queues.tidy_lanes", {}) == 0
    other.commit()
    assert answer(admin, "queues.tidy_lanes", {}) == 0
    assert [found["task_id"] for found in take(admin)] == [used]
    assert_invariant(admin)


def test_a_lane_to_which_an_open_transaction_adds_a_route_is_not_marked(
    db: Database, admin: Connection, client: Connection, other: Connection
) -> None:
    enqueue(client, TYPE)
    declare(admin, timeout="30")  # which makes the route invalid
    for found in take(admin):
        end(admin, found)
    Clock(admin).advance(61)
    enqueue(other, TYPE)

    assert answer(admin, "queues.tidy_lanes", {}) == 0
    other.commit()
    assert routes(admin) == 1
    assert len(take(admin)) == 1
    assert_invariant(admin)


def test_a_lane_that_was_just_marked_gets_no_route(
    db: Database, admin: Connection, client: Connection
) -> None:
    enqueue(client, TYPE)
    declare(admin, timeout="30")
    for found in take(admin):
        end(admin, found)
    Clock(admin).advance(61)
    tidying = db.connect(autocommit=False)
    assert answer(tidying, "queues.tidy_lanes", {}) == 1
    enqueue(client, TYPE)
    assert routes(admin) == 0, "it is locked"
    tidying.commit()

    enqueue(client, TYPE)
    assert routes(admin) == 1
    assert value(
        admin, "select bool_and(l.leaving is null) from queues.route r join queues.lane l using (lane_id)"
    )
    assert len(take(admin)) == 2
    assert_invariant(admin)


def test_a_claim_does_not_wait_for_a_transaction_that_adds_a_route(
    admin: Connection, client: Connection, other: Connection
) -> None:
    """Large claims of a lane take turns by locking its row."""
    enqueue(client, "mail.first")
    expected = [enqueue(client, TYPE) for _ in range(3)]
    declare(admin, timeout="30")
    enqueue(other, TYPE)
    admin.execute("set lock_timeout = '1ms'")

    [lane_id] = rows(admin, "select lane_id from queues.lane where type = %s", [TYPE])
    rows(admin, "select from queues.lane where lane_id = %s for no key update", [lane_id["lane_id"]])
    assert len(take(admin)) == len(expected) + 1


def test_a_login_that_uses_many_types_gets_a_bounded_number_of_routes(
    db: Database, admin: Connection, client: Connection
) -> None:
    for number in range(120):
        enqueue(client, f"mail.t{number}")
    assert value(admin, "select count(*) from queues.route") == 100

    enqueue(db.connect("holdfast_process"), TYPE)
    assert value(admin, "select count(*) from queues.route") == 101, "another login has its own"
    assert_invariant(admin)


def test_routes_of_old_versions_are_removed(admin: Connection, client: Connection) -> None:
    enqueue(client, TYPE)
    for attempts in (4, 5, 6):
        declare(admin, max_attempts=attempts)
        enqueue(client, TYPE)
    assert value(admin, "select count(*) from queues.route") == 4
    answer(admin, "queues.tidy_lanes", {})
    assert value(admin, "select count(*) from queues.route") == 1 == routes(admin)


def test_a_declaration_that_changes_nothing_keeps_the_routes(admin: Connection, client: Connection) -> None:
    declare(admin, max_attempts=9)
    enqueue(client, TYPE)
    declare(admin, max_attempts=9)
    assert routes(admin) == 1


def test_a_change_waits_only_while_a_route_is_read(db: Database, admin: Connection) -> None:
    """What add_route holds for a moment: a change that comes then goes on as soon as the moment is over."""
    reading = db.connect(autocommit=False)
    reading.execute("lock table queues.task_type, queues.namespace_login in share mode")
    changing = db.connect()
    with in_background(lambda: declare(changing, max_attempts=9)):
        wait_until_blocked(admin, changing)
        reading.rollback()
    assert value(admin, "select count(*) from queues.task_type") == 1
