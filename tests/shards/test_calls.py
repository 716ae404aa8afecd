"""What callers may rely on: rights on a shard, whole pages, waits that do not poll, and a lost shard."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import App
from holdfast._engine import AsyncEngine, Engine, Statement, enqueue, leases, queues, schedules, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import NewSchedule
from holdfast._engine.tasks import TaskFilter
from holdfast.errors import NotAllowed, NotFound
from support.leases import ended
from support.sharded import FrontDatabase, lost, run_holdfast


def test_what_a_login_may_do_on_a_shard_is_what_it_may_do_through_the_front(front: FrontDatabase) -> None:
    """It gains nothing by going around the front: it sees only its own tasks."""
    others = Engine(front.connect()).run(enqueue.enqueue(NewTask("billing.charge", shard_key="a")))
    shard = front.shards[others.bytes[11]]
    client = Engine(shard.connect("holdfast_client"))
    own = client.run(enqueue.enqueue(NewTask("billing.charge")))

    assert client.run(tasks.cancel(own)) == "cancelled"
    assert [task.task_id for task in client.run(tasks.list_tasks())] == [own]
    with pytest.raises(NotFound):
        client.run(tasks.cancel(others))
    for call in (leases.claim("w1"), tasks.retry(own), queues.pause("billing")):
        with pytest.raises(NotAllowed):
            client.run(call)
    for statement in (
        "select queues.number_shard('s01', 1, 4)",
        "update queues.shard set shard_number = 1",
        "select * from queues.task",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            client.connection.execute(statement.encode())


def test_pages_stay_whole_while_tasks_are_added_on_all_shards(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    made = [one.task_id for one in engine.run(enqueue.enqueue_many(_keyed("old", 40)))]
    seen: list[UUID] = []
    for n in itertools.count():
        page = engine.run(tasks.find_tasks(TaskFilter(), seen[-1] if seen else None, 7))
        seen += page.task_ids
        if page.next is None:
            break
        engine.run(enqueue.enqueue_many(_keyed(f"new{n}-", 8)))  # newer, on all shards

    assert seen == sorted(made, reverse=True)


def _keyed(prefix: str, count: int) -> list[NewTask]:
    return [NewTask("billing.charge", idempotency_key=f"{prefix}{n}") for n in range(count)]


def test_what_exists_once_is_on_the_first_shard(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    for n in range(6):
        task = NewTask("billing.report", {"n": n})
        engine.run(
            schedules.add_schedule(NewSchedule(name=f"nightly-{n}", task=task, every=timedelta(hours=1)))
        )

    counted = [
        shard.connect().execute("select count(*) from queues.schedule").fetchone() for shard in front.shards
    ]
    assert counted == [(6,), (0,), (0,), (0,)]
    assert len(engine.run(schedules.schedule_status())) == 6


def test_a_result_is_waited_for_on_the_shard_without_polling(
    front: FrontDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_LOOK_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(f"holdfast._connections.waiting.{name}", 3600.0)
    statements: list[str] = []
    run = AsyncEngine.run

    async def counted(self: AsyncEngine, statement: Statement[Any]) -> Any:
        statements.append(statement.sql)
        return await run(self, statement)

    monkeypatch.setattr(AsyncEngine, "run", counted)
    app = App(front.dsn)

    @app.task("billing.charge")
    def charge(n: int) -> int:
        return n

    handle = charge.using(key="k").enqueue(7)
    shard = front.shards[handle.task_id.bytes[11]].connect()
    statements.clear()
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(handle.result, 120)
        while shard.execute("select from queues.waiter").fetchone() is None:
            pass
        [task] = Engine(shard).run(leases.claim("w1", queues=["billing"]))
        Engine(shard).run(leases.finish("w1", [ended(task.task_id, task.token, "succeeded", 7)]))
    app.close()

    assert result.result() == 7
    assert len(statements) <= 6, statements


def test_the_commands_answer_for_the_rest_while_a_shard_is_lost(front: FrontDatabase) -> None:
    made = [Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.charge"))) for shard in front.shards]
    env = {"DATABASE_URL": front.dsn}
    with lost(front, 2) as name:
        why = [run_holdfast("why", str(task_id), env=env) for task_id in made[1:3]]
        health = run_holdfast("health", "--json", env=env)
        metrics = run_holdfast("health", "--metrics", env=env)
        listed = run_holdfast("list", env=env)
        workers = run_holdfast("workers", env=env)

    assert [one.returncode for one in why] == [0, 5]
    assert f"shard {name} cannot be reached" in why[1].stderr
    lines = json.loads(health.stdout)["lines"]
    assert (health.returncode, lines[0]["check_name"], lines[0]["subject"]) == (2, "shard", name)
    assert f'holdfast_health_level{{check_name="shard",subject="{name}"}} 2.0' in metrics.stdout
    assert (listed.returncode, listed.stdout.count("billing.charge")) == (0, 3)
    for partial in (listed, workers):
        assert f"shard {name} cannot be reached, so its part is missing" in partial.stderr


def test_workers_are_printed_with_their_shard(front: FrontDatabase) -> None:
    for n in (0, 3):
        front.shards[n].connect().execute("select queues.register_worker(%s)", [f"w{n}"])
    env = {"DATABASE_URL": front.dsn}
    table = run_holdfast("workers", env=env).stdout.splitlines()
    document = json.loads(run_holdfast("workers", "--json", env=env).stdout)["workers"]

    assert [line.split()[:2] for line in table] == [["shard", "worker_id"], ["s00", "w0"], ["s03", "w3"]]
    assert [one["shard"] for one in document] == ["s00", "s03"]
