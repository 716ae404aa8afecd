"""Every action of the dashboard in a browser, in light and dark: with a reason, and undone if possible."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from holdfast._engine import access, enqueue, events, schedules, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._engine.events import Settlement
from holdfast._engine.schedules import NewSchedule
from holdfast.server.access import hash_of, new_token
from support.browser import act, row, told
from support.commands import fail
from support.web import Web

OpenPage = Callable[..., Page]

at_length = pytest.mark.long  # tests/http covers it without a browser


@pytest.fixture
def page(open_page: OpenPage, scheme: str) -> Page:
    return open_page(scheme)


def status(web: Web, task_id: UUID) -> str:
    found = web.engine.run(tasks.task_status(task_id))
    assert found
    return "deleted" if found.deleted_at else found.status


def reasons(web: Web, task_id: UUID) -> list[str]:
    return [event.reason for event in web.engine.run(tasks.task_events(task_id)) if event.reason]


def test_a_task_is_cancelled_by_keyboard_and_that_is_undone(
    page: Page, web: Web, scheme: str, pictures: Path
) -> None:
    task = web.engine.run(enqueue.enqueue(NewTask("keyboard.one")))
    page.goto(f"/tasks/{task}")
    page.get_by_text("Cancel…").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("not wanted any more")
    page.screenshot(path=pictures / f"act-cancel-{scheme}.png")
    page.keyboard.press("Enter")
    told(page, "The task is cancelled")
    assert status(web, task) == "cancelled"
    page.screenshot(path=pictures / f"act-cancelled-{scheme}.png")
    page.get_by_role("button", name="Undo").click()
    told(page, "new set of attempts")
    assert status(web, task) == "pending"
    assert reasons(web, task) == ["not wanted any more", "undo"]


@at_length
def test_a_dead_task_is_retried_and_that_is_undone(page: Page, web: Web, scheme: str) -> None:
    [task] = fail(web.engine, queue=f"dead{scheme}", status="dead_letter")
    page.goto(f"/tasks/{task}")
    act(page, "Retry", "the provider is back")
    told(page, "new set of attempts")
    assert status(web, task) == "pending"
    page.get_by_role("button", name="Undo").click()
    told(page, "The task is cancelled")
    assert status(web, task) == "cancelled"


@at_length
def test_a_task_is_deleted_and_restored(page: Page, web: Web, scheme: str, pictures: Path) -> None:
    task = web.engine.run(enqueue.enqueue(NewTask("unwanted.one")))
    page.goto(f"/tasks/{task}")
    act(page, "Delete", "of no use")
    told(page, "The task is deleted")
    assert status(web, task) == "deleted"
    page.screenshot(path=pictures / f"act-deleted-{scheme}.png")
    page.get_by_role("button", name="Undo").click()
    told(page, "The task is restored")
    assert status(web, task) == "pending"
    page.get_by_role("button", name="Undo").click()
    told(page, "The task is deleted")
    act(page, "Restore", "it was of use")
    told(page, "The task is restored")
    assert reasons(web, task)[-1] == "it was of use"


def test_values_are_revealed_and_that_is_recorded(
    open_page: OpenPage, web: Web, scheme: str, pictures: Path
) -> None:
    task = web.engine.run(enqueue.enqueue(NewTask("secret.one", {"card": "4111-1111"})))
    page = open_page(scheme, scopes=("operate",))
    page.goto(f"/tasks/{task}")
    expect(page.get_by_text("4111-1111")).to_have_count(0)
    act(page, "Show values", "support")
    expect(page.get_by_text("4111-1111")).to_be_visible()
    page.screenshot(path=pictures / f"act-shown-{scheme}.png", full_page=True)
    assert [event.reason for event in web.engine.run(access.reveals_of(task))] == ["support"]


@at_length
def test_a_reader_is_offered_no_actions(open_page: OpenPage, web: Web, scheme: str) -> None:
    task = web.engine.run(enqueue.enqueue(NewTask("watched.one")))
    page = open_page(scheme, scopes=("read",))
    for path in (f"/tasks/{task}", "/queues", "/schedules", "/outbox"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("details.action, form.one")).to_have_count(0)
    expect(page.get_by_role("link", name="Access")).to_have_count(0)


def test_a_queue_is_paused_and_resumed(page: Page, web: Web, scheme: str, pictures: Path) -> None:
    web.engine.run(enqueue.enqueue(NewTask(f"halting{scheme}.one")))
    page.goto("/queues")
    queue = row(page, f"halting{scheme}")
    act(queue, "Pause", "moving")
    told(page, "The queue is paused")
    expect(queue).to_contain_text("moving")
    page.screenshot(path=pictures / f"act-paused-{scheme}.png")
    act(queue, "Resume", "moved")
    told(page, "The queue is resumed")
    page.get_by_role("button", name="Undo").click()
    told(page, "The queue is paused")
    page.get_by_role("button", name="Undo").click()
    told(page, "The queue is resumed")


@at_length
def test_a_schedule_is_paused_and_resumed(page: Page, web: Web, scheme: str) -> None:
    name = f"hourly-{scheme}"
    web.engine.run(
        schedules.add_schedule(NewSchedule(name=name, task=NewTask("a.b"), every=timedelta(hours=1)))
    )
    page.goto("/schedules")
    act(row(page, name), "Pause", "holidays")
    told(page, "The schedule is paused")
    expect(row(page, name)).to_contain_text("holidays")
    page.get_by_role("button", name="Undo").click()
    told(page, "The schedule is resumed")
    act(row(page, name), "Pause", "holidays")
    act(row(page, name), "Resume", "back")
    told(page, "The schedule is resumed")


@at_length
def test_a_subscription_is_paused_resumed_and_redriven(
    page: Page, web: Web, scheme: str, pictures: Path
) -> None:
    name = f"shop-{scheme}"
    subscription_id = web.engine.run(events.subscribe(name, "console", "-", [f"{scheme}.*"]))
    web.engine.run(events.emit(f"{scheme}.created", {"order": 7}, "order-7"))
    [event] = web.engine.run(events.claim_events("d1", subscription_id))
    lost = Settlement(subscription_id, event.event_id, event.token, "rejected", "410 Gone")
    web.engine.run(events.settle_events("d1", [lost]))
    page.goto("/outbox")
    page.get_by_role("link", name=name).click()
    act(page.locator(".actions"), "Send all again", "the receiver is back")
    told(page, "One event is sent again")
    expect(page.get_by_text("the receiver is back")).to_be_visible()
    [found] = [one for one in web.engine.run(events.outbox_status()) if one.name == name]
    assert (found.dead, found.pending) == (0, 1)
    page.goto("/outbox")
    act(row(page, name), "Pause", "the receiver moves")
    told(page, "queued until it is resumed")
    page.screenshot(path=pictures / f"act-held-{scheme}.png")
    act(page.locator(".actions"), "Resume", "it has moved")
    told(page, "is resumed")


@at_length
def test_a_token_is_revoked(page: Page, web: Web, scheme: str) -> None:
    name = f"lost-{scheme}"
    web.engine.run(access.create_token(name, ["read"], hash_of(new_token())))
    page.goto("/access")
    act(row(page, name), "Revoke", f"{scheme} laptop was stolen")
    told(page, "The token is revoked")
    expect(row(page, name)).to_contain_text("revoked")
    expect(page.get_by_text(f"{scheme} laptop was stolen")).to_be_visible()
