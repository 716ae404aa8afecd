"""The children of a worker: who is kept, who is replaced, who is told that there is none."""

import asyncio
from typing import Any

import pytest

from holdfast._worker.report import AttemptEnd
from holdfast.isolation.child_pool import ChildPool, ChildPoolSizes
from holdfast.isolation.child_process import ChildBootFailed, ChildRun, RunCalls
from holdfast.isolation.run_end import RunBounds, RunEnd
from holdfast.resources import NO_RESOURCE_LIMITS

BOUNDS = RunBounds(timeout=None, output=1000, grace=1.0, resources=NO_RESOURCE_LIMITS)
ANSWER = AttemptEnd("succeeded")
CALLS = RunCalls(lambda *_: None, lambda: None)


class Stub:
    """A child without a process: it responds at once, and reports the memory that it is given."""

    def __init__(self, memory: int = 0) -> None:
        self.runs = 0
        self.memory = memory
        self.idle_since = 0.0
        self.is_unusable = False
        self.is_alive = True

    def begin(self, _order: Any, run: ChildRun) -> None:
        self.runs += 1
        run.over.set_result(RunEnd(answer=ANSWER))

    def end(self, run: ChildRun) -> None: ...

    async def close(self) -> None:
        self.is_alive = False


class Nursery:
    def __init__(self, memory: int = 0) -> None:
        self.memory = memory
        self.born: list[Stub] = []

    async def start(self) -> Any:
        self.born.append(Stub(self.memory))
        return self.born[-1]


def refuse(error: ChildBootFailed) -> None:
    raise AssertionError(error.message)


async def run(pool: ChildPool) -> None:
    end, cancelled = await pool.run({}, BOUNDS, CALLS, lambda: ("cancelled", 0.0))
    assert (end.answer, cancelled) == (ANSWER, False)


def sizes(**given: int) -> ChildPoolSizes:
    return ChildPoolSizes(**{"warm": 0, "max_size": 4, "runs": 100, "memory": 1000, **given})


async def test_a_child_serves_one_run_after_the_other() -> None:
    nursery = Nursery()
    pool = ChildPool(nursery.start, sizes(), refuse)
    for _ in range(5):
        await run(pool)
    assert [child.runs for child in nursery.born] == [5]
    await pool.close()
    assert not nursery.born[0].is_alive


async def test_one_that_holds_too_much_memory_or_has_served_long_enough_is_replaced() -> None:
    for nursery, size in [(Nursery(memory=1001), sizes()), (Nursery(), sizes(runs=1))]:
        pool = ChildPool(nursery.start, size, refuse)
        await run(pool)
        await run(pool)
        await pool.close()
        assert [child.runs for child in nursery.born] == [1, 1]


async def test_no_more_are_started_than_may_be() -> None:
    nursery = Nursery()
    pool = ChildPool(nursery.start, sizes(max_size=2), refuse)
    await asyncio.gather(*(run(pool) for _ in range(20)))
    assert len(nursery.born) <= 2
    await pool.close()


async def test_who_waits_for_one_that_cannot_be_started_is_told() -> None:
    told: list[ChildBootFailed] = []

    async def start() -> Any:
        raise ChildBootFailed("the application cannot be imported", {})

    pool = ChildPool(start, sizes(warm=2), told.append)
    pool.warm()
    with pytest.raises(ChildBootFailed, match="cannot be imported"):
        await run(pool)
    assert told
    await pool.close()


async def run_fresh(pool: ChildPool) -> None:
    await pool.run({}, BOUNDS, CALLS, lambda: ("cancelled", 0.0), fresh=True)


async def test_a_fresh_run_has_a_child_that_ran_nothing_before_and_runs_nothing_after() -> None:
    nursery = Nursery()
    pool = ChildPool(nursery.start, sizes(), refuse)
    await run(pool)
    await run_fresh(pool)
    await run_fresh(pool)
    await run(pool)
    assert [child.runs for child in nursery.born] == [2, 1, 1]
    await pool.close()


async def test_children_that_rest_make_room_for_fresh_ones() -> None:
    nursery = Nursery()
    pool = ChildPool(nursery.start, sizes(max_size=1), refuse)
    await run(pool)
    await asyncio.wait_for(asyncio.gather(run_fresh(pool), run(pool), run_fresh(pool), run(pool)), 10)
    assert sum(child.is_alive for child in nursery.born) <= 1
    assert sorted(child.runs for child in nursery.born if not child.is_alive)[:2] == [1, 1]
    await pool.close()


async def test_a_fresh_run_that_waits_gets_a_child_when_a_used_one_comes_back() -> None:
    nursery = Nursery()
    pool = ChildPool(nursery.start, sizes(max_size=1), refuse)
    await run(pool)
    busy = await pool._take(fresh=False)
    waiting = asyncio.create_task(run_fresh(pool))
    await asyncio.sleep(0)
    pool._give_back(busy)
    await asyncio.wait_for(waiting, 10)
    assert [child.runs for child in nursery.born] == [1, 1]
    await pool.close()
