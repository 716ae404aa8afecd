"""Searches that take long end with an error, and keep neither a connection nor a token check from others."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from holdfast._engine import Statement, enqueue, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._engine.statement import only
from holdfast._engine.tasks import FoundTasks
from holdfast.server import bulk_steps, searches, turns
from holdfast.server.api import tasks as api_tasks
from holdfast.server.pages import page_search
from support.visitor import Visitor
from support.web import Web

SLOW = "select null::uuid[] as task_ids, null::uuid as next from pg_sleep(300)"
_RUNNING = "from pg_stat_activity where query = %s and state = 'active'"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search takes five minutes."""

    def find(*given: Any) -> Statement[FoundTasks]:
        del given
        return Statement(SLOW, (), only(FoundTasks).decode)

    for module in (tasks, bulk_steps):
        monkeypatch.setattr(module, "find_tasks", find)


def running(web: Web) -> int:
    with web.database.connect() as admin:
        [(count,)] = admin.execute(f"select count(*) {_RUNNING}", [SLOW]).fetchall()
    return int(count)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline


def act(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/v1/tasks/act", json={"action": "cancel", "reason": "no", **body})


ASKS: dict[str, Callable[[Web], httpx.Response]] = {
    "list": lambda web: web.client("operate").get("/v1/tasks?search=x"),
    "preview": lambda web: act(web.client("operate"), filter={"search": "x"}, dry_run=True),
    "step": lambda web: act(web.client("operate"), filter={"search": "x"}),
}
"""Of one token."""


@pytest.fixture(params=ASKS)
def refused(
    request: pytest.FixtureRequest, web: Web, slow: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[httpx.Response]]:
    """One token has asked for six searches at once: the responses that it has, while the last one runs."""
    del slow
    monkeypatch.setattr(searches, "SEARCH_SECONDS", 100)
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.5)
    web.client("operate")
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ASKS[request.param], web) for _ in range(6)]
        until(lambda: sum(one.done() for one in asked) == 5)
        try:
            yield [one.result() for one in asked if one.done()]
        finally:
            with web.database.connect() as admin:
                admin.execute(f"select pg_cancel_backend(pid) {_RUNNING}", [SLOW])


@pytest.mark.parametrize("ask", ASKS)
def test_a_search_that_takes_long_ends_with_a_clear_error(
    web: Web, slow: None, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    del slow
    monkeypatch.setattr(searches, "SEARCH_SECONDS", 1)
    answer = ASKS[ask](web)
    assert answer.status_code == 503
    assert answer.json()["detail"] == "the search took longer than 1 seconds"
    assert "Narrow it" in answer.json()["hint"]


def test_searches_of_one_token_delay_no_other_caller(web: Web, refused: list[httpx.Response]) -> None:
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [
        (429, "too_many_searches")
    ] * 5
    task_id = web.engine.run(enqueue.enqueue(NewTask("plain.one")))
    assert running(web) == 1
    for client in (web.client("operate"), web.client("read")):
        for path in (f"/v1/tasks/{task_id}", "/v1/queues", "/v1/health"):
            assert client.get(path).status_code == 200
    for client in (web.client("operate"), web.client("admin")):
        assert act(client, task_ids=[str(task_id)]).status_code == 200
    assert running(web) == 1


def test_the_page_of_an_action_on_many_tasks_finds_them_as_a_search(
    anna: Visitor, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del slow
    monkeypatch.setattr(searches, "SEARCH_SECONDS", 1)
    form = {"action": "cancel", "scope": "all", "search": "x"}
    for step in (form, form | {"confirmed": "yes", "reason": "no"}):
        answer = anna.post("/tasks/act", **step)
        assert (answer.status_code, "the search took longer" in answer.text) == (503, True)


@pytest.mark.parametrize("filters", ["type=rare.", "queue=rare&status=pending", "search=rare.one"])
def test_a_rare_task_is_found_behind_many_newer_ones(
    web: Web, reader: httpx.Client, anna: Visitor, monkeypatch: pytest.MonkeyPatch, filters: str
) -> None:
    task_id = web.engine.run(enqueue.enqueue(NewTask("rare.one")))
    web.engine.run(enqueue.enqueue_many([NewTask("common.work")] * 50))
    find = tasks.find_tasks
    monkeypatch.setattr(
        tasks, "find_tasks", lambda matching, before, limit: find(matching, before, limit, 10)
    )
    for module in (api_tasks, page_search):
        monkeypatch.setattr(module, "MAX_SEARCH_SECONDS", 60.0)
    newest = reader.get(f"/v1/tasks?{filters}").json()["tasks"][0]
    assert newest["task_id"] == str(task_id)
    page = anna.get(f"/tasks?{filters}").text
    assert str(task_id) in page
    assert re.search(r"pending <b>[1-9]", page)
    assert "<b>0+</b>" not in page
