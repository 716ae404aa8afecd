"""Statements against the real functions, on every driver. tests/sql tests the functions themselves."""

import json
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast._engine import AsyncEngine, Engine, Statement, enqueue, health, leases, queues, tasks, workers
from holdfast._engine.enqueue import Enqueued, NewTask
from holdfast._engine.leases import Claimed, Swept
from holdfast._engine.tasks import FoundTasks, TaskFilter, TaskId
from holdfast.errors import InvalidState, KeyConflict, NotFound, TooLarge
from support.database import Database
from support.leases import ended, holding

T = TypeVar("T")


@pytest.fixture
def engine(tx: psycopg.Connection[Any]) -> Engine:
    return Engine(tx)


@pytest.fixture
def task_id(engine: Engine) -> UUID:
    return engine.run(enqueue.enqueue(NewTask("mail.send", {"to": "ä"}, metadata={"trace": "t"})))


def claimed(engine: Engine) -> Claimed:
    [task] = engine.run(leases.claim("w1", queues=["mail"]))
    return task


def test_a_task_is_enqueued_claimed_and_finished(engine: Engine, task_id: UUID) -> None:
    task = claimed(engine)
    assert (task.task_id, task.payload, task.metadata) == (str(task_id), '{"to": "ä"}', '{"trace": "t"}')
    assert engine.run(leases.heartbeat("w1", [holding(task_id, task.token)])) == ["held"]

    result = ended(task_id, task.token, "succeeded", {"sent": True})
    assert engine.run(leases.finish("w1", [result])) == ["accepted"]
    assert engine.run(leases.finish("w1", [result])) == ["already_done"]

    found = engine.run(tasks.task_status(task_id))
    assert found is not None
    assert (found.status, found.result, found.metadata) == ("succeeded", {"sent": True}, {"trace": "t"})


def test_a_batch_is_answered_in_order(engine: Engine, task_id: UUID) -> None:
    batch = [NewTask("mail.send", idempotency_key="k"), NewTask("mail.send", idempotency_key="k")]
    first, second = engine.run(enqueue.enqueue_many(batch))
    assert (first.created, second) == (True, Enqueued(first.task_id, created=False))


def test_a_batch_keeps_limits_and_times(engine: Engine) -> None:
    run_at = engine.run(health.clock()) + timedelta(hours=1)
    task = NewTask("mail.send", run_at=run_at, timeout=timedelta(milliseconds=1), lease=timedelta(minutes=2))
    [many] = engine.run(enqueue.enqueue_many([task]))
    one = engine.run(enqueue.enqueue(task))
    for task_id in (many.task_id, one):
        found = engine.run(tasks.task_status(task_id))
        assert found is not None
        assert (found.run_at, found.timeout, found.lease) == (
            run_at,
            timedelta(milliseconds=1),
            timedelta(minutes=2),
        )


def test_a_released_task_waits_again(engine: Engine, task_id: UUID) -> None:
    token = claimed(engine).token
    assert engine.run(leases.release("w1", [holding(task_id, token)])) == ["released"]
    assert engine.run(leases.finish("w1", [ended(task_id, token, "failed")])) != ["accepted"]


def test_a_claim_takes_a_cursor_and_a_lease(engine: Engine, task_id: UUID) -> None:
    [task] = engine.run(
        leases.claim("w1", 10, type_prefixes=["mail."], lease=timedelta(seconds=5), after="{}")
    )
    assert task.lease_until - task.clock < 6


def test_a_person_cancels_retries_deletes_restores_and_reschedules(engine: Engine, task_id: UUID) -> None:
    assert engine.run(tasks.cancel(task_id, "wrong")) == "cancelled"
    assert engine.run(tasks.retry(task_id, "right after all")) == "pending"
    assert (
        engine.run(tasks.reschedule(task_id, engine.run(health.clock()) + timedelta(days=1))) == "scheduled"
    )
    assert engine.run(tasks.delete_task(task_id)) == "deleted"
    assert engine.run(tasks.restore_task(task_id, "needed")) == "scheduled"
    acts = [event.event_type for event in engine.run(tasks.task_events(task_id))]
    assert acts == ["created", "cancelled", "retried", "rescheduled", "deleted", "restored"]
    assert engine.run(tasks.explain(task_id)).why.startswith("It is scheduled for")


def test_errors_are_read_in_order(engine: Engine, task_id: UUID) -> None:
    for _ in range(2):
        task = claimed(engine)
        run_at = engine.run(health.clock())
        engine.run(
            leases.finish(
                "w1", [ended(task_id, task.token, "retry", error={"kind": "Boom", "n": 1}, run_at=run_at)]
            )
        )
    errors = engine.run(tasks.task_errors(task_id))
    assert [(error.attempt, error.kind) for error in errors] == [(1, "Boom"), (2, "Boom")]
    assert errors[0].detail == {"kind": "Boom", "n": 1}


def test_a_listing_is_filtered_and_paged(engine: Engine, task_id: UUID) -> None:
    ids = [engine.run(enqueue.enqueue(NewTask("listed.one"))) for _ in range(3)]
    matching = TaskFilter("pending", "listed", "listed.", engine.run(health.clock()) - timedelta(minutes=1))
    page = engine.run(tasks.list_tasks(matching, max_tasks=2))
    assert [task.task_id for task in page] == ids[:0:-1]
    found = engine.run(tasks.find_tasks(matching, max_tasks=2))
    assert found == FoundTasks(ids[:0:-1], ids[1])
    assert engine.run(tasks.tasks_with_ids(found.task_ids)) == page
    rest = engine.run(tasks.find_tasks(matching, found.next, 2))
    assert rest == FoundTasks([ids[0]], None)
    assert engine.run(tasks.deletions_of(rest.task_ids)) == [TaskId(ids[0], None)]


def test_a_queue_is_paused_and_resumed(engine: Engine, task_id: UUID) -> None:
    assert (engine.run(queues.pause("mail", "moving")), engine.run(queues.pause("mail"))) == (True, False)
    [status] = [status for status in engine.run(queues.queue_status()) if status.queue == "mail"]
    assert (status.pause_reason, status.due) == ("moving", 1)
    assert (engine.run(queues.resume("mail")), engine.run(queues.resume("mail"))) == (True, False)


def test_a_worker_is_registered_idle_leads_and_retires(engine: Engine) -> None:
    engine.run(workers.register_worker("w1", "host", queues=["mail"], concurrency=3))
    assert engine.run(workers.mark_idle("w1", idle=True))
    assert engine.run(workers.lead("w1", timedelta(seconds=5)))
    [status] = [status for status in engine.run(workers.worker_status()) if status.worker_id == "w1"]
    assert (status.queues, status.idle, status.leader, status.concurrency) == (["mail"], True, True, 3)
    assert (engine.run(workers.retire_worker("w1")), engine.run(workers.retire_worker("w1"))) == (True, False)


def test_a_sweep_says_what_it_did(engine: Engine) -> None:
    assert engine.run(leases.sweep()) == Swept(recovered=0, dead=0)


def test_refusals_are_exceptions_of_their_own(engine: Engine, task_id: UUID) -> None:
    connection = engine.connection
    with connection.transaction(), pytest.raises(InvalidState), connection.transaction():
        engine.run(tasks.retry(task_id))
    with connection.transaction(), pytest.raises(NotFound), connection.transaction():
        engine.run(tasks.cancel(uuid4()))
    with connection.transaction(), pytest.raises(NotFound), connection.transaction():
        engine.run(leases.run_function("public.nothing", {}))
    with connection.transaction(), pytest.raises(TooLarge), connection.transaction():
        engine.run(enqueue.enqueue(NewTask("mail.send", "x" * 300_000)))
    engine.run(enqueue.enqueue(NewTask("mail.send", 1, idempotency_key="k")))
    with pytest.raises(KeyConflict):
        engine.run(enqueue.enqueue(NewTask("mail.send", 2, idempotency_key="k")))


def test_a_business_function_answers_its_envelope(engine: Engine) -> None:
    engine.connection.execute("""
        create function queues.echo(payload jsonb) returns jsonb language sql security definer
        set search_path = pg_catalog, pg_temp as $$ select jsonb_build_object('payload', payload) $$;
        revoke execute on function queues.echo from public;
        grant usage on schema queues to holdfast_caller;
        grant execute on function queues.echo to holdfast_caller""")
    envelope, payload = engine.run(leases.run_function("queues.echo", [1, "é"]))
    assert (envelope, payload) == ({"payload": [1, "é"]}, '[1, "é"]')


def test_the_row_factory_of_the_callers_connection_does_not_matter(engine: Engine, task_id: UUID) -> None:
    engine.connection.row_factory = dict_row
    assert engine.run(tasks.task_status(task_id)) is not None


def test_the_engine_never_commits(db: Database) -> None:
    connection = db.connect(autocommit=False)
    task_id = Engine(connection).run(enqueue.enqueue(NewTask("mail.send")))
    connection.rollback()
    assert Engine(connection).run(tasks.task_status(task_id)) is None


async def test_the_same_statements_run_on_an_asynchronous_connection(db: Database) -> None:
    async with await psycopg.AsyncConnection.connect(db.dsn, autocommit=True) as connection:
        engine = AsyncEngine(connection)
        task_id = await engine.run(enqueue.enqueue(NewTask("mail.send", {"x": 1})))
        [task] = await engine.run(leases.claim("w1", queues=["mail"]))
        assert (task.task_id, task.payload) == (str(task_id), '{"x": 1}')
        with pytest.raises(InvalidState):
            await engine.run(tasks.retry(task_id))


async def test_the_same_statements_run_on_asyncpg(db: Database) -> None:
    """With a JSON codec of the application's own, which must not get at what is sent as text."""
    connection = await asyncpg.connect(db.dsn)
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    async def run(statement: Statement[T]) -> T:
        return statement.decode(await connection.fetch(statement.sql, *statement.params))

    run_at = await run(health.clock()) - timedelta(seconds=1)
    new = NewTask("mail.send", {"x": "é"}, priority=5, run_at=run_at, timeout=timedelta(seconds=9))
    task_id = await run(enqueue.enqueue(new))
    await run(enqueue.enqueue_many([new, NewTask("other.thing")]))
    claimed = await run(leases.claim("w1", 5, queues=["mail"], lease=timedelta(minutes=1), after="{}"))
    assert (claimed[0].task_id, claimed[0].payload, claimed[0].timeout) == (str(task_id), '{"x": "é"}', 9)
    held = [holding(claimed[0].task_id, claimed[0].token, progress={"done": 1})]
    assert await run(leases.heartbeat("w1", held)) == ["held"]
    found = await run(tasks.task_status(task_id))
    assert found is not None
    assert (found.progress, found.payload, found.priority) == ({"done": 1}, {"x": "é"}, 5)
    page = await run(tasks.list_tasks(TaskFilter(since=run_at), max_tasks=10))
    assert len(page) == 3
    await connection.close()


def test_the_same_statements_run_with_percent_placeholders(db: Database) -> None:
    built = enqueue.enqueue(NewTask("mail.send", {"x": "100 %s"}, idempotency_key="%(k)s"))
    rows = db.connect().execute(built.percent_sql.encode(), built.params).fetchall()
    found = Engine(db.connect()).run(tasks.task_status(built.decode(rows)))
    assert found is not None
    assert (found.payload, found.idempotency_key) == ({"x": "100 %s"}, "%(k)s")


def test_a_report_that_cannot_be_stored_still_ends_its_task(engine: Engine, task_id: UUID) -> None:
    deep: Any = "\0 \ud800"
    for _ in range(400):
        deep = [deep]
    token = claimed(engine).token
    assert engine.run(leases.heartbeat("w1", [holding(task_id, token, progress=deep)])) == ["held"]
    result = ended(task_id, token, "failed", deep, error="nul \0")
    assert engine.run(leases.finish("w1", [result])) == ["accepted"]
    [error] = engine.run(tasks.task_errors(task_id))
    assert error.message == "nul \ufffd"
