"""A step that the server cannot store for a while delays no other run."""

import time
from typing import Any
from uuid import UUID

import pytest

from holdfast import Context
from holdfast._connections.acknowledged import MAX_FAILURES
from holdfast._connections.worker_connection import WorkerConnection
from holdfast.errors import TransactionConflict
from support.health import nothing_troubled, troubled
from support.workshop import Workshop

FAIL = """
create function public.fail() returns trigger language plpgsql as $$
begin
  raise exception 'planted' using errcode = '{state}';
end $$"""


@pytest.mark.parametrize("state", ["XX001", "57014", "53200"])
async def test_a_step_that_the_server_cannot_store_now_delays_no_other_run(
    shop: Workshop, state: str
) -> None:
    @shop.task("work.flow", max_attempts=1)
    async def flow(ctx: Context, name: str) -> list[str]:
        return [await ctx.step(_give, name), await ctx.step(_give_again, name)]

    shop.conn.execute(FAIL.format(state=state).encode())
    shop.conn.execute(
        "create trigger fail before insert on queues.step for each row"
        """ when (new.result = '"poison"') execute function public.fail()"""
    )
    async with shop.working(heartbeat="0.5s"):
        poison = await flow.aenqueue(name="poison")
        await shop.logged("step_not_stored", task_id=str(poison.task_id))
        assert "step_not_stored" in await troubled(shop, poison.task_id)
        await shop.ended(*await flow.aenqueue_many([{"name": "fine"}] * 5))
        shop.conn.execute("drop trigger fail on queues.step")
        row = await shop.ended(poison)
    assert (row["status"], row["result"]) == ("succeeded", ["poison", "poison again"])
    assert not shop.lines("database_unavailable")


async def test_children_that_the_server_cannot_start_now_delay_no_other_run(shop: Workshop) -> None:
    child = shop.task("work.child")(_give)
    poisoned = shop.task("work.poisoned")(_give)

    @shop.task("work.parent", max_attempts=1)
    async def parent(ctx: Context, poison: bool) -> str:
        handle = await ctx.start(poisoned if poison else child, "given")
        return str(handle.task_id)

    shop.conn.execute(FAIL.format(state="XX001").encode())
    shop.conn.execute(
        "create trigger fail before insert on queues.task for each row"
        " when (new.type = 'work.poisoned') execute function public.fail()"
    )
    async with shop.working():
        poison = await parent.aenqueue(poison=True)
        await shop.logged("children_not_started", task_id=str(poison.task_id))
        await shop.ended(await parent.aenqueue(poison=False))
        shop.conn.execute("drop trigger fail on queues.task")
        row = await shop.ended(poison)
        assert row["status"] == "succeeded"
        await shop.ended(UUID(row["result"]))


async def test_a_key_that_a_transaction_holds_delays_only_the_runs_that_start_tasks_with_it(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = shop.task("work.child")(_give)
    tries: list[float] = []
    run = WorkerConnection.run

    async def timed(connection: WorkerConnection, build: Any, **more: Any) -> Any:
        began = time.monotonic()
        try:
            return await run(connection, build, **more)
        except TransactionConflict:
            tries.append(time.monotonic() - began)
            raise

    monkeypatch.setattr(WorkerConnection, "run", timed)

    @shop.task("work.sick")
    async def sick(ctx: Context) -> None:
        await ctx.start(child.using(key="k"), "given")

    @shop.task("work.well")
    async def well(ctx: Context) -> list[str]:
        handle = await ctx.start(child, "given")
        return [str(handle.task_id), await ctx.step(_give, "noted")]

    holder = shop.db.connect(autocommit=False)
    holder.execute("select queues.enqueue('work.child', '{\"name\": \"given\"}', idempotency_key => 'k')")
    async with shop.working(worker_concurrency=30, heartbeat="0.5s"):
        stuck = await sick.aenqueue_many([{}] * 20)
        # More tries than after which errors of the server would stop all runs for a while.
        await shop.sees(lambda: len(shop.lines("children_not_started")) > 2 * MAX_FAILURES)
        for handle in await well.aenqueue_many([{}] * 3):
            assert (await shop.ended(handle))["result"][1] == "noted"
        assert not shop.lines("database_unavailable")
        assert "children_not_started" in await troubled(shop, stuck[0].task_id)
        holder.rollback()
        await shop.ended(*stuck)
        await nothing_troubled(shop)
    assert sorted(tries)[len(tries) // 2] < 0.5


def _give(name: str) -> str:
    return name


def _give_again(name: str) -> str:
    return f"{name} again"
