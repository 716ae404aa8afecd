"""Results are kept until they are acknowledged, and one that is refused harms no other."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import structlog

from holdfast._connections.acknowledged import MAX_CHARACTERS, MAX_ITEMS
from holdfast._engine import Statement
from holdfast._worker.jobs import Job
from holdfast._worker.metrics import Metrics
from holdfast._worker.settling import Settler
from holdfast.errors import DatabaseUnavailable, InvalidArgument
from support.leases import claimed
from support.proxy import Proxy
from support.workshop import Workshop


async def test_results_that_come_while_one_is_under_way_go_together(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    handles = await echo.aenqueue_many([{}] * 300)
    async with shop.working(worker_concurrency=300) as worker:
        await shop.ended(*handles)
        assert worker.metrics.batches["finish"].count < 100
        assert worker.metrics.batches["finish"].total == 300


async def test_a_result_is_told_again_until_it_is_acknowledged(shop: Workshop, proxy: Proxy) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @shop.task("work.echo")
    async def echo() -> str:
        started.set()
        await gate.wait()
        return "kept"

    async with shop.working(proxy.dsn, lease="1m"):
        handle = await echo.aenqueue()
        await started.wait()
        proxy.close()
        gate.set()
        await shop.logged("database_unavailable", connection="settle")
        proxy.open()
        row = await shop.ended(handle)
    assert (row["status"], row["result"], row["attempt"]) == ("succeeded", "kept", 1)


async def test_a_result_that_was_stored_before_the_connection_broke_counts_once(
    shop: Workshop, proxy: Proxy
) -> None:
    @shop.task("work.echo")
    async def echo() -> str:
        return "kept"

    async with shop.working(proxy.dsn, lease="1m") as worker:
        cut: list[bool] = []
        link = worker._parts.settler._connection
        run = link.run

        async def run_and_lose_the_answer(build: Callable[[], Statement[Any]]) -> Any:
            answer = await run(build)
            if not cut:
                cut.append(True)
                raise DatabaseUnavailable("the answer was lost")
            return answer

        link.run = run_and_lose_the_answer  # type: ignore[assignment,method-assign]
        row = await shop.ended(await echo.aenqueue())
        await shop.sees(lambda: worker.metrics.finished["succeeded"] == 1)
        assert worker.metrics.batches["finish"].count == 2
    assert (row["status"], row["attempt"]) == ("succeeded", 1)


async def test_a_task_that_another_session_has_locked_does_not_delay_others(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    @shop.task("work.echo")
    async def echo() -> str:
        await gate.wait()
        return "kept"

    monkeypatch.setattr("holdfast._worker.settling.ASIDE_SECONDS", 0.1)
    other = shop.db.connect(autocommit=False)
    async with shop.working(lease="1m", heartbeat="20s") as worker:
        locked, *others = await echo.aenqueue_many([{}] * 5)
        await shop.until("select from queues.lease having count(*) = 5")
        other.execute("select from queues.lease where task_id = %s for update", [locked.task_id])
        gate.set()
        await shop.ended(*others)
        assert worker._parts.settler.unsettled == 1
        other.rollback()
        row = await shop.ended(locked)
        await shop.sees(lambda: worker.metrics.finished == {"succeeded": 5})
    assert (row["status"], row["result"], row["attempt"]) == ("succeeded", "kept", 1)


async def test_a_result_that_is_refused_fails_alone() -> None:
    refused = _Link(lambda written: "poison" in written)
    verdicts: list[tuple[str, str]] = []
    settler = Settler(
        refused,  # type: ignore[arg-type]
        "w1",
        structlog.get_logger(),
        Metrics(),
        lambda job, _: verdicts.append((job.task_id, job.status)),
        looks_again=lambda: False,
    )
    for name in ("a", "poison", "b"):
        settler.add(_job(name), json.dumps({"task_id": name, "token": 1, "status": "succeeded"}))
    refused.names = {"poison"}
    running = asyncio.create_task(settler.run())
    await settler.emptied()
    running.cancel()
    assert verdicts == [("a", "succeeded"), ("b", "succeeded"), ("poison", "failed")]


@pytest.mark.parametrize("state", ["54000", "58030", "XX000", "XX001", "55000", "25P04", "57014", "ZZ999"])
async def test_an_error_of_the_server_while_a_result_is_stored_fails_no_task(
    shop: Workshop, state: str
) -> None:
    @shop.task("work.echo", max_attempts=1)
    async def echo(n: int) -> int:
        return n

    shop.conn.execute("create sequence public.stored")
    shop.conn.execute(
        "create function public.fail_once() returns trigger language plpgsql as $$ begin"
        f" if nextval('public.stored') = 1 then raise exception 'planted' using errcode = '{state}'; end if;"
        " return new; end $$"
    )
    shop.conn.execute(
        "create trigger fail_once before insert on queues.outcome for each row"
        " execute function public.fail_once()"
    )
    shop.conn.execute("grant all on sequence public.stored to public")
    handles = await echo.aenqueue_many([{"n": n} for n in range(5)])
    async with shop.working():
        rows = [await shop.ended(handle) for handle in handles]
    assert [(row["status"], row["result"], row["attempt"]) for row in rows] == [
        ("succeeded", n, 1) for n in range(5)
    ]


async def test_a_result_that_the_server_cannot_store_delays_no_other_and_has_its_task_run_again(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._worker.settling.STORE_SECONDS", 0.2)

    @shop.task("work.echo", max_attempts=2)
    async def echo(text: str) -> str:
        return text

    shop.conn.execute(
        "create function public.fail() returns trigger language plpgsql as $$ begin"
        " if new.result = '\"poison\"' then raise exception 'planted' using errcode = 'XX001'; end if;"
        " return new; end $$"
    )
    shop.conn.execute(
        "create trigger fail before insert on queues.outcome for each row execute function public.fail()"
    )
    poison, *others = await echo.aenqueue_many([{"text": "poison"}, {"text": "a"}, {"text": "b"}])
    async with shop.working():
        await shop.ended(*others)
        row = await shop.ended(poison)
    assert (row["status"], row["attempt"]) == ("dead_letter", 2)
    assert [(error["kind"], "XX001" in error["message"]) for error in await shop.errors(poison)] == [
        ("result_not_stored", True)
    ] * 2


async def test_a_task_whose_result_is_refused_in_every_form_does_not_run_again(shop: Workshop) -> None:
    """It had begun between two heartbeats, and no report says so."""
    ran = []

    @shop.task("work.echo", max_attempts=1)
    async def echo() -> None:
        ran.append(1)

    shop.conn.execute(
        "create function public.fail() returns trigger language plpgsql as $$ begin"
        " if new.status <> 'dead_letter' then raise exception 'planted' using errcode = '23514'; end if;"
        " return new; end $$"
    )
    shop.conn.execute(
        "create trigger fail before insert on queues.outcome for each row execute function public.fail()"
    )
    async with shop.working(lease="2s", heartbeat="300ms"):
        handle = await echo.aenqueue()
        await shop.logged("result_refused", verdict="refused")
        row = await shop.ended(handle)
    assert (row["status"], row["attempt"], len(ran)) == ("dead_letter", 1, 1)


async def test_one_statement_carries_only_so_many_results_and_characters() -> None:
    settler = Settler(
        _Link(),  # type: ignore[arg-type]
        "w1",
        structlog.get_logger(),
        Metrics(),
        lambda *_: None,
        looks_again=lambda: False,
    )
    for n in range(MAX_ITEMS + 1):
        settler.add(_job(str(n)), "{}")
    assert [len(settler._batches.take()), len(settler._batches.take())] == [MAX_ITEMS, 1]
    for n in range(3):
        settler.add(_job(str(n)), "x" * (MAX_CHARACTERS // 2 + 1))
    settler.add(_job("huge"), "x" * (MAX_CHARACTERS + 1))
    assert [len(settler._batches.take()) for _ in range(4)] == [1, 1, 1, 1]


async def test_a_release_that_failed_does_not_keep_the_worker_from_claiming() -> None:
    """It is not repeated after the end of its lease, so the connection would seem to fail for ever."""
    link = _Link()
    link.failing = True
    settler = Settler(
        link,  # type: ignore[arg-type]
        "w1",
        structlog.get_logger(),
        Metrics(),
        lambda *_: None,
        looks_again=lambda: False,
    )
    assert not settler.is_behind()
    settler.add(_job("kept"), "{}")
    assert settler.is_behind()


class _Link:
    """Refuses batches that hold one of these names with another status than failed."""

    failing = False

    def __init__(self, _: object = None) -> None:
        self.names: set[str] = set()

    async def pause(self, error: BaseException) -> None:
        raise error

    async def run(self, build: Callable[[], Statement[Any]]) -> Sequence[Sequence[str]]:
        batch = json.loads(build().params[1])
        if any(one["task_id"] in self.names and one["status"] != "failed" for one in batch):
            raise InvalidArgument("no such JSON")
        return ["accepted" for _ in batch]


def _job(name: str) -> Job:
    job = Job(claimed(name), 0.0)
    job.status = "succeeded"
    return job
