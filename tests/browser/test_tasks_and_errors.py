"""The pages Tasks and Errors in a browser: what a person finds and changes, and that strings stay strings."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, Route, expect

from holdfast._engine import Engine, enqueue, leases, tasks, workers
from holdfast._engine.enqueue import NewTask
from holdfast._engine.tasks import TaskFilter
from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.accessibility import serious
from support.database import cloned_database
from support.hostile_strings import STRINGS
from support.leases import ended
from support.web import Web, serving

pytestmark = pytest.mark.full

DEAD = 109


def _fail(engine: Engine, type_: str, count: int, message: Callable[[int], str]) -> None:
    engine.run(enqueue.enqueue_many([NewTask(type_, {"invoice": n}, max_attempts=1) for n in range(count)]))
    for task in engine.run(leases.claim("w3", count, queues=[type_.partition(".")[0]])):
        number = json.loads(task.payload)["invoice"] + 1
        error = {"kind": "handler_error", "exception": "shop.Declined", "message": message(number)}
        engine.run(leases.finish("w3", [ended(task.task_id, task.token, "retry", error=error)]))


@pytest.fixture(scope="module")
def shop(server: EmbeddedServer, template: str) -> Iterator[Web]:
    with (
        cloned_database(server, template) as database,
        serving(database, asks_for_login=False, web_values="shown") as running,
    ):
        engine = running.engine
        engine.run(workers.register_worker("w3", "host", queues=["billing", "mail", "odd"], concurrency=200))
        _fail(engine, "billing.charge", DEAD, lambda n: f"Declined: card {n} of 'customer {n}' was declined")
        _fail(engine, "mail.send", 7, lambda n: f"no answer from 10.0.0.{n % 250} within {n} s")
        engine.run(enqueue.enqueue_many([NewTask("mail.later", {"to": n}) for n in range(60)]))
        yield running


@pytest.fixture
def visit(browser: Browser, shop: Web) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []
    complaints: list[str] = []

    def refuse(dialog: Dialog) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    def opened(scheme: Any = "light", width: int = 1280) -> Page:
        page = browser.new_page(
            base_url=shop.url, color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on("dialog", refuse)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 375)])
def test_the_pages_are_accessible_and_nothing_sticks_out(
    visit: Callable[..., Page], axe: str, scheme: str, width: int
) -> None:
    page = visit(scheme, width)
    found = []
    for path in (
        "/tasks",
        "/tasks?status=dead_letter&sort=-duration",
        "/tasks?where=$.x ?",
        "/errors",
        "/health",
    ):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        found += serious(page, axe)
    page.goto("/errors")
    if width > 400:
        page.get_by_role("button", name="Retry the tasks").first.click()
        found += serious(page, axe)
    assert found == []


def test_on_a_phone_a_task_takes_a_line_and_its_error_another_and_the_section_is_visible(
    visit: Callable[..., Page],
) -> None:
    page = visit(width=375)
    for status, height in (("dead_letter", 75), ("pending", 75), ("pending&type=mail.later", 45)):
        page.goto(f"/tasks?status={status}")
        heights = page.evaluate(
            "[...document.querySelectorAll('.tasks tbody tr')].map(row => row.offsetHeight)"
        )
        assert max(heights, default=0) < height
    page.goto("/health")
    expect(page.get_by_role("link", name="Health", exact=True)).to_be_in_viewport(ratio=1)


def test_three_clicks_tell_which_type_fails_most_since_the_deploy_and_with_which_error(
    visit: Callable[..., Page],
) -> None:
    page = visit()
    page.goto("/")
    page.get_by_role("link", name="Errors").click()
    page.get_by_role("link", name="since the deploy").click()
    expect(page.get_by_text("billing.charge fails most")).to_be_visible()
    first = page.locator(".errors tbody tr").first
    expect(first).to_contain_text("Declined: card # of … was declined")
    expect(first).to_contain_text(str(DEAD))


def test_three_clicks_retry_the_dead_letters_of_one_error_with_one_reason(
    visit: Callable[..., Page], shop: Web
) -> None:
    page = visit()
    page.goto("/")
    page.get_by_role("link", name="Errors").click()
    page.get_by_role("button", name="Retry the tasks of this error: billing.charge").click()
    expect(page.get_by_text(f"{DEAD} tasks that match can be retried")).to_be_visible()
    page.get_by_label("Reason").fill("the bank is back")
    page.get_by_role("button", name=f"Retry {DEAD} tasks").click()
    expect(page.get_by_role("status")).to_contain_text(f"Retried {DEAD} tasks")
    found = shop.engine.run(tasks.find_tasks(TaskFilter("pending", None, "billing.charge"), None, 1000))
    assert len(found.task_ids) == DEAD
    assert shop.engine.run(tasks.task_events(found.task_ids[0]))[-1].reason == "the bank is back"


def _ticked(page: Page) -> int:
    return page.locator('input[form="bulk"]:checked').count()


def test_tasks_are_selected_on_the_page_and_changed_together(visit: Callable[..., Page], shop: Web) -> None:
    page = visit()
    page.goto("/tasks?type=mail.later&status=pending")
    page.get_by_label("Select all tasks of this page").check()
    assert _ticked(page) == 50
    page.locator('input[form="bulk"]').first.uncheck()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_label("Reason").fill("wrong text")
    page.get_by_role("button", name="Cancel 49 tasks").click()
    expect(page.get_by_role("status")).to_contain_text("Cancelled 49 tasks")
    page.goto("/tasks?type=mail.later&status=pending")
    page.get_by_label("Change").select_option("all that match")
    page.get_by_role("button", name="Reschedule…").click()
    page.get_by_label("Run at a time").fill("2h")
    page.get_by_label("Reason").fill("later")
    page.get_by_role("button", name="Reschedule 11 tasks").click()
    expect(page.get_by_role("status")).to_contain_text("Rescheduled 11 tasks")


def test_hostile_strings_are_only_shown(visit: Callable[..., Page], shop: Web) -> None:
    engine = shop.engine
    for string in STRINGS[:30]:
        clean = str(string).replace("\0", "")
        engine.run(enqueue.enqueue(NewTask("odd.one", {"text": clean, clean[:50] or "x": 1}, max_attempts=1)))
    for n, task in enumerate(engine.run(leases.claim("w3", 100, queues=["odd"]))):
        error = {"kind": "handler_error", "message": str(STRINGS[n % len(STRINGS)]).replace("\0", "") or "x"}
        engine.run(leases.finish("w3", [ended(task.task_id, task.token, "failed", error=error)]))
    page = visit()
    for path in ("/tasks?type=odd.", "/errors?type=odd.", '/errors?type="><script>alert(1)</script>'):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0


def _is_live(asked: Route | Request) -> bool:
    request = asked.request if isinstance(asked, Route) else asked
    return "text/event-stream" in request.headers.get("accept", "")


def test_a_selection_survives_an_update(visit: Callable[..., Page], shop: Web) -> None:
    page = visit()
    updates: list[Route] = []  # held back, so that the first one comes after the selection
    page.route("**/tasks", lambda route: updates.append(route) if _is_live(route) else route.continue_())
    with page.expect_event("request", _is_live):
        page.goto("/tasks")
    page.locator('input[form="bulk"]').nth(3).check()
    for route in updates:
        route.continue_()
    new: UUID = shop.engine.run(enqueue.enqueue(NewTask("mail.newcomer")))
    expect(page.locator(f"#row-{new}")).to_be_visible(timeout=20_000)
    assert _ticked(page) == 1
