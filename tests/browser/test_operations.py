"""Processes, deliveries, workers and schedules in a browser: what they show, and every action."""

from collections.abc import Callable
from uuid import UUID

import pytest
from playwright.sync_api import Page, Route, expect

from holdfast._engine import enqueue, events, leases, processes, tasks, workers
from holdfast._engine.enqueue import NewTask
from holdfast._engine.events import Settlement
from holdfast._engine.leases import Vitals, rest
from support.accessibility import serious
from support.browser import act, row, told
from support.comms import run
from support.engine import value
from support.web import Web

OpenPage = Callable[..., Page]
WIDTHS = [1280, 375]


@pytest.fixture(params=WIDTHS, ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, open_page: OpenPage, scheme: str, task_id: UUID) -> Page:
    del task_id
    return open_page(scheme, width=request.param)


def test_an_instance_is_started_nudged_and_cancelled(page: Page, web: Web, axe: str) -> None:
    page.goto("/processes")
    page.get_by_role("link", name="parcels", exact=True).click()
    page.get_by_text("Start…").click()
    page.get_by_label("Input, as JSON").fill('{"order": 8}')
    page.get_by_role("button", name="Start").click()
    told(page, "The instance is started")
    number = int(page.url.partition("?")[0].rpartition("/")[2])
    expect(page.get_by_text("kicked off")).to_be_visible()
    expect(page.get_by_role("heading", name="Outstanding attempts")).to_be_visible()
    act(page.locator(".actions"), "Nudge", "the carrier called")
    told(page, "due or runs already")
    act(page.locator(".actions"), "Cancel", "a duplicate")
    told(page, "The instance is cancelled")
    expect(page.get_by_text("a duplicate").first).to_be_visible()
    assert serious(page, axe) == []
    found = web.engine.run(processes.process_status("parcels", number))
    assert found is not None
    assert (found.status, found.created_by.endswith(" for test admin")) == ("cancelled", True)


def test_a_second_click_does_not_act_twice(page: Page) -> None:
    page.goto("/processes/parcels")
    page.get_by_text("Start…").click()
    sent: list[Route] = []  # held back, as by a slow server
    page.route("**/start", lambda route: sent.append(route))  # noqa: PLW0108 - it looks for attributes
    place = page.get_by_role("button", name="Start").bounding_box()
    assert place is not None
    with page.expect_request("**/start"):
        page.mouse.click(place["x"] + 5, place["y"] + 5)
    page.mouse.click(place["x"] + 5, place["y"] + 5)
    for route in sent:
        route.continue_()
    told(page, "The instance is started")
    assert len(sent) == 1


def test_a_nudge_of_a_waiting_supervisor_is_on_the_timeline(page: Page, web: Web) -> None:
    connection = web.database.connect()
    number = value(connection, "select parcels.kickoff_parcels_task('{}')")
    run(connection, "parcels.parcels_supervisor", {"parcels_task_id": number})
    page.goto(f"/processes/parcels/{number}")
    expect(page.get_by_role("link", name="parcels.attempt")).to_be_visible()
    act(page.locator(".actions"), "Nudge", "why wait")
    told(page, "The supervisor is due now")
    expect(page.get_by_text("why wait").first).to_be_visible()
    found = web.engine.run(processes.process_status("parcels", number))
    assert found is not None
    assert found.task_id is not None
    assert "nudged: why wait" in [one.reason for one in web.engine.run(tasks.task_events(found.task_id))]


def test_failed_deliveries_are_sent_again_one_by_one_or_all(page: Page, web: Web, axe: str) -> None:
    name = f"hooks{web.engine.run(processes.list_processes())[0].unfinished}{page.viewport_size}"
    name = "".join(character for character in name if character.isalnum())
    number = web.engine.run(events.subscribe(name, "console", "-", [f"{name}.*"]))
    for order in (1, 2, 3):
        web.engine.run(events.emit(f"{name}.created", {"order": order}, f"order-{order}"))
    for claimed in web.engine.run(events.claim_events("d1", number)):
        lost = Settlement(number, claimed.event_id, claimed.token, "rejected", "410 <b>Gone</b>")
        web.engine.run(events.settle_events("d1", [lost]))
    page.goto("/outbox")
    page.get_by_role("link", name=name).click()
    expect(page.get_by_text("(hidden: text of 15 characters)").first).to_be_visible()
    assert serious(page, axe) == []
    act(page.locator("tbody tr").first, "Send again", "the receiver lost it")
    told(page, "One event is sent again")
    act(page.locator(".actions"), "Send all again", "the receiver is back")
    told(page, "2 events are sent again")
    expect(page.get_by_text("the receiver is back")).to_be_visible()
    page.get_by_role("link", name="Outstanding").click()
    expect(page.locator("tbody tr[id^=delivery]")).to_have_count(3)


def test_a_worker_shows_memory_rate_and_that_it_is_silent(page: Page, web: Web) -> None:
    name = f"worker-{page.viewport_size}".replace(" ", "")
    web.engine.run(workers.register_worker(name, "host-c", version="1.2.3", queues=["quiet"]))
    web.engine.run(rest(name, ["quiet"], None, Vitals(300 * 2**20, 1200, 4.0), holding=False))
    page.goto("/workers")
    expect(row(page, name)).to_contain_text("300 MiB")
    expect(row(page, name)).to_contain_text("4.00")
    expect(row(page, name)).to_contain_text("idle")
    admin = web.database.connect()
    admin.execute(
        "update queues.worker set last_heartbeat = last_heartbeat - timeout where worker_id = %s", [name]
    )
    page.goto("/workers")
    expect(row(page, name)).to_contain_text("silent")
    page.get_by_role("link", name=name).click()
    expect(page.get_by_text("1.2.3")).to_be_visible()
    expect(page.get_by_text("Nothing.")).to_be_visible()
    admin.execute("delete from queues.worker where worker_id = %s", [name])


def test_a_schedule_shows_its_next_runs_in_a_named_zone(page: Page, axe: str) -> None:
    page.goto("/schedules/show?name=weekly-report")
    expect(page.get_by_role("columnheader", name="Europe/Berlin")).to_be_visible()
    expect(page.get_by_role("cell", name="09:00")).to_have_count(5)
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("columnheader", name="Asia/Tokyo")).to_be_visible()
    page.get_by_label("Time zone").fill("Mars/Base")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("is not a time zone")
    assert serious(page, axe) == []


def test_a_schedule_runs_now_and_shows_the_outcome(page: Page, web: Web) -> None:
    page.goto("/schedules/show?name=weekly-report")
    act(page.locator(".actions"), "Run now", "the auditors ask")
    told(page, "The schedule has enqueued this task now")
    page.goto("/schedules/show?name=weekly-report")
    entry = page.get_by_role("row").filter(has_text="the auditors ask").first
    expect(entry).to_contain_text("for test admin")
    expect(entry).to_contain_text("pending")


def test_the_page_of_queues_says_why_a_key_waits(page: Page, web: Web, axe: str) -> None:
    queue = f"keyed{page.viewport_size}".translate({ord(character): None for character in "{}': ,"})
    for _ in range(3):
        web.engine.run(enqueue.enqueue(NewTask(f"{queue}.one", concurrency_key=queue)))
    [held] = web.engine.run(leases.claim("worker-1", 10, queues=[queue]))  # sets the others aside
    page.goto("/queues")
    entry = row(page, queue).filter(has_text="key runs")
    expect(entry).to_contain_text("a task of this key runs")
    assert serious(page, axe) == []
    entry.get_by_role("link", name="task").click()
    page.wait_for_url(f"**/tasks/{held.task_id}")
