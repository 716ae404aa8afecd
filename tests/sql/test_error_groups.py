"""queues.list_error_groups: errors that differ only in values are one group."""

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
    claim_one,
    end,
    enqueue,
    refused,
    value,
)


def fail(conn: Connection, message: str, type_: str = "shop.pay", how: str = "failed", **error: Any) -> UUID:
    task_id = enqueue(conn, type_)
    task = claim_one(conn, type_prefixes=[type_])
    end(conn, task, how, error={"kind": "handler_error", "message": message, **error})
    return task_id


def groups(conn: Connection, **filters: Any) -> list[Row]:
    return call(conn, "queues.list_error_groups", filters)


def title(conn: Connection, message: str) -> Any:
    return value(conn, "select queues.title_of_error(%s)", [message])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Declined: card 4242 of order-7 was declined", "Declined: card # of # was declined"),
        ("KeyError: 'bob'", "KeyError: …"),
        ("can't read user's file \"/home/ada\"", "can't read user's file …"),
        ("no answer from 10.0.0.7:5432 after 30.5 s", "no answer from # after # s"),
        ("task 019a8f6e-7c1d-7b3a-9d65-3f2b8c0a4e11 failed at 2026-11-17T12:00:00Z", "task # failed at #"),
        ("unknown address ada@example.org", "unknown address #"),
        ("missing ids 1, 2, 3 and 4", "missing ids # and #"),
        ("`users` has no column `age`", "… has no column …"),
        ("first line\nsecond 7", "first line"),
        ("  spaces \t between  ", "spaces between"),
        ("", ""),
        ("plain", "plain"),
        (r'escaped "a\"b" rest', "escaped … rest"),
    ],
)
def test_a_title_has_no_values(tx: Connection, message: str, expected: str) -> None:
    assert title(tx, message) == expected


def test_a_title_of_a_long_and_hostile_message_is_short(tx: Connection) -> None:
    for hostile in ("'" * 8000, '"' * 7999, "a1" * 4000, "@" * 8000, "# " * 4000, "x" * 8000):
        assert len(title(tx, hostile)) <= 200


def test_errors_that_differ_only_in_values_are_one_group(tx: Connection) -> None:
    ids = [fail(tx, f"card {n} of 'user {n}' declined") for n in range(3)]
    fail(tx, "no answer")
    first, second = groups(tx)
    assert (first["title"], first["errors"], first["ended"]) == ("card # of … declined", 3, 3)
    assert (first["type_errors"], second["type_errors"], second["errors"]) == (4, 4, 1)
    assert (first["example_id"], sum(first["trend"])) == (ids[-1], 3)


@pytest.mark.parametrize(
    "other", [{"type_": "shop.refund"}, {"kind": "timeout"}, {"exception": "shop.Declined"}]
)
def test_type_kind_and_exception_make_groups_of_their_own(tx: Connection, other: Row) -> None:
    fail(tx, "no answer 1")
    fail(tx, "no answer 2", **other)
    assert [group["errors"] for group in groups(tx)] == [1, 1]


def test_a_failed_attempt_that_is_retried_counts_but_has_not_ended_its_task(tx: Connection) -> None:
    fail(tx, "later", how="retry")
    (group,) = groups(tx)
    assert (group["errors"], group["ended"]) == (1, 0)


def test_a_run_that_was_killed_by_an_act_is_no_error(tx: Connection) -> None:
    fail(tx, "it was cancelled", kind="killed_on_cancel")
    fail(tx, "it declined", kind="cancelled_by_handler", how="cancelled")
    assert groups(tx) == []


def test_only_errors_since_a_time_are_listed(tx: Connection, clock: Clock) -> None:
    fail(tx, "old")
    fail(tx, "both")
    since = clock.advance(3600)
    fail(tx, "both")
    assert [(group["title"], group["errors"]) for group in groups(tx, since=since)] == [("both", 1)]
    assert {group["title"]: group["errors"] for group in groups(tx)} == {"old": 1, "both": 2}


def test_a_type_is_a_filter(tx: Connection) -> None:
    fail(tx, "one", "shop.a")
    fail(tx, "two", "mail.b")
    (group,) = groups(tx, type_prefix="mail.")
    assert (group["title"], group["type_errors"]) == ("two", 1)


def test_messages_without_end_leave_room_for_what_is_frequent(tx: Connection) -> None:
    words = ["".join(chr(97 + n // 26**place % 26) for place in range(3)) for n in range(105)]
    for word in words:
        fail(tx, f"never heard of {word}")
    for _ in range(2):
        fail(tx, "no answer")
    found = groups(tx, max_groups=2)
    assert [(group["errors"], group["type_errors"]) for group in found] == [(2, 107), (1, 107)]
    assert len(groups(tx, max_groups=1000)) == 106


def test_the_newest_errors_are_counted_and_since_when_is_told(tx: Connection, clock: Clock) -> None:
    fail(tx, "old")
    clock.advance(60)
    task_id = fail(tx, "new")
    assert [group["counted_since"] for group in groups(tx)] == [None, None]
    oldest = value(tx, "select occurred_at from queues.error where task_id = %s", [task_id])
    tx.execute(
        """
        insert into queues.error (task_id, occurred_at, attempt, recovered, kind, message, error_group)
        select e.task_id, e.occurred_at, 1, false, e.kind, e.message, e.error_group
        from queues.error e cross join generate_series(1, 49999) where e.task_id = %s
        """,
        [task_id],
    )
    (group,) = groups(tx)
    assert (group["title"], group["errors"], group["counted_since"]) == ("new", 50_000, oldest)


def test_the_tasks_of_a_group_are_found_by_their_last_error(tx: Connection) -> None:
    ids = [fail(tx, f"card {n} declined") for n in range(3)]
    fail(tx, "no answer")
    act(tx, "retry", ids[0])
    end(tx, claim_one(tx, queues=["shop"]), "failed", error={"message": "no answer"})
    group = next(group for group in groups(tx) if group["title"] == "card # declined")
    (found,) = call(tx, "queues.find_tasks", {"error_group": group["error_group"], "status": "failed"})
    assert found["task_ids"] == [ids[2], ids[1]]
    counted = call(tx, "queues.count_tasks", {"error_group": group["error_group"]})
    assert [(row["status"], row["tasks"]) for row in counted] == [("failed", 2)]


def test_a_reader_may_see_groups_and_a_client_may_not(db: Database) -> None:
    fail(db.connect(), "no")
    assert len(call(db.connect("holdfast_reader"), "queues.list_error_groups", {})) == 1
    with pytest.raises(Exception, match="permission denied"):
        call(db.connect("holdfast_client"), "queues.list_error_groups", {})


@pytest.mark.parametrize("max_groups", [0, 1001])
def test_a_number_of_groups_that_cannot_be_meant_is_refused(tx: Connection, max_groups: int) -> None:
    with refused(tx, "QF400", "max_groups"):
        groups(tx, max_groups=max_groups)
