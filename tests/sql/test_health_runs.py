"""What queues.health says of single runs: those that workers report, and malformed messages."""

from support.clock import Clock
from support.engine import Connection, call, claim, claim_one, end, enqueue, enqueue_many, heartbeat, held
from support.health import checks, line, register


def test_a_run_that_its_worker_reports_as_troubled_is_named(tx: Connection, clock: Clock) -> None:
    register(tx)
    register(tx, "w2")
    enqueue_many(tx, [{"type": "work.sick"}] * 2)
    sick, other = claim(tx, "w1", max_tasks=2, queues=["work"])
    clock.advance(5)

    heartbeat(tx, [*held(sick, trouble="run_not_read"), *held(other, trouble="unheard_of")])
    found = line(tx, "troubled_run")
    assert (found["subject"], found["level"], found["value"]) == (str(sick["task_id"]), "amber", 5)
    assert "run_not_read" in found["message"]
    assert f"holdfast cancel {sick['task_id']}" in found["advice"]

    call(tx, "queues.heartbeat", {"worker_id": "w1", "held": held(other), "complete": False})
    assert "troubled_run" in checks(tx)
    heartbeat(tx, held(sick, other))
    assert "troubled_run" not in checks(tx)


def test_a_worker_cannot_name_the_runs_of_others_as_troubled(tx: Connection, clock: Clock) -> None:
    register(tx)
    register(tx, "w2")
    enqueue(tx, "work.well")
    well = claim_one(tx, queues=["work"])

    heartbeat(tx, held(well, trouble="run_not_read"), worker_id="w2")
    assert "troubled_run" not in checks(tx)


def test_a_task_that_wrote_a_malformed_message_is_named_for_ten_minutes(tx: Connection, clock: Clock) -> None:
    task_id = enqueue(tx, "work.forger")
    task = claim_one(tx, queues=["work"])
    end(tx, task, "failed", error={"kind": "envelope_malformed", "message": "no JSON"})

    found = line(tx, "troubled_run", str(task_id))
    assert (found["level"], found["error"]) == ("amber", "no JSON")
    assert "work.forger" in found["message"]
    clock.advance(601)
    assert "troubled_run" not in checks(tx)
