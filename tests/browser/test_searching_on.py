"""A search that takes long, in a browser: the page goes on by itself until it has found something."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast._engine import enqueue, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.server.pages import page_search
from support.accessibility import serious
from support.database import cloned_database
from support.engine import claim, end
from support.web import Web, serving

LATER = "2090-01-01 00:00Z"
NEWER = 50


@pytest.fixture(scope="module")
def busy(server: EmbeddedServer, template: str) -> Iterator[Web]:
    """A rare run that is older than 50 others. A search examines ten tasks, and then pauses."""
    find = tasks.find_tasks
    with (
        pytest.MonkeyPatch.context() as patch,
        cloned_database(server, template) as database,
        serving(database, asks_for_login=False) as running,
    ):
        patch.setattr(page_search, "MAX_SEARCH_SECONDS", 0.0)
        patch.setattr(tasks, "find_tasks", lambda matching, before, limit: find(matching, before, limit, 10))
        running.engine.run(enqueue.enqueue(NewTask("rare.one", queue="work")))
        running.engine.run(enqueue.enqueue_many([NewTask("common.work", queue="work")] * NEWER))
        conn = database.connect()
        for task in claim(conn, max_tasks=1 + NEWER, queues=["work"]):
            waits = [{"name": "decision", "signal": "ok", "until": LATER}]
            end(conn, task, "suspend", waits=waits, run_at=LATER)
        yield running


@pytest.fixture
def page(browser: Browser, busy: Web) -> Iterator[Page]:
    opened = browser.new_page(base_url=busy.url)
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    opened.close()
    assert complaints == []


def _rare(web: Web) -> UUID:
    with web.database.connect() as conn:
        [(task_id,)] = conn.execute("select task_id from queues.task where type = 'rare.one'").fetchall()
    return UUID(str(task_id))


@pytest.mark.parametrize("path", ["/tasks?type=rare.", "/tasks?search=rare.one", "/runs?type=rare."])
def test_a_page_that_has_found_nothing_yet_searches_on_by_itself(
    page: Page, busy: Web, axe: str, path: str
) -> None:
    answer = page.goto(path)
    assert answer is not None
    assert "Searching on…" in answer.text()
    expect(page.locator(f"a[href='/tasks/{_rare(busy)}']").first).to_be_visible()
    expect(page.get_by_text("Searching on…")).to_have_count(0)
    assert serious(page, axe) == []


def test_a_page_says_when_it_has_searched_everything(page: Page) -> None:
    page.goto("/tasks?type=missing.")
    expect(page.get_by_text("No tasks found")).to_be_visible()
    page.goto("/runs?type=missing.")
    expect(page.get_by_text("No suspended runs")).to_be_visible()
