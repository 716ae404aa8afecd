"""Callers in one event loop share round trips, and nothing else."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import make_conninfo

from holdfast import App
from holdfast._connections import enqueueing
from holdfast._connections.enqueueing import EnqueueBatcher
from holdfast._connections.pool import AsyncPool
from holdfast._engine.enqueue import Enqueued, NewTask
from holdfast._serialization.text import RawJson
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    InvalidArgument,
    KeyConflict,
    NotAllowed,
    NotInstalled,
    QuotaExceeded,
    TransactionConflict,
    UnexpectedDatabaseError,
)
from support.database import Database


class ScriptedSender:
    """Enqueues nothing. Its results wait until the test opens it, and may then be lost."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.batches: list[list[str]] = []
        self.losses = 0
        self.refusals: list[Exception] = []

    async def __call__(self, tasks: list[NewTask]) -> list[Enqueued]:
        types = [task.type for task in tasks]
        self.batches.append(types)
        await self.open.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        if "refused" in types:
            raise InvalidArgument("refused")
        if self.losses:
            self.losses -= 1
            raise DatabaseUnavailable("the connection broke")
        return [Enqueued(UUID(int=hash(task.type) % 2**64), created=True) for task in tasks]


async def settled() -> None:
    """Let every task run until it waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


def enqueue_all(batcher: EnqueueBatcher, *tasks: NewTask) -> list[asyncio.Task[Enqueued]]:
    return [asyncio.create_task(batcher.enqueue(task)) for task in tasks]


async def test_one_goes_at_once_and_those_who_come_meanwhile_go_together() -> None:
    sender = ScriptedSender()
    batcher = EnqueueBatcher(sender)
    first = enqueue_all(batcher, NewTask("a"))
    await settled()
    assert sender.batches == [["a"]]
    others = enqueue_all(batcher, NewTask("b"), NewTask("c"), NewTask("d"))
    await settled()
    assert sender.batches == [["a"]]
    sender.open.set()
    answers = await asyncio.gather(*first, *others)
    assert sender.batches == [["a"], ["b", "c", "d"]]
    assert len({answer.task_id for answer in answers}) == 4


async def test_a_refused_task_does_not_fail_its_neighbours() -> None:
    sender = ScriptedSender()
    sender.open.set()
    names = ["a", "b", "refused", "c", "d"]
    answers = await asyncio.gather(
        *enqueue_all(EnqueueBatcher(sender), *map(NewTask, names)), return_exceptions=True
    )
    assert [isinstance(answer, Enqueued) for answer in answers] == [True, True, False, True, True]
    assert isinstance(answers[2], InvalidArgument)


@pytest.mark.parametrize(
    "error",
    [
        NotInstalled("no schema"),
        NotAllowed("no right", sqlstate="42501"),
        UnexpectedDatabaseError("a bad page", sqlstate="XX001"),
        DatabaseUnavailable("no server"),
        RuntimeError("a mistake"),
    ],
)
async def test_an_error_that_is_about_no_task_is_told_to_all_after_one_statement(error: Exception) -> None:
    sender = ScriptedSender()
    sender.open.set()
    sender.refusals = [error] * 100
    answers = await asyncio.gather(
        *enqueue_all(EnqueueBatcher(sender), *map(NewTask, "abcdefgh")), return_exceptions=True
    )
    assert sender.batches == [list("abcdefgh")]
    assert {type(answer) for answer in answers} <= {type(error), UnexpectedDatabaseError}
    assert all(str(error) in str(answer) for answer in answers)


async def test_each_caller_gets_an_exception_of_its_own_with_the_same_words_and_cause() -> None:
    sender = ScriptedSender()
    sender.open.set()
    error = NotInstalled("no schema", hint="Run holdfast migrate.", sqlstate="3F000")
    error.__cause__ = ValueError("what PostgreSQL said")
    sender.refusals = [error]
    answers = await asyncio.gather(
        *enqueue_all(EnqueueBatcher(sender), *map(NewTask, "abc")), return_exceptions=True
    )
    assert len({id(answer) for answer in answers} | {id(error)}) == 4
    for answer in answers:
        assert isinstance(answer, HoldfastError)
        assert (str(answer), answer.sqlstate) == ("no schema. Run holdfast migrate.", "3F000")
        assert answer.__cause__ is error.__cause__


@pytest.mark.parametrize(
    "error", [NotAllowed("an executor", sqlstate="QF403"), QuotaExceeded("full"), KeyConflict("taken")]
)
async def test_what_the_engine_refuses_about_a_task_is_narrowed_down_to_it(error: HoldfastError) -> None:
    sender = ScriptedSender()
    sender.open.set()
    sender.refusals = [error]
    answers = await asyncio.gather(*enqueue_all(EnqueueBatcher(sender), *map(NewTask, "abcd")))
    assert sender.batches == [list("abcd"), ["a", "b"], ["c", "d"]]
    assert all(answer.created for answer in answers)


async def test_a_conflict_with_another_transaction_is_tried_once_more_and_then_told_to_all() -> None:
    sender = ScriptedSender()
    sender.open.set()
    sender.refusals = [TransactionConflict("deadlock")]
    answers = await asyncio.gather(*enqueue_all(EnqueueBatcher(sender), *map(NewTask, "ab")))
    assert all(answer.created for answer in answers)
    sender.refusals = [TransactionConflict("deadlock")] * 9
    told = await asyncio.gather(
        *enqueue_all(EnqueueBatcher(sender), *map(NewTask, "ab")), return_exceptions=True
    )
    assert [type(one) for one in told] == [TransactionConflict, TransactionConflict]
    assert sender.batches == [["a", "b"]] * 4


async def test_the_tasks_of_a_statement_that_would_have_to_wait_are_sent_one_by_one() -> None:
    together, alone = ScriptedSender(), ScriptedSender()
    together.open.set()
    batcher = EnqueueBatcher(together, alone)
    together.refusals = [TransactionConflict("lock"), TransactionConflict("lock")]
    held, *others = enqueue_all(batcher, *map(NewTask, "abc"))
    assert all(answer.created for answer in await asyncio.gather(*others))
    assert (await batcher.enqueue(NewTask("d"))).created
    assert together.batches == [["a", "b", "c"], ["a"], ["b"], ["c"], ["d"]]
    assert alone.batches == [["a"]]
    alone.refusals = [TransactionConflict("lock")]
    alone.open.set()
    with pytest.raises(TransactionConflict):
        await held


async def test_a_hundred_callers_of_a_database_without_the_schema_send_few_statements(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = 0
    run = AsyncPool.run

    async def counted(self: AsyncPool, *args: Any, **kwargs: Any) -> Any:
        nonlocal trips
        trips += 1
        return await run(self, *args, **kwargs)

    monkeypatch.setattr(AsyncPool, "run", counted)
    app = App(make_conninfo(db.dsn, dbname="postgres"))

    @app.task("batch.nowhere")
    def nowhere() -> None: ...

    answers = await asyncio.gather(*(nowhere.aenqueue() for _ in range(100)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {NotInstalled}
    assert trips <= 2
    app.close()


async def test_of_a_lost_batch_only_tasks_with_a_key_are_asked_for_again() -> None:
    sender = ScriptedSender()
    sender.open.set()
    sender.losses = 1
    tasks = [NewTask("a"), NewTask("b", idempotency_key="k"), NewTask("c")]
    answers = await asyncio.gather(*enqueue_all(EnqueueBatcher(sender), *tasks), return_exceptions=True)
    assert sender.batches == [["a", "b", "c"], ["b"]]
    assert [type(answer) for answer in answers] == [DatabaseUnavailable, Enqueued, DatabaseUnavailable]


async def test_a_database_that_stays_away_is_not_asked_for_ever() -> None:
    sender = ScriptedSender()
    sender.open.set()
    sender.losses = 5
    tasks = [NewTask(name, idempotency_key=name) for name in "abc"]
    answers = await asyncio.gather(*enqueue_all(EnqueueBatcher(sender), *tasks), return_exceptions=True)
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 3
    assert len(sender.batches) == 1


async def test_a_caller_that_gives_up_leaves_the_others_alone() -> None:
    sender = ScriptedSender()
    batcher = EnqueueBatcher(sender)
    [first] = enqueue_all(batcher, NewTask("a"))
    await settled()
    second, third = enqueue_all(batcher, NewTask("b"), NewTask("c"))
    await settled()
    first.cancel()
    second.cancel()
    sender.open.set()
    assert (await third).created
    assert sender.batches == [["a"], ["c"]]


async def test_a_batcher_that_was_idle_starts_again() -> None:
    sender = ScriptedSender()
    sender.open.set()
    batcher = EnqueueBatcher(sender)
    await batcher.enqueue(NewTask("a"))
    await settled()
    await batcher.enqueue(NewTask("b"))
    assert sender.batches == [["a"], ["b"]]


async def test_a_hundred_callers_need_few_round_trips(
    app: App, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = 0
    run = AsyncPool.run

    async def counted(self: AsyncPool, *args: Any, **kwargs: Any) -> Any:
        nonlocal trips
        trips += 1
        return await run(self, *args, **kwargs)

    monkeypatch.setattr(AsyncPool, "run", counted)

    @app.task("batch.count")
    def count(n: int) -> None: ...

    async def caller(n: int) -> list[Any]:
        return [(await count.using(key=f"{n}.{i}").aenqueue(n)).task_id for i in range(5)]

    ids = await asyncio.gather(*map(caller, range(100)))
    assert len({task_id for some in ids for task_id in some}) == 500
    assert trips <= 20
    [found] = db.connect().execute("select count(*) from queues.task_status").fetchone() or [None]
    assert found == 500


async def test_each_caller_hears_what_became_of_its_own_task(app: App) -> None:
    @app.task("batch.keyed")
    def keyed(n: int) -> None: ...

    await keyed.using(key="taken").aenqueue(0)
    calls = [keyed.using(key="taken" if n == 7 else str(uuid4())).aenqueue(n) for n in range(20)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [n for n, answer in enumerate(answers) if isinstance(answer, KeyConflict)]
    assert refused == [7]
    assert all(answer.created for n, answer in enumerate(answers) if n != 7)  # type: ignore[union-attr]


async def test_large_payloads_do_not_all_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueueing, "MAX_CHARACTERS", 10)
    sender = ScriptedSender()
    sender.open.set()
    tasks = [
        NewTask(name, payload=RawJson("x" * size)) for name, size in [("a", 50), ("b", 4), ("c", 6), ("d", 1)]
    ]
    await asyncio.gather(*enqueue_all(EnqueueBatcher(sender), *tasks))
    assert sender.batches == [["a"], ["b", "c"], ["d"]]
    assert [len(together) for together in enqueueing.batches(tasks)] == [1, 2, 1]
