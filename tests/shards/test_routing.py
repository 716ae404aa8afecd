"""Which shard gets a task, an event and a call, and what becomes of a batch."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import App
from holdfast._engine import Engine, enqueue, tasks
from holdfast._engine.enqueue import NewTask
from holdfast.errors import InvalidArgument, PartialBatchError
from support.sharded import COUNT, FrontDatabase


def shard_of(task_id: UUID) -> int:
    return task_id.bytes[11]


def on_front(front: FrontDatabase, **options: Any) -> UUID:
    return Engine(front.connect()).run(enqueue.enqueue(NewTask("billing.charge", **options)))


def counted(front: FrontDatabase, table: str = "queues.task") -> list[int]:
    found = [shard.connect().execute(f"select count(*) from {table}").fetchone() for shard in front.shards]
    return [row[0] for row in found if row]


def test_the_id_of_a_task_carries_the_number_of_the_shard_that_has_it(front: FrontDatabase) -> None:
    for number, shard in enumerate(front.shards):
        task_id = Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.charge")))
        (many,) = Engine(shard.connect()).run(enqueue.enqueue_many([NewTask("billing.charge")]))

        assert (shard_of(task_id), shard_of(many.task_id)) == (number, number)


def test_tasks_without_a_key_are_spread_over_all_shards(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    for _ in range(60):
        engine.run(enqueue.enqueue(NewTask("billing.charge")))

    assert all(counted(front))


def test_a_key_is_on_one_shard_however_it_is_enqueued(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    keys = [f"k{n}" for n in range(40)]
    alone = [on_front(front, idempotency_key=key) for key in keys[:3]]
    batch = engine.run(enqueue.enqueue_many([NewTask("billing.charge", idempotency_key=key) for key in keys]))
    again = engine.run(
        enqueue.enqueue_many([NewTask("billing.charge", idempotency_key=key) for key in reversed(keys)])
    )

    assert [one.task_id for one in batch[:3]] == alone
    assert [one.task_id for one in reversed(again)] == [one.task_id for one in batch]
    assert [one.created for one in batch] == [False] * 3 + [True] * 37
    assert sum(counted(front)) == 40
    assert all(counted(front))


@pytest.mark.parametrize("option", ["concurrency_key", "shard_key"])
def test_tasks_with_the_same_concurrency_key_or_shard_key_are_together(
    front: FrontDatabase, option: str
) -> None:
    shards = {
        shard_of(on_front(front, **{option: "tenant-7"}, idempotency_key=key)) for key in ("a", "b", "c", "d")
    }

    assert len(shards) == 1


def test_a_shard_key_outweighs_a_concurrency_key(front: FrontDatabase) -> None:
    home = shard_of(on_front(front, shard_key="tenant-7"))

    assert {
        shard_of(on_front(front, shard_key="tenant-7", concurrency_key=f"customer-{n}")) for n in range(6)
    } == {home}


def test_equal_deterministic_tasks_meet_on_one_shard(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    task = NewTask("math.square", {"n": 3}, reuse="active")
    first, second = engine.run(enqueue.enqueue_one(task)), engine.run(enqueue.enqueue_one(task))

    assert (second.task_id, second.created) == (first.task_id, False)


def test_events_of_an_aggregate_are_on_one_shard(front: FrontDatabase) -> None:
    admin = front.connect()
    for n in range(8):
        admin.execute("select queues.emit('order.paid', aggregate_id => %s)", [f"order-{n % 2}"])
    homes = [
        {row[0] for row in shard.connect().execute("select aggregate_id from queues.event_status").fetchall()}
        for shard in front.shards
    ]

    assert sum(len(found) for found in homes) == 2


def test_acts_by_id_reach_the_task_on_every_shard(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    for number, shard in enumerate(front.shards):
        task_id = Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.charge")))

        assert engine.run(tasks.cancel(task_id, "no longer needed")) == "cancelled"
        assert engine.run(tasks.task_events(task_id))[-1].reason == "no longer needed"
        assert shard_of(engine.run(tasks.replay(task_id))) == number


def test_lists_are_merged_newest_first_and_their_pages_meet(front: FrontDatabase) -> None:
    engine = Engine(front.connect())
    made = [on_front(front, idempotency_key=f"k{n}") for n in range(20)]
    pages: list[UUID] = []
    while page := engine.run(tasks.list_tasks(before=pages[-1] if pages else None, max_tasks=6)):
        pages += [task.task_id for task in page]
    found: list[UUID] = []
    page_ids, following = _found(front, None)
    found += page_ids
    while following:
        page_ids, following = _found(front, following)
        found += page_ids

    assert pages == sorted(made, reverse=True)
    assert found == pages


def _found(front: FrontDatabase, before: UUID | None) -> tuple[list[UUID], UUID | None]:
    row = (
        front.connect()
        .execute("select task_ids, next from queues.find_tasks(before => %s, max_tasks => 6)", [before])
        .fetchone()
    )
    assert row
    return row[0], row[1]


def test_a_pause_and_a_limit_hold_on_all_shards(front: FrontDatabase) -> None:
    admin = front.connect()
    admin.execute("select queues.pause('billing', 'tests')")
    admin.execute("select queues.set_limit('queue', 'billing', max_running => 3)")

    assert counted(front, "queues.paused_queue") == [1] * COUNT
    assert counted(front, "queues.task_limit") == [1] * COUNT


def test_a_refused_task_of_a_batch_is_named_by_its_place_and_what_was_written_is_told(
    front: FrontDatabase,
) -> None:
    engine = Engine(front.connect())
    keyed = [NewTask("billing.charge", idempotency_key=f"k{n}") for n in range(30)]
    for place in (0, 29):
        batch = [*keyed]
        batch[place] = NewTask("not a type", idempotency_key=f"k{place}")
        with pytest.raises((PartialBatchError, InvalidArgument), match=rf"tasks\[{place}\]\.type") as refused:
            engine.run(enqueue.enqueue_many(batch))
        if isinstance(refused.value, PartialBatchError):
            written = {n: task_id for n, task_id, _ in refused.value.enqueued}
            assert all(on_front(front, idempotency_key=f"k{n}") == task_id for n, task_id in written.items())

    answers = engine.run(enqueue.enqueue_many(keyed))
    assert len({one.task_id for one in answers}) == 30
    assert sum(counted(front)) == 30


async def test_callers_whose_tasks_were_written_hear_so_though_another_was_refused(
    front: FrontDatabase,
) -> None:
    app = App(front.dsn)

    @app.task("billing.charge")
    def charge(n: int) -> None: ...

    calls = [charge.using(key=f"k{n}", priority=1000 if n == 7 else 0).aenqueue(n) for n in range(30)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    app.close()

    assert [n for n, one in enumerate(found) if isinstance(one, Exception)] == [7]
    assert isinstance(found[7], InvalidArgument)
    assert sum(counted(front)) == 29


def test_a_transaction_on_a_front_is_refused_and_one_on_a_shard_holds(front: FrontDatabase) -> None:
    app = App(front.dsn)

    @app.task("billing.charge")
    def charge(n: int) -> None: ...

    with (
        psycopg.connect(front.dsn) as tx,
        pytest.raises(InvalidArgument, match=r"transaction on a front.*Pass a connection to the shard"),
    ):
        charge.using(tx=tx).enqueue(1)
    with psycopg.connect(front.shards[2].dsn) as tx:
        handle = charge.using(tx=tx).enqueue(1)
        tx.rollback()
    with psycopg.connect(front.shards[2].dsn) as tx:
        handle = charge.using(tx=tx).enqueue(2)
    app.close()

    assert counted(front) == [0, 0, 1, 0]
    assert shard_of(handle.task_id) == 2


def test_plain_sql_in_a_transaction_that_writes_is_refused(front: FrontDatabase) -> None:
    connection = front.connect(autocommit=False)
    connection.execute("create temporary table own (n integer)")

    with pytest.raises(psycopg.Error, match="cannot take part in a transaction"):
        connection.execute("select queues.enqueue('billing.charge')")
    connection.rollback()
    assert sum(counted(front)) == 0


def test_what_belongs_to_a_worker_is_refused_with_the_way_to_go(front: FrontDatabase) -> None:
    with pytest.raises(psycopg.Error, match="works on one shard") as refused:
        front.connect().execute("select queues.claim('w')")

    assert "--shard" in str(refused.value.diag.message_hint)
