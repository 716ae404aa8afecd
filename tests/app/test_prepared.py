"""Statements that a connection of our own has seen before."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from holdfast._engine import AsyncPreparedEngine, PreparedEngine, health, tasks
from holdfast._engine.enqueue import NewTask, enqueue_one
from holdfast._engine.statement import MAX_STATEMENTS, Statement, scalar
from holdfast.errors import DatabaseUnavailable, InvalidArgument, NotFound
from support.database import Database


@pytest.fixture
def engine(db: Database) -> Iterator[PreparedEngine]:
    with db.connect() as connection:
        yield PreparedEngine(connection)


def prepared(engine: PreparedEngine) -> list[str]:
    found = engine.connection.execute(
        "select statement from pg_prepared_statements where name ~ '^holdfast_'"
    )
    return [row[0] for row in found]


def test_a_statement_is_prepared_when_it_comes_again(engine: PreparedEngine) -> None:
    task = NewTask("billing.charge", {"invoice": "ä"})
    first = engine.run(enqueue_one(task))
    assert prepared(engine) == []
    second, third = engine.run(enqueue_one(task)), engine.run(enqueue_one(task))
    assert prepared(engine) == [enqueue_one(task).sql]
    assert len({first.task_id, second.task_id, third.task_id}) == 3
    shown = engine.run(tasks.task_status(third.task_id))
    assert shown is not None
    assert shown.payload == {"invoice": "ä"}


def test_a_refusal_is_told_as_ever_and_the_connection_stays_usable(engine: PreparedEngine) -> None:
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="type"):
            engine.run(enqueue_one(NewTask("not a type")))
    assert engine.run(enqueue_one(NewTask("billing.charge"))).created


def test_a_function_that_was_replaced_meanwhile_is_called_anew(engine: PreparedEngine) -> None:
    engine.connection.execute("create function public.asked() returns int language sql as 'select 1'")
    statement: Statement[int] = Statement("select public.asked()", (), scalar)
    assert [engine.run(statement) for _ in range(3)] == [1, 1, 1]
    engine.connection.execute(
        "create or replace function public.asked() returns int language sql as 'select 2'"
    )
    assert engine.run(statement) == 2


def test_a_lost_connection_is_told_as_ever(db: Database, engine: PreparedEngine) -> None:
    for _ in range(2):
        engine.run(health.clock())
    db.connect().execute("select pg_terminate_backend(%s, 10000)", [engine.connection.info.backend_pid])
    with pytest.raises(DatabaseUnavailable):
        engine.run(health.clock())


def test_no_more_are_kept_than_a_connection_should_hold(engine: PreparedEngine) -> None:
    for n in range(MAX_STATEMENTS + 5):
        statement: Statement[int] = Statement(f"select {n}", (), scalar)
        assert [engine.run(statement) for _ in range(2)] == [n, n]
    assert len(prepared(engine)) == MAX_STATEMENTS


def test_behind_a_pooler_nothing_is_prepared(engine: PreparedEngine) -> None:
    engine.connection.prepare_threshold = None
    for _ in range(3):
        with pytest.raises(NotFound):
            engine.run(tasks.cancel(UUID(int=1)))
    assert prepared(engine) == []


def test_a_number_may_be_larger_than_when_its_statement_was_prepared(engine: PreparedEngine) -> None:
    for number in (1, 2, 100_000):
        assert engine.run(Statement("select $1::integer", (number,), scalar)) == number


async def test_on_an_asynchronous_connection_it_is_the_same(db: Database) -> None:
    task = NewTask("billing.charge", {"invoice": "ä"})
    async with await psycopg.AsyncConnection.connect(db.dsn, autocommit=True) as connection:
        engine = AsyncPreparedEngine(connection)
        made = [await engine.run(enqueue_one(task)) for _ in range(3)]
        assert len({each.task_id for each in made}) == 3
        for _ in range(3):
            with pytest.raises(InvalidArgument, match="type"):
                await engine.run(enqueue_one(NewTask("not a type")))
        found = await connection.execute(
            "select statement from pg_prepared_statements where name ~ '^holdfast_'"
        )
        assert [row[0] for row in await found.fetchall()] == [enqueue_one(task).sql]
