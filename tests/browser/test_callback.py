"""The page behind a link of a waiting run, in a browser."""

from uuid import UUID

import pytest
from playwright.sync_api import Browser, Locator

from holdfast import App, Context
from holdfast._engine import enqueue
from holdfast._engine.enqueue import NewTask
from support.web import SECRET, Web
from support.worker_thread import working

QUESTION = "Pay <img src=x onerror=alert(1)> 5,000 to ACME?"


def until(web: Web, task_id: UUID, status: str) -> None:
    connection = web.database.connect()
    query = "select from queues.task_status where task_id = %s and status = %s"
    while connection.execute(query, [task_id, status]).fetchone() is None:
        connection.execute("select pg_sleep(0.02)")


def _background(button: Locator) -> str:
    return str(button.evaluate("button => getComputedStyle(button).backgroundColor"))


def test_a_person_answers_a_link_without_a_login(
    web: Web, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", SECRET)
    monkeypatch.setenv("HOLDFAST_WEB_URL", web.url)
    links: list[str] = []
    app = App(web.database.dsn)

    @app.task("links.approve")
    async def approve(ctx: Context) -> bool:
        links.append(
            await ctx.callback("approval", question=QUESTION, choices={"Pay": True, "Refuse": False})
        )
        answer: bool = await ctx.wait("approval", bool)
        assert answer
        return answer

    task_id = web.engine.run(enqueue.enqueue(NewTask("links.approve")))
    with working(app, web.database.dsn, worker_queues="links"):
        until(web, task_id, "suspended")
        page = browser.new_page()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(links[0])
        assert page.get_by_text(QUESTION).is_visible()
        assert page.locator("main img[src='x']").count() == 0
        first, second = (page.get_by_role("button", name=name) for name in ("Pay", "Refuse"))
        assert _background(first) != _background(second)
        assert page.get_by_text("You can answer until").is_visible()
        first.click()
        assert page.get_by_role("heading", name="Thank you").is_visible()
        until(web, task_id, "succeeded")
        assert problems == []
        page.goto(links[0])
        assert page.get_by_role("heading", name="Already answered").is_visible()
        page.close()
    assert len(set(links)) == 1
    app.close()
