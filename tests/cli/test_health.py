"""holdfast health and holdfast why: each trouble is named, and a task that waits for it is explained."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from typer.testing import Result

from holdfast._engine import Engine, enqueue, leases, queues, schedules, tasks, workers
from holdfast._engine.activity import take_sample
from holdfast._engine.enqueue import NewTask
from support.clock import Clock
from support.commands import Holdfast, run
from support.database import Database
from support.engine import answer
from support.leases import ended
from support.outbox import subscribe


@pytest.fixture
def clock(db: Database) -> Clock:
    return Clock(db.connect())


@pytest.fixture
def health(db: Database) -> Callable[..., Result]:
    """As somebody who may only read."""
    return lambda *options: run("health", *options, url=db.dsn_as("holdfast_reader"))


def lines(result: Result) -> dict[str, dict[str, Any]]:
    return {line["check_name"]: line for line in json.loads(result.stdout)["lines"]}


@pytest.fixture
def busy(engine: Engine, clock: Clock) -> Engine:
    """A worker serves the queue `billing`, and leads."""
    engine.run(workers.register_worker("w1", "host", queues=["billing"]))
    engine.run(workers.lead("w1"))
    return engine


def test_all_is_well(busy: Engine, health: Callable[..., Result]) -> None:
    result = health()
    assert (result.exit_code, result.stdout.startswith("GREEN: ")) == (0, True), result.output
    assert "workers" in health("--all").stdout


def test_programs_get_a_document(busy: Engine, health: Callable[..., Result]) -> None:
    result = health("--json")
    assert (result.exit_code, json.loads(result.stdout)["level"]) == (0, "green")
    assert lines(result)["workers"]["value"] == 1


def test_a_paused_queue(
    busy: Engine, health: Callable[..., Result], holdfast: Holdfast, task_id: UUID
) -> None:
    busy.run(queues.pause("billing", "the provider is down"))

    result = health()
    assert result.exit_code == 1
    assert "queue billing was paused" in result.stdout
    assert "the provider is down" in result.stdout
    assert "holdfast resume billing" in result.stdout
    assert "Queue billing was paused" in holdfast("why", str(task_id)).stdout


def test_a_missing_subscription(
    busy: Engine, clock: Clock, health: Callable[..., Result], holdfast: Holdfast
) -> None:
    task_id = busy.run(enqueue.enqueue(NewTask("mail.send")))
    clock.advance(59)
    busy.run(leases.heartbeat("w1", []))
    clock.advance(1)

    result = health()
    assert result.exit_code == 2
    assert "no live worker subscribes to queue mail" in result.stdout
    assert "--queues mail" in result.stdout
    assert "no live worker subscribes to queue mail" in holdfast("why", str(task_id)).stdout


def test_a_long_open_transaction(
    busy: Engine, db: Database, clock: Clock, health: Callable[..., Result], holdfast: Holdfast
) -> None:
    task_id = busy.run(enqueue.enqueue(NewTask("billing.charge")))
    holder = db.connect("holdfast_operator", autocommit=False)
    Engine(holder).run(tasks.reschedule(task_id, clock.now))
    for _ in range(70):
        busy.run(take_sample())
        clock.advance(60)
    busy.run(leases.heartbeat("w1", []))

    result = health()
    assert result.exit_code == 2
    session = f"session {holder.info.backend_pid} of holdfast_operator_login"
    assert f"{session} has held a snapshot for 1 h 10 min" in result.stdout
    assert f"pg_terminate_backend({holder.info.backend_pid})" in result.stdout
    why = holdfast("why", str(task_id)).stdout
    assert (
        f"session {holder.info.backend_pid} of login holdfast_operator_login has changed or locked it" in why
    )


def test_a_dead_worker(
    busy: Engine, clock: Clock, health: Callable[..., Result], holdfast: Holdfast, task_id: UUID
) -> None:
    busy.run(leases.claim("w1", queues=["billing"]))
    clock.advance(20)
    busy.run(leases.heartbeat("w1", []))
    clock.advance(61)

    result = health()
    assert result.exit_code == 2
    assert "worker w1 on host has been silent for 1 min 1 s" in result.stdout
    assert "The lease has ended" in holdfast("why", str(task_id)).stdout
    busy.run(workers.recover_workers())
    assert "worker w1 on host was lost" in health().stdout


def test_a_dead_worker_whose_leases_go_on(
    busy: Engine, clock: Clock, holdfast: Holdfast, task_id: UUID
) -> None:
    busy.connection.execute("select queues.claim('w1', 1, '{billing}', lease => '1 hour')")
    clock.advance(61)

    assert "That worker has been silent for 1 min 1 s" in holdfast("why", str(task_id)).stdout


def test_a_full_outbox(
    busy: Engine, clock: Clock, health: Callable[..., Result], holdfast: Holdfast, task_id: UUID
) -> None:
    subscribe(busy.connection, "crm", "task.*", "order.*")
    (claimed,) = busy.run(leases.claim("w1", queues=["billing"]))
    busy.run(leases.finish("w1", [ended(claimed.task_id, claimed.token, "succeeded")]))
    busy.connection.execute("select queues.emit('order.created') from generate_series(1, 9999)")

    result = health()
    assert result.exit_code == 2
    assert "10000 or more events wait for subscription crm" in result.stdout
    assert "holdfast dispatch" in result.stdout
    why = holdfast("why", str(task_id)).stdout
    assert "Its event task.succeeded waits for subscription crm" in why
    assert "no dispatcher is live" in why


def test_an_unfinished_task_that_holds_its_schedule_up(
    busy: Engine, clock: Clock, holdfast: Holdfast
) -> None:
    holdfast(
        *("schedules", "add", "nightly", "billing.close", "--every", "1m", "--overlap", "skip"),
    )
    task_id = busy.run(schedules.run_schedule("nightly"))

    assert "schedule nightly skips its times" in holdfast("why", str(task_id)).stdout


def test_the_same_as_metrics(busy: Engine, clock: Clock, health: Callable[..., Result]) -> None:
    busy.run(queues.pause('mail "quoted"'.replace(" ", "_")))
    result = health("--metrics")

    assert result.exit_code == 0
    assert 'holdfast_health_level{check_name="workers",subject=""} 0.0' in result.stdout
    assert 'holdfast_health_value{check_name="workers",subject=""} 1.0' in result.stdout
    assert r'holdfast_health_level{check_name="paused_queue",subject="mail_\"quoted\""} 1.0' in result.stdout


def test_it_is_one_document_or_the_other(health: Callable[..., Result]) -> None:
    assert health("--json", "--metrics").exit_code == 2


def test_whoever_may_not_read_is_told_so(db: Database) -> None:
    refused = run("health", url=db.dsn_as("holdfast_client"))
    assert (refused.exit_code, refused.stdout.split()[:2]) == (2, ["red", "missing_grant"])
    assert "Have a DBA run: grant holdfast_reader to holdfast_client_login;" in refused.stdout


def test_a_sample_tells_the_size(busy: Engine, db: Database) -> None:
    assert answer(db.connect("holdfast_worker"), "queues.take_sample", {}) is True
