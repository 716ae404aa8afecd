"""Every page and act in a real browser: how it looks, that it lives, and that everybody can use it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from holdfast.http.pages.page import NAVIGATION
from holdfast.model import NewTask
from support.documents import ROOT
from support.web import Web

OpenPage = Callable[..., Page]

PATHS = [path for path, _ in NAVIGATION]
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def axe() -> str:
    found = sorted((ROOT / "build" / "axe").glob("*.js"))
    if not found:
        if os.environ.get("CI") == "true":
            pytest.fail("axe-core is missing")
        pytest.skip("axe-core is missing: run tools/ensure-axe")
    return found[-1].read_text()


def _serious(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{page.url} {rule['id']}: {node['html'][:200]}"
        for rule in found["violations"]
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]


def test_every_page_looks_well_and_is_open_to_all(
    open_page: OpenPage, task_id: UUID, axe: str, pictures: Path, scheme: str
) -> None:
    page = open_page(scheme)
    found = []
    for path in [*PATHS, f"/tasks/{task_id}", "/tasks?status=failed", "/tasks?search=nothing-like-it"]:
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        name = path.strip("/").replace(str(task_id), "one").replace("/", "-").replace("?", "-") or "overview"
        page.screenshot(path=pictures / f"{name}-{scheme}.png", full_page=True)
        found += _serious(page, axe)
    assert found == []
    assert page.evaluate("window.hacked") is None


def test_a_phone_shows_every_page_without_scrolling_sideways(
    open_page: OpenPage, task_id: UUID, axe: str, pictures: Path
) -> None:
    page = open_page(width=375)
    for path in [*PATHS, f"/tasks/{task_id}"]:
        page.goto(path)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, path
        name = path.strip("/").replace(str(task_id), "one").replace("/", "-") or "overview"
        page.screenshot(path=pictures / f"{name}-phone.png")
    assert _serious(page, axe) == []


def test_the_login_page_is_open_to_all(open_page: OpenPage, axe: str, pictures: Path, scheme: str) -> None:
    page = open_page(scheme)
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.screenshot(path=pictures / f"login-{scheme}.png")
    assert _serious(page, axe) == []


def test_a_link_with_a_token_logs_in_and_leaves_no_trace(open_page: OpenPage, web: Web) -> None:
    page = open_page()
    page.get_by_role("button", name="Log out").click()
    page.goto(f"/login#{web.token('read')}")
    page.wait_for_url("**/")
    assert "hf_" not in page.url


def test_a_page_lives(open_page: OpenPage, web: Web, task_id: UUID) -> None:
    page = open_page()
    page.goto("/queues")
    expect(page.get_by_role("link", name="newcomers")).to_have_count(0)
    web.engine.enqueue(NewTask("newcomers.first"))
    expect(page.get_by_role("link", name="newcomers")).to_be_visible(timeout=20_000)


def test_who_is_about_to_say_why_is_not_disturbed(open_page: OpenPage, web: Web, task_id: UUID) -> None:
    task = web.engine.enqueue(NewTask("patient.one"))
    page = open_page()
    page.goto(f"/tasks/{task}")
    page.get_by_text("Cancel…").click()
    page.get_by_label("Why?").first.fill("because I")
    before = page.evaluate("Number(document.documentElement.dataset.live ?? 0)")
    web.engine.reschedule(task, delay=None, run_at=web.engine.clock())
    page.wait_for_function("n => Number(document.documentElement.dataset.live ?? 0) > n", arg=before)
    expect(page.get_by_label("Why?").first).to_have_value("because I")


def test_a_task_is_cancelled_by_keyboard_and_that_is_undone(open_page: OpenPage, web: Web) -> None:
    task = web.engine.enqueue(NewTask("keyboard.one"))
    page = open_page()
    page.goto(f"/tasks/{task}")
    page.get_by_text("Cancel…").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("not wanted any more")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("The task is cancelled")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("fresh set of attempts")
    found = web.engine.task_status(task)
    assert found
    assert found.status == "pending"


def test_values_are_shown_when_asked_for(open_page: OpenPage, web: Web) -> None:
    task = web.engine.enqueue(NewTask("secret.one", {"card": "4111-1111"}))
    page = open_page(scopes=("operate",))
    page.goto(f"/tasks/{task}")
    expect(page.get_by_text("4111-1111")).to_have_count(0)
    page.get_by_text("Show values…").click()
    page.get_by_label("Why?").last.fill("support")
    page.get_by_role("button", name="Show values").click()
    expect(page.get_by_text("4111-1111")).to_be_visible()
    assert len(web.engine.reveals_of(task)) == 1


def test_a_queue_is_paused_and_resumed(open_page: OpenPage, web: Web) -> None:
    web.engine.enqueue(NewTask("halting.one"))
    page = open_page()
    page.goto("/queues")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="halting"))
    row.get_by_text("Pause…").click()
    row.get_by_label("Why?").fill("moving")
    row.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("paused")
    row.get_by_text("Resume…").click()
    row.get_by_label("Why?").fill("moved")
    row.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("goes on")


def test_a_task_is_found_by_pressing_a_slash(open_page: OpenPage, task_id: UUID) -> None:
    page = open_page()
    page.goto("/tasks")
    page.keyboard.press("/")
    page.keyboard.type(str(task_id))
    page.keyboard.press("Enter")
    page.get_by_role("link", name="media.report").click()
    expect(page.get_by_role("progressbar")).to_be_visible()


def test_nothing_that_a_task_says_becomes_a_script(open_page: OpenPage, web: Web, task_id: UUID) -> None:
    page = open_page()
    for task in web.engine.search_tasks("hostile.", 40):
        page.goto(f"/tasks/{task.task_id}")
        assert page.evaluate("window.hacked") is None
