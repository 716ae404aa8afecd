"""Live pages share what they read: one query at a time, and no result that is too old."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.server.shared_results import SharedResults


class Query:
    """Counts how often it is run, and ends when it is told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.runs += 1
        number = self.runs
        await self.may_end.wait()
        if number == 1 and getattr(self, "fails", False):
            raise RuntimeError("the database is gone")
        return number


def run(test: Callable[[SharedResults, Query], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(SharedResults(), Query())

    asyncio.run(main())


def test_callers_at_the_same_time_share_one_query_and_one_that_leaves_does_not_end_it() -> None:
    async def test(shared: SharedResults, query: Query) -> None:
        callers = [asyncio.create_task(shared.get("health", query, 2.0)) for _ in range(5)]
        await asyncio.sleep(0)
        callers[0].cancel()
        query.may_end.set()
        found = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1:] == [1, 1, 1, 1]

    run(test)


def test_a_result_is_used_until_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("holdfast.server.shared_results.time.monotonic", lambda: now)

    async def test(shared: SharedResults, query: Query) -> None:
        nonlocal now
        query.may_end.set()
        assert await shared.get("health", query, 2.0) == 1
        now += 1.9
        assert await shared.get("health", query, 2.0) == 1
        now += 0.2
        assert await shared.get("health", query, 2.0) == 2
        assert await shared.get("other", query, 2.0) == 3

    run(test)


def test_a_page_that_is_loaded_does_not_join_a_query_that_began_before() -> None:
    async def test(shared: SharedResults, query: Query) -> None:
        live = asyncio.create_task(shared.get("health", query, 2.0))
        await asyncio.sleep(0)
        loaded = asyncio.create_task(shared.get("health", query, 0.0))
        await asyncio.sleep(0)
        query.may_end.set()
        assert [await live, await loaded] == [1, 2]

    run(test)


def test_a_page_that_is_loaded_is_read_again_and_live_pages_use_it() -> None:
    async def test(shared: SharedResults, query: Query) -> None:
        query.may_end.set()
        assert [await shared.get("health", query, age) for age in (2.0, 0.0, 2.0)] == [1, 2, 2]

    run(test)


def test_a_failed_query_is_not_remembered() -> None:
    async def test(shared: SharedResults, query: Query) -> None:
        query.fails = True  # type: ignore[attr-defined] # read by the query
        query.may_end.set()
        with pytest.raises(RuntimeError, match="gone"):
            await shared.get("health", query, 2.0)
        assert await shared.get("health", query, 2.0) == 2

    run(test)


def test_closing_ends_the_queries_that_run() -> None:
    async def test(shared: SharedResults, query: Query) -> None:
        caller = asyncio.create_task(shared.get("health", query, 2.0))
        await asyncio.sleep(0)
        await shared.close()
        with pytest.raises(asyncio.CancelledError):
            await caller

    run(test)
