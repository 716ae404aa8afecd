"""queues.finish: settles results against their tokens; content never keeps a task from ending."""

import json
from typing import Any

import psycopg
import pytest

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    JsonText,
    Row,
    act,
    change_setting,
    claim,
    claim_one,
    counts,
    end,
    enqueue,
    enqueue_many,
    finish,
    heartbeat,
    held,
    refused,
    rows,
    status,
    sweep,
    value,
)


def _claimed(tx: Connection, **arguments: Any) -> Row:
    enqueue(tx, **arguments)
    return claim_one(tx)


def test_succeeded_keeps_the_result(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    clock.advance(3)

    assert end(tx, task, "succeeded", result={"sum": 42}) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["result"], now["finished_at"]) == ("succeeded", {"sum": 42}, clock.now)
    assert (now["error"], now["lease_until"], now["worker_id"], now["attempt"]) == (None, None, "w1", 1)


@pytest.mark.parametrize("result", [None, 0, False, "", [], {}, "text", 1.5, {"deep": [1, {"a": None}]}])
def test_a_result_may_be_any_json(tx: Connection, result: Any) -> None:
    task = _claimed(tx)

    assert end(tx, task, result=result) == "accepted"
    assert status(tx, task["task_id"])["result"] == result


def test_failed_ends_at_once_whatever_attempts_are_left(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, max_attempts=9)

    assert end(tx, task, "failed", error={"kind": "no_handler_registered", "message": "none"}) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["last_error"], now["reason"]) == ("failed", "none", "none")
    assert now["error"]["kind"] == "no_handler_registered"
    assert claim(tx) == []


def test_retry_puts_it_back_until_its_time(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)

    assert end(tx, task, "retry", error="broke", run_at=clock.after(60)) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["run_at"], now["attempt"]) == ("retrying", clock.after(60), 1)
    assert claim(tx) == []
    clock.advance(60)
    assert claim_one(tx)["attempt"] == 2


def test_retry_of_the_last_attempt_is_a_dead_letter(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, max_attempts=1)

    assert end(tx, task, "retry", error="broke", run_at=clock.after(60)) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["finished_at"], now["last_error"]) == ("dead_letter", clock.now, "broke")


def test_snooze_puts_it_back_and_uses_no_attempt(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, max_attempts=1)

    assert end(tx, task, "snooze", run_at=clock.after(60)) == "accepted"

    now = status(tx, task["task_id"])
    assert (now["status"], now["attempt"], now["run_at"]) == ("scheduled", 0, clock.after(60))
    clock.advance(60)
    assert claim_one(tx)["attempt"] == 1


def test_cancelled_ends_it_with_the_workers_reason(tx: Connection) -> None:
    task = _claimed(tx)

    assert end(tx, task, "cancelled", error="not wanted any more") == "accepted"
    assert status(tx, task["task_id"])["status"] == "cancelled"
    assert status(tx, task["task_id"])["reason"] == "not wanted any more"


def test_a_batch_may_be_mixed_and_its_verdicts_come_in_its_order(tx: Connection, clock: Clock) -> None:
    enqueue_many(tx, [{"type": "default.work", "payload": {"n": n}} for n in range(7)])
    tasks = claim(tx, max_tasks=7)
    act(tx, "cancel", tasks[5]["task_id"])
    end(tx, tasks[6])
    given = ["failed", "snooze", "succeeded", "cancelled", "retry", "succeeded", "succeeded"]
    results = [
        {**held(task)[0], "status": ending, "result": {"n": n}, "run_at": clock.after(9)}
        for n, (task, ending) in enumerate(zip(tasks, given, strict=True))
    ]
    unknown = {"task_id": "00000000-0000-7000-8000-000000000000", "token": 1, "status": "succeeded"}

    verdicts = finish(tx, [unknown, *results[::-1]])

    assert verdicts == ["lost", "already_done", "cancelled", *["accepted"] * 5]
    assert [status(tx, task["task_id"])["status"] for task in tasks] == [
        *("failed", "scheduled", "succeeded", "cancelled", "retrying", "cancelled", "succeeded"),
    ]
    assert status(tx, tasks[2]["task_id"])["result"] == {"n": 2}


def test_a_batch_that_all_succeeded_answers_in_its_order(tx: Connection) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 20)
    tasks = claim(tx, max_tasks=20)[::-1]

    answers = rows(
        tx,
        "select * from queues.finish('w1', %s::jsonb)",
        [json.dumps(held(*tasks, status="succeeded"), default=str)],
    )

    assert [answer["task_id"] for answer in answers] == [task["task_id"] for task in tasks]
    assert {answer["verdict"] for answer in answers} == {"accepted"}


def test_an_empty_batch_is_fine(tx: Connection) -> None:
    assert finish(tx, []) == []


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_a_task_named_twice_is_settled_once(tx: Connection, clock: Clock, ending: str) -> None:
    task = _claimed(tx)
    result = held(task, status=ending, run_at=clock.after(60))[0]

    assert sorted(finish(tx, [result, result])) == ["accepted", "already_done"]


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_repeating_an_accepted_call_changes_nothing_and_says_so(
    tx: Connection, clock: Clock, ending: str
) -> None:
    task = _claimed(tx)
    again: dict[str, Any] = {"status": ending, "run_at": clock.after(60), "error": "broke"}
    assert end(tx, task, **again) == "accepted"
    before, told = counts(tx), status(tx, task["task_id"])
    clock.advance(5)

    assert end(tx, task, **again) == "already_done"
    assert (counts(tx), status(tx, task["task_id"])) == (before, told)


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_it_says_already_done_also_when_the_task_has_gone_on(
    tx: Connection, clock: Clock, ending: str
) -> None:
    task = _claimed(tx)
    end(tx, task, ending, run_at=clock.now)
    if ending in {"failed", "cancelled"}:
        act(tx, "retry", task["task_id"])
    later = claim(tx)

    assert end(tx, task, ending, run_at=clock.now) == "already_done"
    assert heartbeat(tx, held(*later)) == ["held"] * len(later)


def test_an_accepted_retry_of_the_last_attempt_can_be_repeated(tx: Connection) -> None:
    task = _claimed(tx, max_attempts=1)
    end(tx, task, "retry")

    assert end(tx, task, "retry") == "already_done"


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_with_a_wrong_token_nothing_changes(tx: Connection, clock: Clock, ending: str) -> None:
    task = _claimed(tx)
    before, told = counts(tx), status(tx, task["task_id"])

    for token in (task["token"] + 1, task["token"] - 1, 0, -1, 2**62):
        assert end(tx, {**task, "token": token}, ending) == "lost"
    assert (counts(tx), status(tx, task["task_id"])) == (before, told)


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_another_worker_cannot_settle_it_even_with_the_token(tx: Connection, ending: str) -> None:
    task = _claimed(tx)

    assert end(tx, task, ending, worker_id="somebody else") == "lost"
    assert end(tx, task, ending) == "accepted"


def test_a_lease_that_ended_but_was_not_taken_away_still_counts(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    clock.advance(3600)

    assert end(tx, task) == "accepted"


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_after_it_was_put_back_the_former_holder_has_lost_it(
    tx: Connection, clock: Clock, ending: str
) -> None:
    task = _claimed(tx)
    clock.advance(31)
    sweep(tx)
    before, told = counts(tx), status(tx, task["task_id"])

    assert end(tx, task, ending) == "lost"
    assert (counts(tx), status(tx, task["task_id"])) == (before, told)


def test_the_second_holders_result_stands(tx: Connection, clock: Clock) -> None:
    former = _claimed(tx)
    clock.advance(31)
    sweep(tx)
    present = claim_one(tx)

    assert end(tx, former, result="of the former") == "lost"
    assert end(tx, present, result="of the present") == "accepted"
    assert end(tx, former, result="of the former") == "lost"
    assert status(tx, former["task_id"])["result"] == "of the present"


def test_the_same_worker_that_claimed_it_again_is_fenced_from_its_own_past(
    tx: Connection, clock: Clock
) -> None:
    former = _claimed(tx)
    clock.advance(31)
    sweep(tx)
    present = claim_one(tx)

    assert finish(tx, [*held(former, status="failed"), *held(present, status="succeeded")]) == [
        "lost",
        "accepted",
    ]
    assert status(tx, former["task_id"])["status"] == "succeeded"


def test_a_late_finish_of_a_dead_letter_is_lost(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx, max_attempts=1)
    clock.advance(31)
    sweep(tx)

    assert end(tx, task) == "lost"
    assert status(tx, task["task_id"])["status"] == "dead_letter"


@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "snooze", "cancelled"])
def test_a_late_finish_does_not_change_a_cancelled_task(tx: Connection, ending: str) -> None:
    task = _claimed(tx)
    act(tx, "cancel", task["task_id"], reason="no longer needed")

    assert end(tx, task, ending, result="late") == "cancelled"

    now = status(tx, task["task_id"])
    assert (now["status"], now["reason"], now["result"]) == ("cancelled", "no longer needed", None)


def test_a_cancelled_task_that_was_retried_is_still_cancelled_for_its_former_holder(tx: Connection) -> None:
    task = _claimed(tx)
    act(tx, "cancel", task["task_id"])
    act(tx, "retry", task["task_id"])

    assert end(tx, task) == "cancelled"
    assert status(tx, task["task_id"])["status"] == "pending"


@pytest.mark.parametrize(("ending", "parked"), [("retry", True), ("snooze", True), ("succeeded", False)])
def test_a_task_deleted_while_it_ran_ends_or_is_parked(tx: Connection, ending: str, parked: bool) -> None:
    task = _claimed(tx)
    act(tx, "delete_task", task["task_id"])

    assert end(tx, task, ending) == "accepted"

    assert counts(tx)["ready"] == 0
    assert counts(tx)["outcome"] == (0 if parked else 1)
    assert status(tx, task["task_id"])["deleted_at"] is not None


UNREADABLE = {
    "too large": JsonText('"' + "x" * 1_100_000 + '"'),
    "too deep": JsonText("[" * 70 + "]" * 70),
    "1e400": JsonText("[1e400]"),
    "1e-400": JsonText("[1e-400]"),
    "1e131071 many times": JsonText("[" + ",".join(["1e131071"] * 300) + "]"),
    "0e-16383 many times": JsonText("[" + ",".join(["0e-16383"] * 300) + "]"),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("ending", ["succeeded", "failed", "retry", "cancelled"])
def test_a_result_that_nobody_could_read_is_replaced_and_the_task_ends(
    tx: Connection, content: str, ending: str
) -> None:
    task = _claimed(tx, max_attempts=1)
    result = JsonText(
        f'[{{"task_id": "{task["task_id"]}", "token": {task["token"]}, "status": "{ending}",'
        f' "result": {content}}}]'
    )

    assert finish(tx, result) == ["accepted"]

    now = status(tx, task["task_id"])
    assert now["status"] == ("dead_letter" if ending == "retry" else ending)
    assert now["result"]["holdfast"] == "not stored"
    assert now["result"]["reason"].startswith("the value ")


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_an_error_that_nobody_could_read_is_replaced_and_the_task_ends(tx: Connection, content: str) -> None:
    task = _claimed(tx)
    result = JsonText(
        f'[{{"task_id": "{task["task_id"]}", "token": {task["token"]}, "status": "failed",'
        f' "error": {content}}}]'
    )

    assert finish(tx, result) == ["accepted"]
    assert status(tx, task["task_id"])["error"]["detail"]["holdfast"] == "not stored"


def test_the_limit_of_a_result_can_be_set(tx: Connection) -> None:
    change_setting(tx, "max_result_bytes", 5000)
    small, large = _claimed(tx), _claimed(tx)

    end(tx, small, result="x" * 4998)
    end(tx, large, result="x" * 4999)

    assert status(tx, small["task_id"])["result"] == "x" * 4998
    assert status(tx, large["task_id"])["result"]["holdfast"] == "not stored"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"kind": "ValueError", "message": "bad"}, "ValueError", "bad"),
        ({"kind": "ValueError"}, "ValueError", "ValueError"),
        ({"message": "bad"}, "handler_error", "bad"),
        ({"what": "ever"}, "handler_error", '{"what": "ever"}'),
        ("bad", "handler_error", "bad"),
        (7, "handler_error", "7"),
        ([1], "handler_error", "[1]"),
        (None, "handler_error", "no message"),
        ({"kind": "k" * 300, "message": "m" * 9000}, "k" * 200, "m" * 8192),
    ],
)
@pytest.mark.parametrize("ending", ["failed", "retry"])
def test_an_error_may_have_any_shape(
    tx: Connection, error: Any, kind: str, message: str, ending: str
) -> None:
    task = _claimed(tx)

    end(tx, task, ending, error=error)

    told = status(tx, task["task_id"])
    assert (told["error"]["kind"], told["last_error"]) == (kind, message)


def test_every_failed_attempt_is_recorded(tx: Connection, clock: Clock) -> None:
    enqueue(tx, max_attempts=3)
    for n in range(3):
        task = claim_one(tx)
        end(tx, task, "retry", error={"message": f"broke {n}", "trace": [n]}, run_at=clock.advance(1))

    errors = rows(
        tx, "select attempt, message, detail, recovered, worker_id from queues.task_error order by 1"
    )
    assert errors == [
        {
            "attempt": n + 1,
            "message": f"broke {n}",
            "detail": {"message": f"broke {n}", "trace": [n]},
            "recovered": False,
            "worker_id": "w1",
        }
        for n in range(3)
    ]


@pytest.mark.parametrize(
    ("attempt", "least", "most"), [(1, 2, 3), (2, 4, 6), (5, 32, 48), (9, 300, 450), (40, 300, 450)]
)
def test_without_a_time_a_retry_backs_off_by_itself(
    tx: Connection, clock: Clock, attempt: int, least: float, most: float
) -> None:
    enqueue(tx, max_attempts=100)
    for _ in range(attempt - 1):
        end(tx, claim_one(tx), "retry", run_at=clock.now)
    task = claim_one(tx)

    end(tx, task, "retry")

    assert clock.after(least) <= status(tx, task["task_id"])["run_at"] <= clock.after(most)


def test_a_back_off_is_spread(tx: Connection) -> None:
    drawn = {value(tx, "select queues.backoff(3)") for _ in range(20)}

    assert len(drawn) > 10


@pytest.mark.parametrize("ending", ["retry", "snooze"])
@pytest.mark.parametrize("junk", ["infinity", "-infinity", "1000-01-01T00:00:00Z", "9999-01-01T00:00:00Z"])
def test_a_time_that_cannot_be_meant_is_now(tx: Connection, clock: Clock, ending: str, junk: str) -> None:
    task = _claimed(tx)

    assert end(tx, task, ending, run_at=junk) == "accepted"
    assert status(tx, task["task_id"])["run_at"] == clock.now


def test_a_snooze_without_a_time_is_due_at_once(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)

    end(tx, task, "snooze")

    assert status(tx, task["task_id"])["run_at"] == clock.now


@pytest.mark.parametrize("ending", ["succeeded", "failed"])
@pytest.mark.parametrize(("told", "kept"), [(-3600, 0), (3600, 5), (2, 2), (None, 0)])
def test_started_at_is_kept_between_the_claim_and_now(
    tx: Connection, clock: Clock, ending: str, told: float | None, kept: float
) -> None:
    task = _claimed(tx)
    told_at, kept_at = None if told is None else clock.after(told), clock.after(kept)
    clock.advance(5)

    end(tx, task, ending, started_at=told_at)

    assert status(tx, task["task_id"])["started_at"] == kept_at


def test_what_a_heartbeat_said_of_the_start_stands(tx: Connection, clock: Clock) -> None:
    task = _claimed(tx)
    started = clock.advance(1)
    heartbeat(tx, held(task, started_at=started))
    clock.advance(1)

    end(tx, task, started_at=clock.now)

    assert status(tx, task["task_id"])["started_at"] == started


@pytest.mark.parametrize("given", [None, {}, 7, "text"])
def test_what_is_not_an_array_is_refused(tx: Connection, given: Any) -> None:
    with refused(tx, "QF400", "results"):
        finish(tx, given)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"status": "done"}, "results[1].status"),
        ({"status": None}, "results[1].status"),
        ({"status": 7}, "results[1].status"),
        ({"status": ["succeeded"]}, "results[1].status"),
        ({"task_id": None}, "results[1].task_id"),
        ({"token": None}, "results[1].token"),
    ],
)
def test_a_result_that_cannot_be_meant_refuses_the_whole_batch(
    tx: Connection, wrong: dict[str, Any], named: str
) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    tasks = claim(tx, max_tasks=2)
    results = held(*tasks, status="succeeded")

    with refused(tx, "QF400", named):
        finish(tx, [results[0], {**results[1], **wrong}])


@pytest.mark.parametrize("missing", ["status", "task_id", "token"])
def test_a_result_that_lacks_a_member_refuses_the_whole_batch(tx: Connection, missing: str) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    one, other = held(*claim(tx, max_tasks=2), status="succeeded")
    del other[missing]

    with refused(tx, "QF400", f"results[1].{missing}"):
        finish(tx, [one, other])


@pytest.mark.parametrize("element", [None, 7, "text", []])
def test_an_element_that_is_not_an_object_refuses_the_whole_batch(tx: Connection, element: Any) -> None:
    task = _claimed(tx)

    with refused(tx, "QF400", "results[1]"):
        finish(tx, [*held(task, status="succeeded"), element])


@pytest.mark.parametrize(
    ("ending", "wrong"),
    [
        *(
            (ending, wrong)
            for ending in ("succeeded", "retry")
            for wrong in ({"task_id": "no uuid"}, {"token": "many"}, {"token": 1e30}, {"started_at": "soon"})
        ),
        ("retry", {"run_at": "soon"}),
        ("retry", {"run_at": "2026-02-30T00:00:00Z"}),
    ],
)
def test_a_member_of_another_type_refuses_the_whole_batch(
    tx: Connection, ending: str, wrong: dict[str, Any]
) -> None:
    enqueue_many(tx, [{"type": "default.work"}] * 2)
    tasks = claim(tx, max_tasks=2)
    results = held(*tasks, status=ending)
    before = counts(tx)

    with pytest.raises(psycopg.DataError), tx.transaction():
        finish(tx, [results[0], {**results[1], **wrong}])
    assert counts(tx) == before


def test_a_batch_over_the_limit_is_refused(tx: Connection) -> None:
    change_setting(tx, "max_batch", 1000)
    results = [{"task_id": "00000000-0000-7000-8000-000000000000", "token": 1, "status": "succeeded"}] * 1001

    assert finish(tx, results[:1000]) == ["lost"] * 1000
    with refused(tx, "QF413", "results has 1001 elements"):
        finish(tx, results)


def test_members_that_the_engine_does_not_know_do_no_harm(tx: Connection) -> None:
    task = _claimed(tx)

    assert end(tx, task, colour="red") == "accepted"


def test_a_finish_commits_to_disk_whatever_the_session_says(tx: Connection) -> None:
    tx.execute("set local synchronous_commit = off")

    finish(tx, [])

    assert value(tx, "show synchronous_commit") == "on"


@pytest.mark.parametrize("next_call", ["claim", "heartbeat", "mark_idle"])
def test_a_finish_commits_to_disk_also_when_the_worker_goes_on_in_its_transaction(
    db: Database, next_call: str
) -> None:
    enqueue(db.connect())
    worker = db.connect("holdfast_worker", autocommit=False)
    task = claim_one(worker)
    worker.commit()

    end(worker, task)
    if next_call == "claim":
        claim(worker)
    elif next_call == "heartbeat":
        heartbeat(worker, [])
    else:
        worker.execute("select queues.mark_idle('w1', true)")

    assert value(worker, "show synchronous_commit") == "on"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_under_stricter_isolation_a_finish_works_or_fails_as_a_whole(db: Database, level: str) -> None:
    admin = db.connect()
    enqueue(admin)
    worker = db.connect("holdfast_worker", autocommit=False)
    task = claim_one(worker)
    worker.commit()
    worker.execute(f"set transaction isolation level {level}".encode())
    worker.execute("select queues.explain(null)")  # takes its snapshot
    act(admin, "cancel", task["task_id"])

    with pytest.raises(psycopg.errors.SerializationFailure):
        end(worker, task)
    worker.rollback()
    assert end(worker, task) == "cancelled"


@pytest.mark.parametrize("ending", ["succeeded", "retry", "snooze", "failed"])
def test_a_task_that_an_application_is_cancelling_is_busy_and_the_others_are_settled(
    db: Database, ending: str
) -> None:
    """The application stays in its transaction; nothing here waits for it."""
    client = db.connect("holdfast_client", autocommit=False)
    own = enqueue(client)
    client.commit()
    enqueue_many(db.connect(), [{"type": "default.work"}] * 2)
    worker = db.connect("holdfast_worker")
    tasks = claim(worker, max_tasks=3)
    act(client, "cancel", own)

    results = [{"task_id": task["task_id"], "token": task["token"], "status": ending} for task in tasks]
    verdicts = dict(zip([task["task_id"] for task in tasks], finish(worker, results), strict=True))
    assert verdicts.pop(own) == "busy"
    assert [*verdicts.values()] == ["accepted", "accepted"]

    client.rollback()
    assert sorted(finish(worker, results)) == ["accepted", "already_done", "already_done"]


def test_a_busy_result_is_cancelled_once_the_application_has_committed(db: Database) -> None:
    client = db.connect("holdfast_client", autocommit=False)
    own = enqueue(client)
    client.commit()
    worker = db.connect("holdfast_worker")
    task = claim_one(worker)
    act(client, "cancel", own)
    assert end(worker, task) == "busy"
    assert end(worker, task, worker_id="w2") == "lost"
    client.commit()
    assert end(worker, task) == "cancelled"
