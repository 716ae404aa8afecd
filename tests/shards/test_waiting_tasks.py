"""Tasks that wait for others are on their shard: enqueued through a front, or by a run on a shard."""

import os
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import App
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast.errors import InvalidArgument
from support.command import HOLDFAST
from support.engine import call, claim_one
from support.sharded import FrontDatabase

APPLICATION = """
from holdfast import App, SyncContext
app = App()

@app.task("billing.part")
def part(n: int) -> int:
    return n * 2

@app.task("billing.whole")
def whole(ctx: SyncContext, count: int) -> list[str]:
    parts = ctx.map(part, range(count))
    started = ctx.start(part, 7)
    decision = ctx.wait("decision", timeout=120)
    return [str(sum(parts)), str(started.task_id), str(decision)]

@app.task("billing.count")
def count(ctx: SyncContext, left: int) -> str:
    if left:
        ctx.continue_as(left=left - 1)
    return str(ctx.task_id)
"""


@pytest.fixture
def tasks(front: FrontDatabase) -> App:
    app = App(front.dsn)

    @app.task("billing.part")
    def part(n: int) -> int:
        return n * 2

    return app


def test_a_task_waits_only_for_tasks_of_its_own_shard(front: FrontDatabase) -> None:
    ids = [Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.part"))) for shard in front.shards]
    engine = Engine(front.connect())
    (after,) = engine.run(enqueue.enqueue_after([NewTask("billing.part")], [ids[2]], "succeeded"))

    assert after.task_id.bytes[11] == 2
    with pytest.raises(InvalidArgument, match=r"these are on s01, s03\. Give all of them the same shard_key"):
        engine.run(enqueue.enqueue_after([NewTask("billing.part")], [ids[1], ids[3]], "succeeded"))
    batch = engine.run(enqueue.enqueue_many([NewTask("billing.part", after=[one]) for one in ids]))
    assert [one.task_id.bytes[11] for one in batch] == [0, 1, 2, 3]


def test_a_batch_with_a_task_after_it_and_a_chain_are_on_one_shard(tasks: App) -> None:
    part = tasks.handlers["billing.part"]
    build = [NewTask(part.type, {"n": n}) for n in range(1200)]
    batch = tasks.enqueue_many(build, then=NewTask(part.type, {"n": 0}))
    chain = tasks.chain(*build[:5])
    assert batch.then is not None

    assert len({handle.task_id.bytes[11] for handle in [*batch, batch.then]}) == 1
    assert len({handle.task_id.bytes[11] for handle in chain}) == 1
    tasks.close()


def test_keys_that_lead_to_other_shards_are_refused_before_anything_is_written(
    tasks: App, front: FrontDatabase
) -> None:
    keyed = [NewTask("billing.part", {"n": n}, idempotency_key=f"k{n}") for n in range(4)]
    with pytest.raises(InvalidArgument, match="Give all of them the same shard_key"):
        tasks.enqueue_many(keyed, then=NewTask("billing.part", {"n": 9}))
    together = [
        NewTask("billing.part", {"n": n}, idempotency_key=f"k{n}", shard_key="album-7") for n in range(4)
    ]
    last = NewTask("billing.part", {"n": 9}, shard_key="album-7", idempotency_key="last")
    first, again = (tasks.enqueue_many(together, then=last) for _ in range(2))
    tasks.close()

    assert [one.task_id for one in first] == [one.task_id for one in again]
    counted = [
        shard.connect().execute("select count(*) from queues.task").fetchone() for shard in front.shards
    ]
    assert sorted(row[0] for row in counted if row) == [0, 0, 0, 5]


def test_a_unique_task_is_where_its_concurrency_key_or_shard_key_leads(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    for option in ("concurrency_key", "shard_key"):
        key: dict[str, Any] = {option: "tenant-7"}
        home = engine.run(enqueue.enqueue(NewTask("billing.part", **key))).bytes[11]
        found = {
            engine.run(
                enqueue.enqueue_one(
                    NewTask("billing.part", idempotency_key=f"{option}{n}", unique="waiting", **key)
                )
            ).task_id.bytes[11]
            for n in range(6)
        }
        assert found == {home}


def test_children_have_ids_of_the_shard_of_their_run(front: FrontDatabase) -> None:
    for number, shard in enumerate(front.shards):
        connection = shard.connect()
        run = Engine(connection).run(enqueue.enqueue(NewTask("billing.whole")))
        task = claim_one(connection, queues=["billing"])
        of = {"task_id": str(run), "token": task["token"], "number": 1, "awaited": True}
        child = {"type": "billing.part"}
        for more in ({"tasks": [child] * 3}, {"tasks": [child], "payloads": ["{}"] * 3}):
            started = call(
                connection,
                "queues.start_children",
                {"worker_id": "w1", "held": {**of, "name": f"parts{len(more)}"}, **more},
            )
            assert [row["task_id"].bytes[11] for row in started] == [number] * 3


@pytest.mark.full
def test_children_signals_forks_and_continued_runs_stay_on_the_shard_of_their_run(
    front: FrontDatabase, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    environment = os.environ | front.environment | {"PYTHONPATH": str(tmp_path)}
    command = [str(HOLDFAST), "worker", "shop:app", "--all-shards"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as worker:
        try:
            app = App(front.dsn)

            @app.task("billing.whole")
            def whole(count: int) -> list[str]:
                return [str(count)]

            @app.task("billing.count")
            def count(left: int) -> str:
                return str(left)

            by_id, by_key = whole.using(key="a").enqueue(3), whole.using(key="b").enqueue(3)
            for handle in (by_id, by_key):
                _wait_for(front, handle.task_id)
            by_id.signal("decision", "yes")
            whole.signal("b", "decision", "no")
            for handle, decision in ((by_id, "yes"), (by_key, "no")):
                total, started, decided = handle.result(120)
                assert (total, decided) == ("6", decision)
                assert UUID(started).bytes[11] == handle.task_id.bytes[11]
                assert _children(front, handle.task_id) == {handle.task_id.bytes[11]}
            forked = by_id.fork("decision")
            assert forked.task_id.bytes[11] == by_id.task_id.bytes[11]
            counted = count.using(key="c").enqueue(2)
            assert UUID(counted.result(120)).bytes[11] == counted.task_id.bytes[11]
            app.close()
        finally:
            worker.terminate()
        assert worker.wait(60) == 0


def _wait_for(front: FrontDatabase, task_id: object) -> None:
    """Until the run waits for its decision."""
    query = "select from queues.wait_status w where w.task_id = %s and w.name = 'decision'"
    with psycopg.connect(front.dsn, autocommit=True) as connection:
        while connection.execute(query, [task_id]).fetchone() is None:
            pass


def _children(front: FrontDatabase, task_id: object) -> set[int]:
    found: set[int] = set()
    for shard in front.shards:
        rows = shard.connect().execute("select child_id from queues.child where parent_id = %s", [task_id])
        found |= {row[0].bytes[11] for row in rows.fetchall()}
    return found
