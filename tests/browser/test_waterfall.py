"""The steps of a run on the page of its task: drawn, signalled, woken and forked in a browser."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from holdfast import App, Context, Linear
from holdfast._engine import enqueue
from holdfast._engine.enqueue import NewTask
from support.accessibility import serious
from support.web import Web
from support.worker_thread import working

SECRET_TEXT = "card 4111 declined"  # noqa: S105 - stands for a value that must not be shown


@pytest.fixture
def orders(web: Web) -> Iterator[App]:
    app = App(web.database.dsn)
    tries: list[int] = []

    async def reserve(order_id: int) -> str:
        return f"reserved {order_id}"

    async def charge(order_id: int) -> str:
        tries.append(order_id)
        if len(tries) < 3:
            raise RuntimeError(SECRET_TEXT)
        await asyncio.sleep(0.05)
        return "receipt"

    @app.task("orders.pack")
    async def pack(item: int) -> int:
        return item

    @app.task("orders.fulfil")
    async def fulfil(ctx: Context, order_id: int) -> bool:
        await ctx.step(reserve, order_id)
        await ctx.step(charge, order_id, retries=5, retry=Linear(step=0.01))
        await ctx.map(pack, [1, 2, 3])
        approved: bool = await ctx.wait("approval", bool)
        await ctx.sleep(timedelta(days=7), "cooling off")
        return approved

    yield app
    app.close()


def until(web: Web, task_id: UUID, status: str, step: str) -> None:
    connection = web.database.connect()
    query = """select from queues.task_status t where t.task_id = %s and t.status = %s
      and exists (select from queues.wait_status w where w.task_id = t.task_id and w.name like %s)"""
    while connection.execute(query, [task_id, status, f"{step}%"]).fetchone() is None:
        connection.execute("select pg_sleep(0.02)")


def test_a_run_is_drawn_and_can_be_signalled_woken_and_forked(
    web: Web, orders: App, open_page: Callable[..., Page], pictures: Path, axe: str
) -> None:
    task_id = web.engine.run(enqueue.enqueue(NewTask("orders.fulfil", {"order_id": 7})))
    page = open_page()
    with working(orders, web.database.dsn, worker_queues="orders"):
        until(web, task_id, "suspended", "approval")
        page.goto(f"/tasks/{task_id}")
        fall = page.get_by_role("list", name="Attempts and steps")
        for name in ("Attempts", "reserve", "charge", "pack", "approval"):
            expect(fall.get_by_text(name, exact=True)).to_be_visible()
        assert fall.locator(".tick").count() == 2
        expect(fall.get_by_text("3 of 3 children ended")).to_be_visible()
        expect(fall.locator(".note", has_text="waits for signal approval until")).to_be_visible()
        assert SECRET_TEXT not in page.content()
        page.screenshot(path=pictures / "run-light.png", full_page=True)
        assert serious(page, axe) == []

        page.locator("#action-signal summary").click()
        page.get_by_label("Payload, as JSON").fill("true")
        page.get_by_role("button", name="Signal", exact=True).click()
        expect(page.get_by_text("The signal was sent.")).to_be_visible()
        until(web, task_id, "suspended", "cooling off")

        page.goto(f"/tasks/{task_id}")
        page.get_by_text("Wake now…").click()
        page.locator("#action-wake-now").get_by_label("Reason").fill("looking")
        page.locator("#action-wake-now").get_by_role("button").click()
        expect(page.get_by_text("The task is due now.", exact=True)).to_be_visible()

        row = page.locator(".fall", has=page.get_by_text("charge", exact=True))
        row.get_by_text("Fork from here…").click()
        row.get_by_label("Reason").fill("try the other card")
        row.get_by_role("button", name="Fork from here").click()
        expect(page.get_by_text(f"This run was forked from {task_id}.")).to_be_visible()
