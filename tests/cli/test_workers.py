"""holdfast workers."""

import os
import signal
import subprocess

from holdfast._engine import Engine, enqueue, leases, workers
from holdfast._engine.enqueue import NewTask
from support.clock import Clock
from support.command import HOLDFAST, IGNORING_INTERRUPTS
from support.commands import Holdfast, answer
from support.database import Database
from support.leases import holding


def test_the_fleet_is_shown_with_its_leader_and_who_is_silent(
    db: Database, engine: Engine, holdfast: Holdfast
) -> None:
    clock = Clock(engine.connection)
    engine.run(workers.register_worker("gone", "node-1", queues=["billing"]))
    clock.advance(61)
    engine.run(workers.register_worker("w1", "node-2", pid=4711, type_prefixes=["mail."], concurrency=8))
    engine.run(workers.lead("w1"))
    engine.run(enqueue.enqueue_many([NewTask("mail.send")] * 2))
    [task] = engine.run(leases.claim("w1", type_prefixes=["mail."]))
    [ahead] = engine.run(leases.claim("w1", type_prefixes=["mail."]))
    begun = holding(task.task_id, task.token, started_at=clock.now)
    engine.run(leases.heartbeat("w1", [begun, holding(ahead.task_id, ahead.token)]))
    clock.advance(5)

    header, gone, live = holdfast("workers").stdout.splitlines()

    assert header.split() == [
        *("worker_id", "state", "running", "serves", "leads", "heard", "started_at", "hostname", "pid"),
    ]
    assert gone.split()[:6] == ["gone", "silent", "0/1", "billing", "66", "s"]
    assert live.split()[:4] == ["w1", "working", "1/8", "+1"]
    assert "term 1, 10 s left  5 s ago" in live


def test_programs_get_every_column(engine: Engine, holdfast: Holdfast) -> None:
    engine.run(workers.register_worker("w1", "node-2", queues=["billing"]))

    [worker] = answer(holdfast("workers", "--json"))["workers"]

    assert (worker["worker_id"], worker["live"], worker["leader"], worker["timeout"]) == (
        "w1",
        True,
        False,
        60,
    )


def test_no_worker_is_no_error(holdfast: Holdfast) -> None:
    assert answer(holdfast("workers", "--json")) == {"workers": []}
    assert "Start one" in holdfast("workers").stdout


def test_to_watch_is_for_people(holdfast: Holdfast) -> None:
    refused = holdfast("workers", "--watch", "--json")
    assert refused.exit_code == 2
    assert "--watch and --json cannot be combined" in refused.stderr


def test_a_reader_may_look(db: Database, holdfast: Holdfast) -> None:
    assert holdfast("workers", url=db.dsn_as("holdfast_reader")).exit_code == 0


def test_it_goes_on_until_it_is_interrupted(db: Database, engine: Engine) -> None:
    engine.run(workers.register_worker("w1", "node-1"))
    watching = subprocess.Popen(
        [*IGNORING_INTERRUPTS, HOLDFAST, "workers", "--watch"],
        env=os.environ | {"DATABASE_URL": db.dsn},
        stdout=subprocess.PIPE,
    )
    assert watching.stdout
    with watching.stdout as shown:
        first = [shown.readline() for _ in range(2)]
        engine.run(workers.register_worker("w2", "node-2"))
        while not shown.readline().startswith(b"w2"):
            pass
        watching.send_signal(signal.SIGINT)
    assert first[1].startswith(b"w1")
    assert watching.wait(30) == 0


def test_one_worker_is_shown_with_the_tasks_that_it_holds(engine: Engine, holdfast: Holdfast) -> None:
    clock = Clock(engine.connection)
    engine.run(workers.register_worker("host-1-abc", "node-1", queues=["mail"]))
    engine.run(workers.record_environment("host-1-abc", {"python": "3.12"}))
    engine.run(enqueue.enqueue(NewTask("mail.send", idempotency_key="letter-7")))
    [task] = engine.run(leases.claim("host-1-abc", queues=["mail"]))
    engine.run(leases.heartbeat("host-1-abc", [holding(task.task_id, task.token, started_at=clock.now)]))
    clock.advance(5)

    shown = holdfast("workers", "show", "abc").stdout

    for expected in ("host-1-abc", "working", str(task.task_id), "letter-7", "5 s", '"python": "3.12"'):
        assert expected in shown
    document = answer(holdfast("workers", "show", "host-1-abc", "--json"))
    assert [one["task_id"] for one in document["held"]] == [str(task.task_id)]
    assert document["environment"] == {"python": "3.12"}


def test_an_unknown_worker_is_refused_with_those_that_exist(engine: Engine, holdfast: Holdfast) -> None:
    engine.run(workers.register_worker("w1", "node-1", queues=["mail"]))
    refused = holdfast("workers", "show", "w2")
    assert refused.exit_code == 2
    assert "there is no worker 'w2'" in refused.stderr
    assert "w1" in refused.stderr
