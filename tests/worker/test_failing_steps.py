"""A step that fails for a while is visible wherever somebody looks for errors."""

import asyncio
import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast import Context, Linear, NoRetry, SyncContext
from holdfast._engine import Engine, error_groups, health, tasks
from holdfast._engine.tasks import TaskFilter
from holdfast._worker.metrics import MAX_STEPS, Collector, Metrics
from holdfast.handle import Handle
from support.commands import run
from support.web import serving
from support.workshop import Workshop

MESSAGE = "TLS certificate of bank 77 expired"


class Bank(ConnectionError):
    pass


@pytest.fixture
async def failed_twice(shop: Workshop) -> tuple[Handle[Any], Metrics]:
    """A run whose step has failed twice: its third try is an hour from now."""
    tries = 0

    async def call_bank(iban: str) -> None:
        nonlocal tries
        tries += 1
        raise Bank(MESSAGE)

    class Twice:
        def delay(self, attempt: int, error: BaseException) -> float:
            del error
            return 0.01 if attempt == 1 else 3600.0

    @shop.task("work.transfer", retry=NoRetry())
    async def transfer(ctx: Context) -> None:
        await ctx.step(call_bank, "DE02-1203", retries=20, retry=Twice())

    async with shop.working() as worker:
        handle = await transfer.aenqueue()
        await shop.becomes(handle, "suspended")
    assert tries == 2
    return handle, worker.metrics


@pytest.fixture
def failing(failed_twice: tuple[Handle[Any], Metrics]) -> Handle[Any]:
    return failed_twice[0]


async def test_each_of_ten_places_names_the_step_that_fails(
    shop: Workshop, failed_twice: tuple[Handle[Any], Metrics]
) -> None:
    failing, metrics = failed_twice
    task_id, conn = str(failing.task_id), shop.conn

    def command(*arguments: str) -> str:
        return run(*arguments, url=shop.db.dsn).stdout

    def page(path: str) -> str:
        with serving(shop.db, asks_for_login=False, web_values="shown") as web:
            return web.client().get(path).text

    why = command("why", task_id)
    assert "Step call_bank failed (try 2 of 21); next try at " in why
    assert f"Latest error: Bank: {MESSAGE}" in why
    assert "It waits in" not in why

    assert all(text in command("show", task_id) for text in (MESSAGE, "call_bank 2/21"))

    errors = [command("errors"), await asyncio.to_thread(page, "/errors")]
    assert all("call_bank" in text and "TLS certificate of bank" in text for text in errors)

    assert task_id in command("list", "--search", "TLS")
    [row] = json.loads(command("list", "--json"))["tasks"]
    assert row["last_error"] == f"Bank: {MESSAGE}"

    [line] = [one for one in Engine(conn).run(health.health()) if one.check_name == "failing_type"]
    assert "2 tries of steps failed, the last of call_bank" in line.message
    assert (line.subject, line.error) == ("work.transfer", f"Bank: {MESSAGE}")
    assert f"holdfast why {task_id}" in str(line.advice)

    [line] = [one for one in Engine(conn).run(health.health()) if one.check_name == "failing_step"]
    assert (line.level, line.subject, line.error) == ("amber", "work.transfer", f"Bank: {MESSAGE}")
    overview = await asyncio.to_thread(page, "/")
    assert "a step of runs of type work.transfer fails" in overview
    assert "step fails" in overview
    assert "No task has failed" not in overview

    registry = CollectorRegistry()
    registry.register(Collector(metrics))
    counted = 'holdfast_failed_step_tries_total{step="call_bank",type="work.transfer"} 2.0'
    assert counted in generate_latest(registry).decode()

    info = await failing.ainfo()
    assert [(one.step, one.step_try, one.attempt) for one in info.errors] == [
        ("call_bank", 1, 1),
        ("call_bank", 2, 1),
    ]
    assert MESSAGE in info.errors[0].message

    first, second = shop.lines("step_failed")
    assert (first["task_id"], first["type"], first["level"]) == (task_id, "work.transfer", "warning")
    assert [(one["step"], one["step_try"], one["step_tries"]) for one in (first, second)] == [
        ("call_bank", 1, 21),
        ("call_bank", 2, 21),
    ]
    assert str(second["exception"]).endswith("Bank")
    assert second["next_try"] is not None

    shown = await asyncio.to_thread(page, f"/tasks/{task_id}")
    assert "step call_bank, try 2 of 21" in shown
    assert "DE02-1203" in shown
    assert 'arguments: {"iban": "DE02-1203"}' in command("runs", "show", task_id, "--values")
    assert MESSAGE in shown


async def test_an_error_group_leads_to_the_task(shop: Workshop, failing: Handle[Any]) -> None:
    engine = Engine(shop.conn)
    [group] = engine.run(error_groups.list_error_groups())
    assert (group.type, group.step, group.errors, group.ended) == ("work.transfer", "call_bank", 2, 0)
    found = engine.run(tasks.find_tasks(TaskFilter(error_group=group.error_group)))
    assert found.task_ids == [failing.task_id]


async def test_no_other_view_takes_a_failed_try_for_a_failed_attempt(
    shop: Workshop, failing: Handle[Any]
) -> None:
    found = Engine(shop.conn).run(tasks.task_events(failing.task_id))
    assert [one.event_type for one in found] == ["created", "claimed", "started", "suspended"]
    assert (await failing.ainfo()).attempt == 0


async def test_a_step_of_a_plain_function_is_logged_with_its_last_try(shop: Workshop) -> None:
    def call_bank() -> None:
        raise Bank(MESSAGE)

    @shop.task("work.plain", retry=NoRetry())
    def plain(ctx: SyncContext) -> None:
        ctx.step(call_bank, retries=1, retry=Linear(step=0.01, jitter=0))

    async with shop.working():
        row = await shop.ended(await plain.aenqueue())
    assert row["last_error"] == f"StepFailed: the step call_bank failed: Bank: {MESSAGE}"
    assert [(one["step_try"], one["next_try"] is None) for one in shop.lines("step_failed")] == [
        (1, False),
        (2, True),
    ]


def test_metrics_count_failed_tries_by_type_and_step_and_are_bounded() -> None:
    metrics = Metrics()
    metrics.step_failed("work.transfer", "call_bank")
    metrics.step_failed("work.transfer", "call_bank")
    for n in range(MAX_STEPS + 5):
        metrics.step_failed("work.noise", f"step_{n}")
    registry = CollectorRegistry()
    registry.register(Collector(metrics))
    text = generate_latest(registry).decode()
    assert 'holdfast_failed_step_tries_total{step="call_bank",type="work.transfer"} 2.0' in text
    assert 'holdfast_failed_step_tries_total{step="other",type="other"} 6.0' in text
    assert len(metrics.failed_steps) == MAX_STEPS + 1
