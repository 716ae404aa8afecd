"""A process without a supervisor is found, named by health and repaired; one that was cancelled is not."""

from dataclasses import asdict
from typing import Any

import psycopg
import pytest

from holdfast._engine.health import health_line
from support.clock import Clock
from support.comms import Channel, run
from support.database import Database
from support.engine import Connection, Row, act, answer, claim, claim_one, end, rows, value

LOSSES = ["cancelled", "failed", "dead_letter", "deleted", "pruned"]


def _process(channel: Channel) -> str:
    return f"comms.send_{channel.name}"


def _instance(tx: Connection, channel: Channel, send: int) -> Row:
    (row,) = rows(
        tx,
        "select * from queues.process_status where process = %s and process_id = %s",
        [_process(channel), send],
    )
    return row


def _lose(tx: Connection, task_id: Any, how: str) -> None:
    """Let the task of a supervisor end, or go, without the supervisor having run."""
    if how == "cancelled":
        act(tx, "cancel", task_id)
    elif how == "deleted":
        act(tx, "delete_task", task_id)
    elif how == "pruned":
        tx.execute("delete from queues.ready where task_id = %s", [task_id])
        tx.execute("select queues.forget_tasks(array[%s::uuid])", [task_id])
    else:
        left = 1 if how == "failed" else 25
        for _ in range(left):
            tx.execute("update queues.ready set run_at = queues.clock() where task_id = %s", [task_id])
            task = claim_one(tx, queues=["comms"])
            assert task["task_id"] == task_id
            end(tx, task, "failed" if how == "failed" else "retry", error={"message": "no grant"})


def _find(tx: Connection) -> list[str]:
    """Look at every process, and say which have to be repaired."""
    assert rows(tx, "select * from queues.find_orphans()") == [{"process": None, "process_id": None}]
    return [row["process"] for row in rows(tx, "select process from queues.processes_to_repair()")]


def _repair(tx: Connection, channel: Channel) -> int:
    told = run(tx, f"comms.repair_send_{channel.name}", {"max_processes": 100})
    return int(told["payload"]["repaired"])


def _health(tx: Connection) -> dict[str, Row]:
    found = rows(tx, "select * from queues.health_of_processes(queues.clock())")
    return {row["check_name"]: asdict(health_line(**row)) for row in found}


@pytest.mark.parametrize("how", LOSSES)
def test_a_supervisor_that_is_lost_before_its_first_run_is_enqueued_again(
    tx: Connection, channel: Channel, clock: Clock, how: str
) -> None:
    send = channel.kick_off(tx)
    assert _find(tx) == []
    _lose(tx, _instance(tx, channel, send)["task_id"], how)

    assert _find(tx) == [_process(channel)]
    assert _instance(tx, channel, send)["trouble"] == "orphaned"
    assert _repair(tx, channel) == 1
    assert _find(tx) == []
    row = _instance(tx, channel, send)
    assert (row["trouble"], row["repairs"], row["status"]) == (None, 1, "scheduled")
    task = claim_one(tx, queues=["comms"])
    assert task["task_id"] == row["task_id"]
    run(tx, channel.supervisor, task["payload"])
    assert channel.decisions(tx, send) == ["attempt"]
    assert _instance(tx, channel, send)["repairs"] == 0


@pytest.mark.parametrize("how", LOSSES)
def test_a_supervisor_that_is_lost_on_the_way_is_enqueued_again_and_the_send_ends(
    tx: Connection, channel: Channel, clock: Clock, how: str
) -> None:
    send = channel.kick_off(tx)
    claim(tx, queues=["comms"])
    channel.supervise(tx, send)
    claim(tx, queues=["comms"])
    _lose(tx, _instance(tx, channel, send)["task_id"], how)
    channel.succeed(tx, send)

    assert _find(tx) == [_process(channel)]
    assert _repair(tx, channel) == 1
    task = claim_one(tx, queues=["comms"])
    run(tx, channel.supervisor, task["payload"])
    assert channel.decisions(tx, send) == ["attempt", "succeeded"]
    assert _instance(tx, channel, send)["status"] == "succeeded"
    assert _find(tx) == []


def test_health_names_it_until_it_is_repaired(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = channel.kick_off(tx)
    assert _health(tx) == {}
    _lose(tx, _instance(tx, channel, send)["task_id"], "cancelled")
    _find(tx)

    line = _health(tx)["orphaned_process"]
    assert (line["level"], line["subject"]) == ("amber", _process(channel))
    clock.advance(3 * 86400)
    _find(tx)
    line = _health(tx)["orphaned_process"]
    assert (line["level"], line["value"]) == ("red", 3 * 86400)
    assert f"holdfast process show {_process(channel)} {send}" in line["advice"]
    _repair(tx, channel)
    assert _health(tx) == {}


def test_a_supervisor_that_fails_is_named_until_it_has_run(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx)
    task = claim_one(tx, queues=["comms"])
    end(tx, task, "retry", error={"message": "relation is missing"})
    assert _find(tx) == []

    line = _health(tx)["failing_supervisor"]
    assert (line["level"], line["subject"]) == ("amber", _process(channel))
    assert "relation is missing" in line["error"]
    clock.advance(3600)
    assert _health(tx)["failing_supervisor"]["level"] == "red"
    channel.supervise(tx, send)
    _find(tx)
    assert _health(tx) == {}


def test_a_repair_that_does_not_help_is_repeated_ever_more_seldom(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx)
    waits = []
    for _ in range(12):
        _lose(tx, _instance(tx, channel, send)["task_id"], "cancelled")
        _find(tx)
        seconds = 0
        while not _repair(tx, channel):
            seconds += 15
            clock.advance(15)
        waits.append(seconds)
    assert waits == [0, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]


def test_what_came_back_to_life_meanwhile_is_left_alone(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    task_id = _instance(tx, channel, send)["task_id"]
    act(tx, "cancel", task_id)
    _find(tx)
    act(tx, "retry", task_id)

    assert _repair(tx, channel) == 0
    assert _find(tx) == []
    assert _instance(tx, channel, send)["trouble"] is None


def test_one_chain_goes_on_even_if_the_lost_task_is_restored_after_the_repair(
    tx: Connection, channel: Channel
) -> None:
    send = channel.kick_off(tx)
    claim(tx, queues=["comms"])
    channel.supervise(tx, send)
    lost = _instance(tx, channel, send)["task_id"]
    act(tx, "delete_task", lost)
    _find(tx)
    _repair(tx, channel)
    act(tx, "restore_task", lost)

    tasks = [
        t for t in channel.tasks(tx, send, channel.supervisor) if t["status"] in ("pending", "scheduled")
    ]
    assert len(tasks) == 2
    decisions = [run(tx, channel.supervisor, task["payload"])["payload"]["decision"] for task in tasks]
    assert sorted(decisions) == ["none", "wait"]


def test_it_looks_at_so_many_at_a_time_and_goes_on_where_it_stopped(tx: Connection, channel: Channel) -> None:
    sends = [channel.kick_off(tx) for _ in range(5)]
    for send in sends:
        act(tx, "cancel", _instance(tx, channel, send)["task_id"])

    after: Row = {"process": None, "process_id": None}
    seen = 0
    while True:
        (after,) = rows(
            tx, "select * from queues.find_orphans(%s, %s, 2)", [after["process"], after["process_id"]]
        )
        seen += 1
        if after["process"] is None:
            break
    assert seen == 3
    assert value(tx, "select count(*) from queues.process_instance where trouble = 'orphaned'") == 5
    assert run(tx, f"comms.repair_send_{channel.name}", {"max_processes": 3})["payload"] == {"repaired": 3}


def test_a_send_that_was_cancelled_stays_so(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    claim(tx, queues=["comms"])
    channel.supervise(tx, send)
    waiting = _instance(tx, channel, send)["task_id"]

    assert (
        answer(tx, f"comms.cancel_{channel.root}", {f"{channel.root}_id": send, "reason": "typo"})
        == "cancelled"
    )
    row = _instance(tx, channel, send)
    assert (row["status"], row["task_id"], row["ended_at"] is None) == ("cancelled", None, False)
    assert "typo" in row["reason"]
    assert channel.status(tx, send)["status"] == "cancelled"
    before = run(tx, channel.handler("before"), {f"{channel.root}_id": send, "attempt": 1})
    assert "has ended" in before["validation_failure_message"]
    assert (
        run(tx, channel.supervisor, {f"{channel.root}_id": send, "run": 2})["payload"]["decision"] == "none"
    )
    act(tx, "cancel", waiting)
    assert _find(tx) == []
    assert answer(tx, f"comms.cancel_{channel.root}", {f"{channel.root}_id": send}) == "cancelled"
    assert channel.decisions(tx, send) == ["attempt", "cancelled"]


def test_a_send_that_has_ended_is_not_cancelled(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.succeed(tx, send)
    channel.supervise(tx, send)

    assert answer(tx, f"comms.cancel_{channel.root}", {f"{channel.root}_id": send}) == "succeeded"


def test_a_send_of_another_login_cannot_be_cancelled_and_an_operator_may(
    db: Database, channel: Channel
) -> None:
    client, operator = db.connect("holdfast_client"), db.connect("holdfast_operator")
    own, others = channel.kick_off(client), channel.kick_off(db.connect())
    cancel = f"comms.cancel_{channel.root}"

    with pytest.raises(psycopg.Error, match=f"there is no {channel.root} {others}"):
        answer(client, cancel, {f"{channel.root}_id": others})
    assert answer(client, cancel, {f"{channel.root}_id": own}) == "cancelled"
    assert answer(operator, cancel, {f"{channel.root}_id": others}) == "cancelled"
    seen = rows(client, "select process_id from queues.process_status")
    assert seen == [{"process_id": own}]


def test_who_waits_is_told_of_the_end_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    key = _instance(tx, channel, send)["wait_key"]
    told = rows(tx, "select * from queues.watch_processes(array[%s::uuid])", [key])
    assert told == [{"wait_key": key, "status": "scheduled"}]
    channel.supervise(tx, send)
    assert value(tx, "select count(*) from queues.waiter") == 1
    channel.succeed(tx, send)
    channel.supervise(tx, send)
    assert value(tx, "select count(*) from queues.waiter") == 0
    told = rows(tx, "select * from queues.watch_processes(array[%s::uuid])", [key])
    assert told == [{"wait_key": key, "status": "succeeded"}]
    assert value(tx, "select count(*) from queues.waiter") == 0


def test_what_ended_long_ago_is_forgotten_and_its_facts_are_not(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    ended, open_one = channel.kick_off(tx), channel.kick_off(tx)
    answer(tx, f"comms.cancel_{channel.root}", {f"{channel.root}_id": ended})
    assert value(tx, "select queues.prune_processes()") == 0
    clock.advance(91 * 86400)
    assert value(tx, "select queues.prune_processes()") == 1
    assert value(tx, "select array_agg(process_id) from queues.process_instance") == [open_one]
    assert channel.decisions(tx, ended) == ["cancelled"]
