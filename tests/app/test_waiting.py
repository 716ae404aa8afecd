"""All that wait in an event loop share one listener and a few statements, and nothing leaves them waiting."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast._connections import waiting
from holdfast._connections.pool import AsyncPool, AsyncWork
from holdfast._connections.session import DatabaseAddress
from holdfast._connections.waiting import MAX_BATCH, TooManyWaits, WaitLimit, Waits
from holdfast._engine import Engine, enqueue, leases
from holdfast._engine.enqueue import NewTask
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    NotFound,
    NotInstalled,
    UnexpectedDatabaseError,
)
from support.database import Database
from support.leases import ended


class Counted:
    """Runs on a pool, counts how often, and fails if it is told to."""

    def __init__(self, address: DatabaseAddress) -> None:
        self.pool = AsyncPool(address, 2)
        self.runs = 0
        self.error: Exception | None = None

    async def __call__(self, work: AsyncWork[Any]) -> Any:
        self.runs += 1
        if self.error is not None:
            raise self.error
        return await self.pool.run(work, repeatable=True)


@pytest.fixture
def run(db: Database) -> Counted:
    return Counted(DatabaseAddress(lambda: db.dsn))


@pytest.fixture
async def waits(db: Database, run: Counted) -> AsyncIterator[Waits[None]]:
    waits: Waits[None] = Waits(DatabaseAddress(lambda: db.dsn), run)
    yield waits
    await waits.aclose()
    run.pool.close()


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db.connect())


def finish_all(engine: Engine) -> None:
    while claimed := engine.run(leases.claim("w1", 500, queues=["waits"])):
        engine.run(leases.finish("w1", [ended(one.task_id, one.token, "succeeded", 7) for one in claimed]))


async def until(condition: Callable[[], Any]) -> None:
    """Poll, because the awaited change is in no event of the test."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


def soon(work: Awaitable[Any]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(work)


async def test_a_thousand_waits_are_a_few_statements(
    waits: Waits[None], run: Counted, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FIRST_LOOK_SECONDS", 3600)
    tasks = engine.run(enqueue.enqueue_many([NewTask("waits.one") for _ in range(5 * MAX_BATCH)]))
    ends = [soon(waits.end_of(one.task_id, 60)) for one in tasks]
    await until(lambda: waits._listeners and waits._listeners[0].listening)
    await until(lambda: all(watched.looks for watched in waits._watched.values()))
    assert (len(waits), run.runs) <= (1000, 20)
    await asyncio.to_thread(finish_all, engine)
    assert {state.status for state in await asyncio.gather(*ends)} == {"succeeded"}
    assert len(waits) == 0


async def test_a_wait_looks_for_itself_although_the_state_is_known_to_others(
    waits: Waits[None], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read for an older wait may be older than the end."""
    monkeypatch.setattr(Waits, "_notified", lambda *_: None)
    for name in ("FIRST_LOOK_SECONDS", "LOOK_SECONDS", "LOOK_SECONDS_WITHOUT_LISTENER"):
        monkeypatch.setattr(waiting, name, 3600)
    task_id = engine.run(enqueue.enqueue(NewTask("waits.one")))
    async with waits.register(task_id) as first:
        await first.wait_until_known(30)
        await until(lambda: waits._listeners and waits._listeners[0].listening)
        await asyncio.to_thread(finish_all, engine)
        assert (await waits.end_of(task_id, 0)).status == "succeeded"


@pytest.mark.parametrize("error", [NotInstalled("no schema"), DatabaseUnavailable("gone")])
async def test_an_error_ends_each_wait_with_an_exception_of_its_own(
    waits: Waits[None], run: Counted, error: HoldfastError
) -> None:
    run.error = error
    task_id = uuid4()
    first, second = await asyncio.gather(
        waits.end_of(task_id, None), waits.end_of(task_id, None), return_exceptions=True
    )
    assert type(first) is type(second) is type(error)
    assert len({id(first), id(second), id(error)}) == 3
    run.error = None
    with pytest.raises(NotFound):
        await waits.end_of(task_id, None)


async def test_a_loop_that_fails_ends_no_wait_silently_and_is_started_again(
    waits: Waits[None], run: Counted, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "RESTART_SECONDS", 0.01)
    task_id: UUID = engine.run(enqueue.enqueue(NewTask("waits.one")))
    run.error = ZeroDivisionError("a bug")
    with pytest.raises(UnexpectedDatabaseError, match="a bug"):
        await waits.end_of(task_id, None)
    run.error = None
    await asyncio.to_thread(finish_all, engine)
    assert (await waits.end_of(task_id, 30)).status == "succeeded"


async def test_what_is_closed_tells_those_that_wait(waits: Waits[None], engine: Engine) -> None:
    task_id: UUID = engine.run(enqueue.enqueue(NewTask("waits.one")))
    end = soon(waits.end_of(task_id, None))
    await until(lambda: task_id in waits._watched and waits._watched[task_id].looks)
    waits.close()
    with pytest.raises(DatabaseUnavailable, match="was closed"):
        await end


async def test_nothing_listens_when_nothing_has_waited_for_a_while(
    waits: Waits[None], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "IDLE_SECONDS", 0.0)
    task_id: UUID = engine.run(enqueue.enqueue(NewTask("waits.one")))
    with pytest.raises(TimeoutError):
        await waits.end_of(task_id, 0)
    serving = waits._serving
    assert serving is not None
    await until(serving.done)
    assert not any(listener.listening for listener in waits._listeners)
    await asyncio.to_thread(finish_all, engine)
    assert (await waits.end_of(task_id, 30)).status == "succeeded"


async def test_a_group_that_is_full_is_refused_and_has_room_again(waits: Waits[None]) -> None:
    limit = WaitLimit("address 192.0.2.1", 1, "from this address")
    async with waits.register(uuid4(), (limit,)):
        with pytest.raises(TooManyWaits, match="too many waits from this address: at most 1"):
            async with waits.register(uuid4(), (limit,)):
                pass
        assert len(waits) == 1
    async with waits.register(uuid4(), (limit,)):
        assert len(waits) == 1
    assert not waits._groups
