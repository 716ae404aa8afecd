"""Every page in a browser: appearance, live updates and accessibility."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast._engine import enqueue, health, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.server.pages.page import NAVIGATION
from support.accessibility import serious
from support.database import Database, cloned_database
from support.web import Web, serving

OpenPage = Callable[..., Page]

FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"
PATHS = [path for path, _ in NAVIGATION]


# Elements wider than the window, unless they scroll by themselves.
SIDEWAYS = """() => {
  const root = document.documentElement;
  if (root.scrollWidth <= root.clientWidth) return [];
  return [...document.querySelectorAll("main *")]
    .filter((one) => one.getBoundingClientRect().right > root.clientWidth)
    .map((one) => one.outerHTML.slice(0, 120));
}"""


def picture(path: str, scheme: str) -> str:
    named = path.strip("/").replace("/", "-").replace("?", "-").replace("=", "-") or "overview"
    return f"{named}-{scheme}.png"


def unfold(page: Page) -> None:
    """Including closed forms and details."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


def test_every_page_looks_right_and_is_accessible(
    open_page: OpenPage, task_id: UUID, axe: str, pictures: Path, scheme: str
) -> None:
    page = open_page(scheme)
    found = []
    shown = {path: path for path in [*PATHS, "/tasks?status=failed", "/tasks?search=nothing-like-it"]}
    shown |= {
        "task": f"/tasks/{task_id}",
        "send": "/processes/comms.send_email/1",
        "worker": "/workers/show?id=worker-1",
    }
    shown |= {
        "process": "/processes/parcels",
        "instance": "/processes/parcels/1",
        "subscription": "/outbox/show?name=shop",
    }
    shown |= {"schedule": "/schedules/show?name=weekly-report", "queue": "/?queue=billing&window=1d"}
    for name, path in shown.items():
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.screenshot(path=pictures / picture(name, scheme), full_page=True)
        unfold(page)
        found += serious(page, axe)
    assert found == []


@pytest.fixture
def fresh(server: EmbeddedServer, template: str) -> Iterator[Database]:
    with cloned_database(server, template) as database:
        yield database


@pytest.mark.long  # tests/http covers it without a browser
def test_every_empty_page_is_accessible(
    browser: Browser, fresh: Database, axe: str, pictures: Path, scheme: str
) -> None:
    found = []
    with serving(fresh, asks_for_login=False) as empty:
        wanted: Any = scheme
        page = browser.new_page(base_url=empty.url, color_scheme=wanted)
        for path in PATHS:
            page.goto(path)
            page.screenshot(path=pictures / picture(f"empty{path}", scheme), full_page=True)
            found += serious(page, axe)
        page.close()
    assert found == []


def test_a_phone_shows_every_page_without_scrolling_sideways(
    open_page: OpenPage, task_id: UUID, axe: str, pictures: Path
) -> None:
    page = open_page(width=375)
    more = ("/processes/comms.send_email/1", "/processes/parcels", "/processes/parcels/1")
    others = ("/outbox/show?name=shop", "/workers/show?id=worker-1", "/schedules/show?name=weekly-report")
    for path in [*PATHS, f"/tasks/{task_id}", *more, *others]:
        page.goto(path)
        unfold(page)
        assert page.evaluate(SIDEWAYS) == [], path
        page.screenshot(path=pictures / picture(path.replace(str(task_id), "one"), "phone"))
    assert serious(page, axe) == []


def test_the_login_page_is_accessible(
    browser: Browser, web: Web, axe: str, pictures: Path, scheme: str
) -> None:
    wanted: Any = scheme
    page = browser.new_page(base_url=web.url, color_scheme=wanted)
    page.goto("/tasks")
    page.wait_for_url("**/login?next=%2Ftasks")
    page.get_by_label("Access token").fill("hf_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    page.screenshot(path=pictures / f"login-{scheme}.png")
    assert serious(page, axe) == []
    page.get_by_label("Access token").fill(web.token("read"))
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/tasks")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.close()


def test_a_link_with_a_token_logs_in_and_leaves_no_trace(browser: Browser, web: Web) -> None:
    page = browser.new_page(base_url=web.url)
    page.goto(f"/login#{web.token('read')}")
    page.wait_for_url("**/")
    assert "hf_" not in page.url
    page.close()


def test_a_page_updates_itself(open_page: OpenPage, web: Web, task_id: UUID) -> None:
    page = open_page()
    page.goto("/queues")
    expect(page.get_by_role("link", name="newcomers")).to_have_count(0)
    web.engine.run(enqueue.enqueue(NewTask("newcomers.first")))
    expect(page.get_by_role("link", name="newcomers")).to_be_visible(timeout=20_000)


def test_the_updates_of_a_page_can_be_paused(open_page: OpenPage, task_id: UUID) -> None:
    page = open_page()
    page.goto("/")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "false")


def test_updates_wait_while_a_form_is_open(open_page: OpenPage, web: Web, task_id: UUID) -> None:
    task = web.engine.run(enqueue.enqueue(NewTask("patient.one")))
    page = open_page()
    page.goto(f"/tasks/{task}")
    page.get_by_text("Cancel…").click()
    page.get_by_label("Reason").first.fill("because I")
    before = page.evaluate("Number(document.documentElement.dataset.live ?? 0)")
    web.engine.run(tasks.reschedule(task, delay=None, run_at=web.engine.run(health.clock())))
    page.wait_for_function("n => Number(document.documentElement.dataset.live ?? 0) > n", arg=before)
    expect(page.get_by_label("Reason").first).to_have_value("because I")


def test_a_task_is_found_by_pressing_a_slash(open_page: OpenPage, task_id: UUID) -> None:
    page = open_page()
    page.goto("/tasks")
    page.keyboard.press("/")
    page.keyboard.type(str(task_id))
    page.keyboard.press("Enter")
    page.get_by_role("link", name="media.report").click()
    expect(page.get_by_role("progressbar")).to_be_visible()


def test_the_first_tab_stop_skips_the_navigation(open_page: OpenPage, task_id: UUID) -> None:
    page = open_page()
    page.goto("/workers")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_a_worker_shows_that_it_leads_and_the_tasks_that_it_holds(open_page: OpenPage, task_id: UUID) -> None:
    page = open_page()
    page.goto("/workers")
    expect(page.get_by_role("row", name="worker-1").get_by_text("leader")).to_be_visible()
    page.get_by_role("link", name="worker-1").click()
    expect(page.get_by_role("heading", name="worker-1")).to_be_visible()
    expect(page.get_by_role("link", name="media.report")).to_be_visible()
