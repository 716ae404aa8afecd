"""queues.count_errors and queues.list_error_groups: errors that differ only in values are one group."""

from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    answer,
    call,
    claim_one,
    end,
    enqueue,
    refused,
    rows,
    value,
)


def fail(conn: Connection, message: str, type_: str = "shop.pay", how: str = "failed", **error: Any) -> UUID:
    task_id = enqueue(conn, type_)
    task = claim_one(conn, type_prefixes=[type_])
    end(conn, task, how, error={"kind": "handler_error", "message": message, **error})
    return task_id


def groups(conn: Connection, **filters: Any) -> list[Row]:
    answer(conn, "queues.count_errors", {})
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


def test_errors_are_counted_once_however_often_it_is_called(tx: Connection) -> None:
    fail(tx, "no 1")
    assert [answer(tx, "queues.count_errors", {"max_errors": 1}) for _ in range(3)] == [1, 0, 0]
    fail(tx, "no 2")
    (group,) = groups(tx)
    assert (group["errors"], sum(group["trend"])) == (2, 2)


def test_an_error_that_commits_after_a_later_one_is_counted(db: Database) -> None:
    slow, fast = db.connect(), db.connect()
    with slow.transaction():
        fail(slow, "slow")
        fail(fast, "fast", "shop.fast")
        assert [group["title"] for group in groups(fast)] == ["fast"]
    assert {group["title"] for group in groups(fast)} == {"slow", "fast"}
    assert rows(fast, "select from queues.error_gap") == []


def test_an_error_that_was_rolled_back_is_forgotten(db: Database) -> None:
    slow, fast = db.connect(), db.connect()
    with slow.transaction(force_rollback=True):
        fail(slow, "slow")
        fail(fast, "fast", "shop.fast")
        groups(fast)
        assert len(rows(fast, "select from queues.error_gap")) == 1
    assert [group["title"] for group in groups(fast)] == ["fast"]
    assert rows(fast, "select from queues.error_gap") == []


def test_two_sessions_do_not_count_the_same_errors(db: Database) -> None:
    one, other = db.connect(), db.connect()
    fail(one, "no")
    with one.transaction():
        assert answer(one, "queues.count_errors", {}) == 1
        assert answer(other, "queues.count_errors", {}) == 0
    assert answer(other, "queues.count_errors", {}) == 0


def test_only_errors_since_a_time_are_listed(tx: Connection, clock: Clock) -> None:
    fail(tx, "old")
    fail(tx, "both")
    since = clock.advance(3600)
    fail(tx, "both")
    assert [(group["title"], group["errors"]) for group in groups(tx, since=since)] == [("both", 1)]
    assert {group["title"]: group["errors"] for group in groups(tx)} == {"old": 1, "both": 2}


def test_a_type_and_a_group_are_filters(tx: Connection) -> None:
    fail(tx, "one", "shop.a")
    fail(tx, "two", "mail.b")
    (group,) = groups(tx, type_prefix="mail.")
    assert group["title"] == "two"
    assert [one["title"] for one in groups(tx, only_group=group["error_group"])] == ["two"]


def test_messages_without_end_do_not_make_groups_without_end(tx: Connection) -> None:
    words = ["".join(chr(97 + n // 26**place % 26) for place in range(3)) for n in range(105)]
    for word in words:
        fail(tx, f"never heard of {word}")
    found = groups(tx, max_groups=1000)
    assert (len(found), sum(group["errors"] for group in found)) == (101, 105)
    assert [(group["kind"], group["title"]) for group in found if group["errors"] > 1] == [("other", "")]


def test_the_tasks_of_the_group_of_all_other_errors_are_found(tx: Connection) -> None:
    words = ["".join(chr(97 + n // 26**place % 26) for place in range(3)) for n in range(103)]
    for word in words:
        fail(tx, f"never heard of {word}")
    fail(tx, "it was cancelled", kind="killed_on_cancel")
    fail(tx, "never heard of it", type_="mail.send")
    (other,) = [group for group in groups(tx, max_groups=1000) if group["kind"] == "other"]
    found = call(tx, "queues.find_tasks", {"error_group": other["error_group"]})[0]["task_ids"]
    assert (other["errors"], len(found)) == (3, 3)
    assert other["example_id"] in found


def test_counts_become_hours_after_a_day_and_are_forgotten_after_thirty(tx: Connection, clock: Clock) -> None:
    for _ in range(3):
        fail(tx, "no")
        clock.advance(60)
    answer(tx, "queues.count_errors", {})
    clock.advance(26 * 3600)
    (group,) = groups(tx, since=clock.after(-48 * 3600))
    assert group["errors"] == 3
    assert len(rows(tx, "select distinct bucket_at from queues.error_count")) <= 2
    clock.advance(31 * 86400)
    assert groups(tx) == []
    assert rows(tx, "select from queues.error_count union all select from queues.error_group") == []


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


def test_a_worker_may_count_and_a_client_may_not_see_groups(db: Database) -> None:
    fail(db.connect(), "no")
    assert answer(db.connect("holdfast_worker"), "queues.count_errors", {}) == 1
    assert len(call(db.connect("holdfast_reader"), "queues.list_error_groups", {})) == 1
    with pytest.raises(Exception, match="permission denied"):
        call(db.connect("holdfast_client"), "queues.list_error_groups", {})


@pytest.mark.parametrize("max_errors", [0, 10_001])
def test_a_batch_that_cannot_be_meant_is_refused(tx: Connection, max_errors: int) -> None:
    with refused(tx, "QF400", "max_errors"):
        answer(tx, "queues.count_errors", {"max_errors": max_errors})
