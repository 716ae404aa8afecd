"""A worker and its leader in a database without the optional units."""

import asyncio
from typing import Any

import pytest

from holdfast._engine import Statement
from holdfast._install.schema import Choice, migrate
from holdfast._worker.duties import LOOK_AGAIN_SECONDS, OfUnit
from holdfast._worker.leader import Execute
from support.database import Database
from support.workshop import Workshop


class Counted:
    """A duty that counts how often it is done."""

    name = "counted"
    interval = 15.0
    times = 0

    def run(self, execute: Execute) -> float | None:
        del execute
        self.times += 1
        return None


@pytest.fixture
def db(core_db: Database) -> Database:
    """The database of the workshop."""
    return core_db


def answering(*answers: list[str]) -> Any:
    given = iter(answers)

    def execute(statement: Statement[Any]) -> Any:
        assert "installed_units" in statement.sql
        return next(given)

    return execute


def test_a_duty_of_a_unit_rests_until_the_unit_is_there_and_is_not_asked_about_again() -> None:
    duty = Counted()
    of_unit = OfUnit("events", duty)
    execute = answering(["core"], ["core", "events"])

    assert (of_unit.run(execute), duty.times) == (LOOK_AGAIN_SECONDS, 0)
    assert (of_unit.run(execute), duty.times) == (None, 1)
    assert (of_unit.run(execute), duty.times) == (None, 2)


async def test_a_worker_runs_tasks_and_leads_without_any_unit(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._worker.leader.CLEANING_AFTER_SECONDS", 0.0)
    looked: set[str] = set()
    all_looked = asyncio.Event()
    loop = asyncio.get_running_loop()
    run = OfUnit.run

    def noted(self: OfUnit, execute: Execute) -> float | None:
        pause = run(self, execute)
        looked.add(self.name)
        if looked == {"outbox", "processes", "ended_processes"}:
            loop.call_soon_threadsafe(all_looked.set)
        return pause

    monkeypatch.setattr(OfUnit, "run", noted)

    @shop.task("work.echo")
    async def echo(word: str) -> str:
        return word

    handle = await echo.aenqueue("hello")
    async with shop.working():
        assert (await shop.ended(handle))["status"] == "succeeded"
        await asyncio.wait_for(all_looked.wait(), 60)

    assert [line for line in shop.logs if line["level"] in ("warning", "error")] == []


async def test_a_unit_that_is_added_while_a_worker_leads_is_taken_care_of(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._worker.leader.CLEANING_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("holdfast._worker.duties.LOOK_AGAIN_SECONDS", 0.05)

    @shop.task("work.echo")
    async def echo() -> None: ...

    async with shop.working():
        await shop.logged("leading_started")
        await asyncio.to_thread(migrate, shop.db.dsn, choice=Choice(wanted=frozenset({"events"})))
        shop.conn.execute(
            "insert into queues.received_event values ('n', 's', 'e', now() - interval '1 year')"
        )
        await shop.until("select true where not exists (select from queues.received_event)")
