"""Runs that have too much to read, or that cannot be read at all: they fail alone, and others go on."""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Linear, NoRetry, SyncContext
from holdfast._engine import steps
from holdfast.errors import QuotaExceeded
from support.command import holdfast
from support.engine import change_setting
from support.health import troubled
from support.neighbour import Neighbour
from support.workshop import Workshop

LARGE = 900_000
READ_CHILDREN = """
create or replace function queues.read_children(parent_id uuid)
returns table (step text, count integer, results jsonb, others jsonb)
language plpgsql stable as $$
begin
  if exists (select from queues.task t where t.task_id = parent_id and t.type = 'work.sick') then
    raise exception using errcode = '{state}', message = 'this page is torn';
  end if;
end $$"""


def _child(shop: Workshop) -> Any:
    @shop.task("work.child")
    async def child(n: int) -> str:
        return f"{n} {'a' * LARGE}"

    return child


async def test_large_results_of_a_join_arrive_in_their_order(shop: Workshop) -> None:
    child = _child(shop)

    @shop.task("work.join")
    async def join(ctx: Context) -> list[int]:
        return [int(result.partition(" ")[0]) for result in await ctx.map(child, range(8))]

    async with shop.working():
        row = await shop.ended(await join.aenqueue())
    assert row["result"] == list(range(8))


async def test_a_join_with_too_large_results_fails_with_what_to_do(shop: Workshop) -> None:
    change_setting(shop.conn, "max_memo_bytes", 5_000_000)
    child = _child(shop)

    @shop.task("work.join", retry=NoRetry())
    async def join(ctx: Context) -> int:
        return len(await ctx.map(child, range(8)))

    async with shop.working():
        handle = await join.aenqueue()
        row = await shop.ended(handle)
        [error] = await shop.errors(handle)
    assert (row["status"], error["kind"]) == ("failed", "run_too_long")
    assert "the results of the tasks of child are too large" in error["message"]
    assert "max_memo_bytes" in error["message"]


async def test_a_task_after_others_with_large_results_runs_if_it_does_not_read_them(shop: Workshop) -> None:
    change_setting(shop.conn, "max_memo_bytes", 5_000_000)
    child = _child(shop)

    @shop.task("work.last")
    async def last(ctx: Context) -> str:
        await ctx.sleep(0)
        return "done"

    async with shop.working():
        before = [await child.aenqueue(n) for n in range(8)]
        row = await shop.ended(await last.using(after=before).aenqueue())
    assert row["result"] == "done"


def _two_runs(shop: Workshop) -> tuple[Any, Any]:
    def note() -> str:
        return "noted"

    @shop.task("work.sick", retry=NoRetry())
    async def sick(ctx: Context) -> str:
        return str(await ctx.step(note))

    @shop.task("work.well")
    async def well(ctx: Context) -> str:
        return str(await ctx.step(note))

    return sick, well


async def test_a_run_that_the_database_refuses_to_read_fails_alone(shop: Workshop) -> None:
    sick, well = _two_runs(shop)
    shop.conn.execute(READ_CHILDREN.format(state="54000"))

    async with shop.working():
        bad, *good = await asyncio.gather(sick.aenqueue(), *(well.aenqueue() for _ in range(5)))
        rows = [await shop.ended(one) for one in good]
        row = await shop.ended(bad)
        [error] = await shop.errors(bad)
    assert {one["result"] for one in rows} == {"noted"}
    assert (row["status"], error["kind"]) == ("failed", "run_too_long")
    assert "what the run remembers cannot be read: this page is torn" in error["message"]
    assert shop.lines("run_unreadable", task_id=str(bad.task_id))


@pytest.mark.parametrize("state", ["XX001", "57P01"])
async def test_a_run_that_the_server_cannot_read_now_is_read_again_and_delays_no_other(
    shop: Workshop, state: str
) -> None:
    """57P01 is that of a connection which is lost whenever this run is read."""
    sick, well = _two_runs(shop)
    shop.conn.execute(READ_CHILDREN.format(state=state))

    async with shop.working(heartbeat="0.5s"):
        bad = await sick.aenqueue()
        await shop.logged("run_not_read", task_id=str(bad.task_id))
        assert "run_not_read" in await troubled(shop, bad.task_id)
        good = [await well.aenqueue() for _ in range(5)]
        assert {(await shop.ended(one))["result"] for one in good} == {"noted"}
        shop.conn.execute(READ_CHILDREN.format(state=state).replace("work.sick", "work.healed"))
        row = await shop.ended(bad)
    assert row["result"] == "noted"
    assert not shop.lines("database_unavailable")


async def test_a_few_runs_are_read_at_once(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    _, well = _two_runs(shop)
    read, sizes = steps.read_steps, []

    def noted(worker_id: str, held: list[str]) -> Any:
        sizes.append(len(held))
        return read(worker_id, held)

    monkeypatch.setattr(steps, "read_steps", noted)
    handles = await well.aenqueue_many([{}] * 30)
    async with shop.working(worker_concurrency=30):
        await shop.ended(*handles)
    assert sum(sizes) == 30
    assert 1 < max(sizes) <= 8


async def test_an_async_run_takes_more_signals_than_are_read_at_once(shop: Workshop) -> None:
    @shop.task("work.listen")
    async def listen(ctx: Context) -> list[str]:
        await ctx.sleep(0)
        return [(await ctx.wait("word", str))[0] for _ in range(9)]

    await _takes_all(shop, listen.aenqueue)


async def test_a_sync_run_takes_more_signals_than_are_read_at_once(shop: Workshop) -> None:
    @shop.task("work.listen")
    def listen(ctx: SyncContext) -> list[str]:
        ctx.sleep(0)
        return [ctx.wait("word", str)[0] for _ in range(9)]

    await _takes_all(shop, listen.aenqueue)


async def _takes_all(shop: Workshop, enqueue: Callable[[], Awaitable[Any]]) -> None:
    handle = await enqueue()
    for n in range(9):
        await handle.asignal("word", f"{n}{'a' * 250_000}")
    async with shop.working():
        row = await shop.ended(handle)
    assert row["result"] == [str(n) for n in range(9)]


APPLICATION = f"""
from holdfast import App, Context, SyncContext

app = App()

@app.task("work.echo")
async def echo(n: int) -> str:
    return "a" * {LARGE // 4}

@app.task("work.join", max_attempts=1)
async def join(ctx: Context, count: int) -> int:
    return len(await ctx.map(echo, range(count)))

@app.task("work.listen")
async def listen(ctx: Context) -> str:
    await ctx.sleep(0)
    return (await ctx.wait("word", str))[:1]

@app.task("plain.task")
async def plain() -> None: ...
"""


_CHILDREN_ENDED = """select from (
  select count(*) as ended from queues.task_status where type = 'work.echo' and finished_at is not null) c
where c.ended = 1100"""


def _memory(pid: int, what: str) -> float:
    """MiB that a process uses now (`VmRSS`), or has used at most (`VmHWM`)."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


async def _fill(listen: Any) -> None:
    """As many signals as the run keeps."""
    handle = await listen.aenqueue()
    await handle.asignal("word", "w")
    while True:
        await handle.asignal("other", "a" * 260_000)


@pytest.mark.full
@pytest.mark.parametrize("attack", ["signals", "join"])
async def test_a_run_that_is_too_large_costs_neither_its_worker_nor_a_neighbour(
    shop: Workshop, tmp_path: Path, attack: str
) -> None:
    """The figures are printed: what the worker uses at most, and how long a plain task waits meanwhile."""
    listen, join = shop.task("work.listen")(_listen), shop.task("work.join")(_join)
    neighbour = Neighbour(shop, "plain.task")
    (tmp_path / "shop.py").write_text(APPLICATION)
    if attack == "signals":
        for _ in range(8):
            with pytest.raises(QuotaExceeded, match="max_signal_bytes"):
                await _fill(listen)
    environment = {"DATABASE_URL": shop.db.dsn}
    with holdfast("worker", "shop:app", "--queues", "work,plain", cwd=tmp_path, **environment) as worker:
        worker.logged("worker_started")
        before = _memory(worker.pid, "VmHWM")
        if attack == "join":
            await join.aenqueue(1100)
            await shop.until(_CHILDREN_ENDED)
        over = "select count(*) = %s from queues.task_status where type = %s and finished_at is not null"
        expected = (8, "work.listen") if attack == "signals" else (1, "work.join")
        while len(neighbour.waits) < 20 or not _is_true(shop, over, expected):
            await neighbour.wait_for_one()
        grown = _memory(worker.pid, "VmHWM") - before
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
    neighbour.close()
    print(f"{attack}: the worker has grown by {grown:.0f} MiB at most; {neighbour}")  # noqa: T201 - figures
    assert grown < 400  # MiB, from the start of the worker
    neighbour.assert_undisturbed()


def _is_true(shop: Workshop, query: str, parameters: tuple[Any, ...]) -> bool:
    row = shop.conn.execute(query.encode(), parameters).fetchone()
    return row == (True,)


async def _listen(ctx: Context) -> str: ...  # type: ignore[empty-body] # runs in the worker


async def _join(ctx: Context, count: int) -> int: ...  # type: ignore[empty-body] # as above


async def test_a_worker_that_dies_of_a_run_counts_an_attempt(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @shop.task("work.sick", retry=Linear(step=0.01))
    async def sick(ctx: Context) -> None:
        await ctx.sleep(0)

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("holdfast._worker.reading.ResultPages", no_memory)
    handle = await sick.aenqueue()
    worker = shop.worker(lease="1s", heartbeat="0.5s")
    with pytest.raises(MemoryError):
        await worker.run()
    monkeypatch.undo()
    async with shop.working():
        await shop.ended(handle)
        errors = await shop.errors(handle)
    assert [error["kind"] for error in errors] == ["lease_expired"]
