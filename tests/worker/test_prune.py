"""The leader removes what the policies no longer keep, a little at a time."""

import pytest

from holdfast.engine import Engine, enqueue, tasks
from holdfast.engine.enqueue import NewTask
from holdfast.logs import worker_log
from holdfast.worker.duties import BATCH, Retention
from support.clock import Clock
from support.database import Database
from support.engine import claim as claim_tasks
from support.engine import counts, end, enqueue_many
from support.workshop import Workshop


async def test_a_leader_prunes(shop: Workshop) -> None:
    engine = Engine(shop.conn)
    task_id = engine.run(enqueue.enqueue(NewTask("elsewhere.work")))
    engine.run(tasks.cancel(task_id))
    shop.conn.execute("update queues.outcome set finished_at = finished_at - interval '1 year'")
    async with shop.working():
        await shop.logged("rows_pruned", rows=1)
    assert engine.run(tasks.task_status(task_id)) is None


@pytest.mark.parametrize("backlog", [0, BATCH - 1, 2 * BATCH + 1])
def test_a_backlog_is_walked_step_by_step_with_rests(db: Database, backlog: int) -> None:
    conn = db.connect()
    clock = Clock(conn)
    if backlog:
        enqueue_many(conn, [{"type": "default.work"}] * backlog)
        conn.execute("select queues.cancel(task_id) from queues.task")
    clock.advance(31 * 86400)
    duty, steps = Retention(worker_log("w1")), 0

    while (pause := duty.run(Engine(conn).run)) is not None:
        steps += 1
        assert pause > 0

    assert counts(conn)["task"] == 0
    assert steps >= 5 + backlog // BATCH


def test_a_new_pass_begins_at_the_oldest(db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    duty = Retention(worker_log("w1"))
    for _ in range(2):
        enqueue_many(conn, [{"type": "default.work"}])
        (task,) = claim_tasks(conn)
        end(conn, task)
        clock.advance(8 * 86400)
        while duty.run(Engine(conn).run) is not None:
            pass
        assert counts(conn)["task"] == 0
