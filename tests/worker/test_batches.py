"""Handlers that take many tasks at once: how they gather, one report for each, and what ends some of them."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import App, Cancel, Fail, Linear, Retry, Snooze, SyncContext
from holdfast._worker.handler import build_handler
from holdfast.errors import InvalidHandler
from holdfast.middleware import Call
from holdfast.testing import Sandbox
from support.workshop import Workshop

LONG = 60.0  # a batch that waits for so long is started by something else


@dataclass
class Document:
    number: int
    text: str = ""


async def test_a_full_batch_is_one_call_with_one_result_for_each_task(shop: Workshop) -> None:
    calls: list[list[Document]] = []

    @shop.task("work.index", batch=25, batch_wait=LONG)
    async def index(documents: list[Document]) -> list[int]:
        calls.append(documents)
        return [document.number * 2 for document in documents]

    handles = [await index.aenqueue(Document(n)) for n in range(50)]
    async with shop.working(worker_concurrency=3):
        results = [(await shop.ended(handle))["result"] for handle in handles]
    assert [len(call) for call in calls] == [25, 25]
    assert results == [2 * n for n in range(50)]


async def test_a_batch_that_is_not_full_starts_after_its_wait(shop: Workshop) -> None:
    sizes: list[int] = []

    @shop.task("work.index", batch=100, batch_wait=0.05)
    def index(numbers: list[int]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        sizes.append(len(numbers))

    handles = await index.aenqueue_many([(n,) for n in range(7)])
    async with shop.working(worker_concurrency=20):
        row = await shop.ended(*handles)
    assert sizes == [7]
    assert row["result"] is None


async def test_a_batch_takes_one_place_of_the_concurrency(shop: Workshop) -> None:
    gate = asyncio.Event()
    sizes: list[int] = []

    @shop.task("work.index", batch=10, batch_wait=LONG)
    async def index(numbers: list[int]) -> list[int]:
        sizes.append(len(numbers))
        await gate.wait()
        return numbers

    @shop.task("work.other")
    async def other() -> str:
        return "ran"

    await index.aenqueue_many([(n,) for n in range(30)])
    async with shop.working(worker_concurrency=3):
        await shop.sees(lambda: sizes == [10, 10, 10])
        handle = await other.aenqueue()
        await shop.until("select pg_sleep(0.1)")
        assert await handle.astatus() in ("pending", "claimed")
        gate.set()
        assert (await shop.ended(handle))["result"] == "ran"


async def test_each_task_has_its_own_outcome(shop: Workshop) -> None:
    answers: dict[int, Any] = {
        0: "fine",
        1: Snooze(3600),
        2: Cancel("enough"),
        3: Fail("no"),
        4: ValueError("broken"),
        5: object(),
        6: Retry(after=3600),
    }

    @shop.task("work.decide", batch=10, batch_wait=0.05, retry=Linear(3600))
    async def decide(numbers: list[int]) -> list[Any]:
        return [answers[n] for n in numbers]

    handles = await decide.aenqueue_many([(n,) for n in answers])
    async with shop.working():
        statuses = ["succeeded", "scheduled", "cancelled", "failed", "retrying", "failed", "retrying"]
        rows = [await shop.becomes(handle, status) for handle, status in zip(handles, statuses, strict=True)]
    assert rows[0]["result"] == "fine"
    assert [error["message"] for error in await shop.errors(handles[4])] == ["ValueError: broken"]
    assert "result_not_serializable" in str(await shop.errors(handles[5]))


async def test_an_exception_fails_all_of_them_and_each_is_tried_again(shop: Workshop) -> None:
    calls: list[list[int]] = []

    @shop.task("work.index", batch=3, batch_wait=LONG, max_attempts=3, retry=Linear(0))
    async def index(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if len(calls) == 1:
            raise ConnectionError("the index is down")
        return numbers

    handles = await index.aenqueue_many([(n,) for n in range(3)])
    async with shop.working():
        row = await shop.ended(*handles)
    assert [len(call) for call in calls] == [3, 3]
    assert row["attempt"] == 2
    for handle in handles:
        assert [error["message"] for error in await shop.errors(handle)] == [
            "ConnectionError: the index is down"
        ]


async def test_a_task_that_breaks_every_batch_does_not_take_the_others_with_it(shop: Workshop) -> None:
    @shop.task("work.index", batch=3, batch_wait=0.05, max_attempts=2, retry=Linear(0))
    async def index(numbers: list[int]) -> list[int]:
        if 1 in numbers:
            raise ValueError("poison")
        return numbers

    handles = await index.aenqueue_many([(n,) for n in range(3)])
    async with shop.working():
        await shop.ended(*handles)
    statuses = [await handle.astatus() for handle in handles]
    assert statuses == ["succeeded", "dead_letter", "succeeded"]


@pytest.mark.parametrize("returned", [[1], [1, 2, 3], "ab", None])
async def test_a_wrong_number_of_results_is_an_error_of_all_and_loses_nothing(
    shop: Workshop, returned: Any
) -> None:
    calls: list[int] = []

    @shop.task("work.index", batch=2, batch_wait=0.05, retry=Linear(0))
    async def index(numbers: list[int]) -> list[int]:
        calls.append(len(numbers))
        return returned if len(calls) == 1 else numbers

    handles = await index.aenqueue_many([(1,), (2,)])
    async with shop.working():
        assert [(await shop.ended(handle))["result"] for handle in handles] == [1, 2]
    for handle in handles:
        [error] = await shop.errors(handle)
        assert "the handler of work.index returned" in error["message"]


async def test_a_payload_that_does_not_fit_fails_its_task_only(shop: Workshop) -> None:
    @shop.task("work.index", batch=3, batch_wait=0.05)
    async def index(numbers: list[int]) -> list[int]:
        return numbers

    good = await index.aenqueue(1)
    bad = shop.conn.execute("""select queues.enqueue('work.index', '{"numbers": "x"}')""").fetchone()
    assert bad
    async with shop.working():
        assert (await shop.ended(good))["result"] == 1
        assert (await shop.ended(bad[0]))["status"] == "failed"


async def test_a_cancelled_task_leaves_the_others_running(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.index", batch=2, batch_wait=LONG)
    async def index(numbers: list[int]) -> list[int]:
        await gate.wait()
        return numbers

    one, other = await index.aenqueue_many([(1,), (2,)])
    async with shop.working(heartbeat="100ms"):
        await shop.until("select from queues.lease")
        await one.acancel("not needed")
        await shop.logged("task_stopped", why="cancelled")
        gate.set()
        assert (await shop.ended(other))["result"] == 2
    assert await one.astatus() == "cancelled"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_lost_lease_is_taken_over_and_the_results_of_the_others_count(
    shop: Workshop, kind: str
) -> None:
    gate = threading.Event()

    def wait(numbers: list[int]) -> list[int]:
        gate.wait()
        return numbers

    async def await_it(numbers: list[int]) -> list[int]:
        return await asyncio.to_thread(wait, numbers)

    handler: Any = wait if kind == "sync" else await_it
    index: Any = shop.task("work.index", batch=2, batch_wait=0.05)(handler)
    one, other = await index.aenqueue_many([(1,), (2,)])
    async with shop.working(heartbeat="100ms"):
        await shop.until("select from queues.lease having count(*) = 2")
        shop.conn.execute("update queues.lease set token = token + 1 where task_id = %s", [one.task_id])
        await shop.logged("task_stopped", why="lost")
        gate.set()
        assert (await shop.ended(other))["result"] == 2
        shop.conn.execute("update queues.lease set lease_until = queues.clock()")


async def test_a_handler_whose_tasks_are_all_cancelled_is_cancelled(shop: Workshop) -> None:
    seen: list[str] = []

    @shop.task("work.index", batch=2, batch_wait=LONG)
    async def index(numbers: list[int]) -> list[int]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return numbers

    handles = await index.aenqueue_many([(1,), (2,)])
    async with shop.working(heartbeat="100ms"):
        await shop.until("select from queues.lease having count(*) = 2")
        for handle in handles:
            await handle.acancel("not needed")
        await shop.sees(lambda: seen == ["cancelled"])


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_batch_past_its_limit_times_out(shop: Workshop, kind: str) -> None:
    async def hang(numbers: list[int]) -> list[int]:
        await asyncio.Event().wait()
        return numbers

    def spin(numbers: list[int]) -> list[int]:
        while True:
            time.sleep(0.001)

    handler: Any = hang if kind == "async" else spin
    index: Any = shop.task("work.index", batch=2, batch_wait=LONG, timeout=0.2, max_attempts=1)(handler)
    handles = await index.aenqueue_many([(1,), (2,)])
    async with shop.working():
        await shop.ended(*handles)
    for handle in handles:
        assert [error["kind"] for error in await shop.errors(handle)] == ["timeout"]


async def test_leases_are_prolonged_while_tasks_gather_and_run(shop: Workshop) -> None:
    gate = asyncio.Event()

    @shop.task("work.index", batch=2, batch_wait=LONG)
    async def index(numbers: list[int]) -> list[int]:
        await gate.wait()
        return numbers

    async with shop.working(lease="2s", heartbeat="300ms"):
        one = await index.aenqueue(1)
        await shop.until("select from queues.lease where lease_until > claimed_at + interval '3 seconds'")
        other = await index.aenqueue(2)
        await shop.until("select from queues.lease having count(*) = 2")
        gate.set()
        row = await shop.ended(one, other)
    assert row["attempt"] == 1


async def test_a_cancelled_task_that_gathers_does_not_run(shop: Workshop) -> None:
    calls: list[list[int]] = []

    @shop.task("work.index", batch=2, batch_wait=LONG)
    async def index(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return numbers

    async with shop.working(heartbeat="100ms"):
        one = await index.aenqueue(1)
        await shop.until("select from queues.lease")
        await one.acancel("not needed")
        await shop.logged("task_stopped", why="cancelled")
        await shop.ended(*await index.aenqueue_many([(2,), (3,)]))
    assert calls == [[2, 3]]


async def test_tasks_that_gather_are_given_back_at_a_shutdown(shop: Workshop) -> None:
    @shop.task("work.index", batch=100, batch_wait=LONG)
    async def index(numbers: list[int]) -> list[int]:
        raise AssertionError("it has not been started")

    handles = await index.aenqueue_many([(n,) for n in range(15)])
    async with shop.working(worker_concurrency=4):
        await shop.until("select from queues.lease having count(*) = 15")
    assert {await handle.astatus() for handle in handles} == {"pending"}
    found = shop.conn.execute("select max(attempt) from queues.task_status").fetchone()
    assert found == (0,)


async def test_a_batch_that_outlasts_the_grace_period_is_given_back(shop: Workshop) -> None:
    @shop.task("work.index", batch=2, batch_wait=LONG)
    async def index(numbers: list[int]) -> list[int]:
        await asyncio.Event().wait()
        return numbers

    handles = await index.aenqueue_many([(1,), (2,)])
    async with shop.working(grace="100ms"):
        await shop.until("select from queues.lease having count(*) = 2")
    assert {await handle.astatus() for handle in handles} == {"pending"}


async def test_middleware_runs_once_around_a_batch(shop: Workshop) -> None:
    seen: list[tuple[str, Any]] = []

    @shop.app.middleware
    async def watch(call: Call, proceed: Callable[[], Awaitable[Any]]) -> Any:
        result = await proceed()
        seen.append((call.type, result))
        return result

    @shop.task("work.index", batch=2, batch_wait=LONG)
    def index(numbers: list[int]) -> list[int]:
        return numbers

    handles = await index.aenqueue_many([(1,), (2,)])
    async with shop.working():
        await shop.ended(*handles)
    assert seen == [("work.index", [1, 2])]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"batch": 0}, "from 1 to 10000"),
        ({"batch": True}, "from 1 to 10000"),
        ({"batch": 2, "batch_wait": -1}, "0 to 60 seconds"),
        ({"batch": 2, "batch_wait": "x"}, "takes seconds"),
        ({"batch_wait": 1}, "batch_wait needs batch"),
        ({"batch": 2, "executor": "process"}, "executor python"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], why: str) -> None:
    def index(numbers: list[int]) -> list[int]:
        return numbers

    with pytest.raises(InvalidHandler, match=why):
        build_handler("any.index", index, **options)


def test_signatures_that_make_no_sense_are_refused() -> None:
    def context(ctx: SyncContext, numbers: list[int]) -> list[int]: ...  # type: ignore[empty-body]
    def two(numbers: list[int], words: list[str]) -> list[int]: ...  # type: ignore[empty-body]
    def single(number: int) -> list[int]: ...  # type: ignore[empty-body]
    def one_result(numbers: list[int]) -> int: ...  # type: ignore[empty-body]
    def default(numbers: list[int] = []) -> None: ...  # noqa: B006 - what is tested

    for function in (context, two, single, one_result, default):
        with pytest.raises(InvalidHandler):
            build_handler("any.index", function, batch=2)


def test_the_schema_is_that_of_one_task() -> None:
    def index(numbers: Sequence[int]) -> list[str | Fail | ValueError]: ...  # type: ignore[empty-body]

    schema = build_handler("any.index", index, batch=2).schema()
    assert schema["arguments"]["properties"] == {"numbers": {"title": "Numbers", "type": "integer"}}
    assert schema["result"] == {"type": "string"}


def test_a_task_stays_callable_and_run_task_runs_a_batch_of_one(holdfast: Sandbox) -> None:
    app = App(holdfast.dsn)

    @app.task("any.double", batch=10)
    async def double(numbers: list[int]) -> list[int | Fail]:
        return [2 * n if n else Fail("zero") for n in numbers]

    assert asyncio.run(double([1, 2])) == [2, 4]
    assert holdfast.run_task(double, numbers=3) == 6
    assert holdfast.run_task(double, numbers=0) == Fail("zero")


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_drain_runs_due_tasks_together(holdfast: Sandbox, kind: str) -> None:
    app = App(holdfast.dsn)
    sizes: list[int] = []

    def check(numbers: list[int]) -> list[Any]:
        sizes.append(len(numbers))
        return [ValueError(f"{n} is odd") if n % 2 else n for n in numbers]

    async def acheck(numbers: list[int]) -> list[Any]:
        return check(numbers)

    task: Any = app.task("any.check", batch=4)(check if kind == "sync" else acheck)
    task.enqueue_many([(n,) for n in range(6)])
    ran = holdfast.drain(app)
    assert sizes == [4, 2]
    assert [one.result for one in ran if one.status == "succeeded"] == [0, 2, 4]
    assert [str(one.exception) for one in ran if one.status == "retrying"] == [
        "1 is odd",
        "3 is odd",
        "5 is odd",
    ]
    app.close()
