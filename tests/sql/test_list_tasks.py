"""queues.list_tasks: pages of tasks, newest first, by status, queue, type and age."""

from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    heartbeat,
    held,
    refused,
    status,
)

STATUSES = [
    *("scheduled", "pending", "retrying", "claimed", "running"),
    *("succeeded", "failed", "dead_letter", "cancelled"),
]


def _list(conn: Connection, **filters: Any) -> list[UUID]:
    return [row["task_id"] for row in call(conn, "queues.list_tasks", filters)]


def _one_of_each(tx: Connection, clock: Clock, task_type: str = "default.work") -> dict[str, UUID]:
    tasks: dict[str, UUID] = {}
    for ending in ("succeeded", "failed", "dead_letter", "cancelled", "claimed", "running", "retrying"):
        tasks[ending] = enqueue(tx, task_type, max_attempts=1 if ending == "dead_letter" else 3)
        task = claim_one(tx, type_prefixes=[task_type])
        if ending == "running":
            heartbeat(tx, held(task, started_at=clock.now))
        elif ending != "claimed":
            settled = "retry" if ending in {"dead_letter", "retrying"} else ending
            end(tx, task, settled, run_at=clock.after(60))
    tasks["scheduled"] = enqueue(tx, task_type, run_at=clock.after(60))
    tasks["pending"] = enqueue(tx, task_type)
    return tasks


def test_without_filters_it_is_everything_newest_first(tx: Connection) -> None:
    ids = [row["task_id"] for row in enqueue_many(tx, [{"type": "a.b"}] * 5)]

    assert _list(tx) == ids[::-1]


def test_its_rows_are_those_of_task_status(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, payload={"n": 1})

    assert call(tx, "queues.list_tasks", {}) == [status(tx, task_id)]


@pytest.mark.parametrize("wanted", STATUSES)
@pytest.mark.parametrize("more", [{}, {"type_prefix": "default."}, {"queue": "default"}])
def test_a_status_finds_the_tasks_that_have_it(tx: Connection, clock: Clock, wanted: str, more: Row) -> None:
    tasks = _one_of_each(tx, clock)
    _one_of_each(tx, clock, "other.work")

    found = _list(tx, status=wanted, **{"type_prefix": "default.", **more})

    assert found == [tasks[wanted]]


@pytest.mark.parametrize("wanted", STATUSES)
def test_a_status_is_the_one_that_the_view_shows(tx: Connection, clock: Clock, wanted: str) -> None:
    _one_of_each(tx, clock)

    assert {row["status"] for row in call(tx, "queues.list_tasks", {"status": wanted})} == {wanted}


def test_a_queue_finds_its_tasks(tx: Connection) -> None:
    enqueue(tx, "a.b")
    found = enqueue(tx, "a.b", queue="q")

    assert _list(tx, queue="q") == [found]
    assert _list(tx, queue="nowhere") == []


@pytest.mark.parametrize("prefix", ["billing.", "billing.c", "billing.charge"])
def test_a_prefix_finds_exactly_the_types_that_start_with_it(tx: Connection, prefix: str) -> None:
    for other in ("billing_old.charge", "Billing.charge", "billing"):
        enqueue(tx, other)
    found = enqueue(tx, "billing.charge")

    assert _list(tx, type_prefix=prefix) == [found]


@pytest.mark.parametrize("prefix", ["%", "_illing.", "billing_charge"])
def test_percent_and_underscore_are_ordinary_characters(tx: Connection, prefix: str) -> None:
    enqueue(tx, "billing.charge")

    assert _list(tx, type_prefix=prefix) == []


def test_since_finds_what_was_created_from_then_on(tx: Connection, clock: Clock) -> None:
    enqueue(tx)
    since = clock.advance(10)
    at, later = enqueue(tx), enqueue(tx)

    assert _list(tx, since=since) == [later, at]


def test_filters_are_combined(tx: Connection, clock: Clock) -> None:
    enqueue(tx, "a.x", queue="q")
    since = clock.advance(1)
    enqueue(tx, "b.x", queue="q")
    enqueue(tx, "a.x")
    enqueue(tx, "a.x", queue="q", run_at=clock.after(9))
    found = enqueue(tx, "a.x", queue="q")

    assert _list(tx, status="pending", queue="q", type_prefix="a.", since=since) == [found]


@pytest.mark.parametrize("filters", [{}, {"type_prefix": "default."}, {"status": "pending"}])
def test_pages_follow_one_another_without_gap_or_overlap(tx: Connection, filters: Row) -> None:
    ids = [row["task_id"] for row in enqueue_many(tx, [{"type": f"default.t{n % 3}"} for n in range(10)])]

    pages: list[list[UUID]] = []
    while page := _list(tx, max_tasks=4, **({"before": pages[-1][-1]} if pages else {}), **filters):
        pages.append(page)

    assert [len(page) for page in pages] == [4, 4, 2]
    assert [task_id for page in pages for task_id in page] == ids[::-1]


@pytest.mark.parametrize("wanted", ["failed", "succeeded", "claimed"])
def test_pages_of_a_status_follow_one_another(tx: Connection, wanted: str) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 5)
    tasks = claim(tx, max_tasks=5)
    if wanted != "claimed":
        for task in tasks:
            end(tx, task, wanted)

    first = _list(tx, status=wanted, max_tasks=3)
    second = _list(tx, status=wanted, max_tasks=3, before=first[-1])

    assert first + second == [task["task_id"] for task in reversed(tasks)]


def test_a_page_has_fifty_tasks_unless_asked_otherwise(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 60)

    assert len(_list(tx)) == 50


def test_deleted_tasks_are_shown_with_their_deletion(tx: Connection) -> None:
    task_id = enqueue(tx)
    act(tx, "delete_task", task_id)

    (row,) = call(tx, "queues.list_tasks", {})
    assert row["deleted_at"] is not None


@pytest.mark.parametrize("wanted", ["", "done", "PENDING", "pending "])
def test_an_unknown_status_is_refused(tx: Connection, wanted: str) -> None:
    with refused(tx, "QF400", "status"):
        _list(tx, status=wanted)


@pytest.mark.parametrize("max_tasks", [None, 0, -1, 10_001])
def test_a_page_size_that_cannot_be_meant_is_refused(tx: Connection, max_tasks: Any) -> None:
    with refused(tx, "QF400", "max_tasks"):
        _list(tx, max_tasks=max_tasks)


OTHERS = """
insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
  enqueued_by, namespace, payload)
select ('ffffffff-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, queues.clock(), queues.clock(), 0, 3,
  'other.work', 'other', 'python', 'somebody', 'somebody', '{}'
from generate_series(1, 50000) i
"""


def _find(conn: Connection, **filters: Any) -> tuple[list[UUID], UUID | None]:
    (row,) = call(conn, "queues.find_tasks", filters)
    return row["task_ids"], row["next"]


def test_a_page_says_where_the_next_begins(tx: Connection) -> None:
    ids = [enqueue(tx) for _ in range(3)]

    assert _find(tx, max_tasks=2) == ([ids[2], ids[1]], ids[1])
    assert _find(tx, max_tasks=2, before=ids[1]) == ([ids[0]], None)
    assert _find(tx, max_tasks=3) == (ids[::-1], None)


@pytest.mark.parametrize("statuses", [[None], ["pending"], ["succeeded", "failed"]])
def test_a_client_with_few_tasks_among_many_of_others_gets_a_short_page_and_where_to_go_on(
    db: Database, statuses: list[str | None]
) -> None:
    admin, client = db.connect(), db.connect("holdfast_client")
    own = enqueue(client)
    admin.execute(OTHERS)
    if statuses == ["pending"]:
        admin.execute(
            """insert into queues.ready (task_id, run_at, lane_id, attempt)
               select t.task_id, t.run_at, 1, 0 from queues.task t where t.queue = 'other'"""
        )
    for ending in statuses if statuses[0] == "succeeded" else []:
        admin.execute("delete from queues.outcome")
        admin.execute(
            """insert into queues.outcome (task_id, finished_at, attempt, status)
               select t.task_id, queues.clock(), 1, %s from queues.task t""",
            [ending],
        )
        first, following = _find(client, status=ending)
        assert (first, str(following)) == ([], "ffffffff-0000-7000-8000-000000000001")
        assert _find(client, status=ending, before=following) == ([own], None)
    if statuses[0] != "succeeded":
        first, following = _find(client, status=statuses[0], max_examined=1_000_000)
        assert (first, str(following)) == ([], "ffffffff-0000-7000-8000-000000000001")
        assert _find(client, status=statuses[0]) == (first, following)
        assert _find(client, status=statuses[0], before=following) == ([own], None)
