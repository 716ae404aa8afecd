"""Actions on many tasks over HTTP and on the pages Tasks and Errors, and what values they show."""

import hmac
import re
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast._engine import Engine, access, enqueue, leases, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.server import bulk_steps
from support.commands import fail
from support.database import cloned_database
from support.leases import ended
from support.visitor import Visitor
from support.web import Web, serving


@pytest.fixture
def anna(web: Web) -> Iterator[Visitor]:
    visitor = Visitor(web)
    visitor.log_in("admin")
    yield visitor
    visitor.client.close()


@pytest.fixture(scope="module")
def open_web(server: EmbeddedServer, template: str) -> Iterator[Web]:
    """A server that shows values."""
    with cloned_database(server, template) as database, serving(database, web_values="shown") as running:
        yield running


@pytest.fixture
def ben(open_web: Web) -> Iterator[Visitor]:
    visitor = Visitor(open_web)
    visitor.log_in("read")
    yield visitor
    visitor.client.close()


def statuses(engine: Engine, ids: list[UUID]) -> list[str]:
    found = {task.task_id: task.status for task in engine.run(tasks.tasks_with_ids(ids))}
    return [found[one] for one in ids]


def enqueued(engine: Engine, type_: str, count: int = 3) -> list[UUID]:
    return [engine.run(enqueue.enqueue(NewTask(type_, {"number": n}))) for n in range(count)]


def declined(engine: Engine, type_: str, count: int) -> list[UUID]:
    ids = enqueued(engine, type_, count)
    claimed = engine.run(leases.claim("w1", count, queues=[type_.partition(".")[0]]))
    for n, task in enumerate(claimed):
        error = {"kind": "handler_error", "exception": "shop.Declined", "message": f"card {n} declined"}
        engine.run(leases.finish("w1", [ended(task.task_id, task.token, "failed", error=error)]))
    return ids


def act(client: httpx.Client, **body: Any) -> Any:
    answer = client.post("/v1/tasks/act", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_all_that_match_are_changed_step_by_step(web: Web, engine: Engine) -> None:
    ids = enqueued(engine, "steps.one", 5)
    others = enqueued(engine, "steps_other.one", 1)
    client, body = web.client("operate"), {"action": "cancel", "filter": {"type": "steps."}, "reason": "no"}
    assert act(client, **body, dry_run=True) == {"changed": 5, "problems": [], "next": None, "more": False}
    changed, cursor = 0, None
    for _ in range(20):
        step = act(client, **body, limit=2, **({"cursor": cursor} if cursor else {}))
        changed, cursor = changed + step["changed"], step["next"]
        if cursor is None:
            break
    assert (changed, cursor) == (5, None)
    assert statuses(engine, ids + others) == ["cancelled"] * 5 + ["pending"]
    event = engine.run(tasks.task_events(ids[0]))[-1]
    assert (event.reason, "test operate" in str(event.actor)) == ("no", True)


def test_named_tasks_are_changed_and_the_others_are_problems(web: Web, engine: Engine) -> None:
    [failed], [pending] = fail(engine, queue="named"), enqueued(engine, "named2.one", 1)
    done = act(web.client("operate"), action="retry", task_ids=[str(failed), str(pending), str(uuid4())])
    assert (done["changed"], done["next"]) == (1, None)
    assert [(one["task_id"], one["problem"]) for one in done["problems"]] == [(str(pending), "it is pending")]


def test_tasks_are_rescheduled_and_deleted_and_restored(web: Web, engine: Engine) -> None:
    ids, client = enqueued(engine, "moved.one"), web.client("operate")
    given = {"type": "moved.", "status": "pending"}
    assert act(client, action="reschedule", filter=given, run_at="2099-01-01T00:00:00Z")["changed"] == 3
    assert statuses(engine, ids) == ["scheduled"] * 3
    for action in ("delete", "restore"):
        assert act(client, action=action, task_ids=[str(one) for one in ids])["changed"] == 3
    assert statuses(engine, ids) == ["scheduled"] * 3


@pytest.mark.parametrize("day", ["2099-01-29", "2099-01-30", "2099-01-31", "2096-02-29"])
def test_every_day_of_the_calendar_can_be_given(web: Web, day: str) -> None:
    given = {"type": "nobody.", "since": f"{day}T08:00:00Z"}
    done = act(web.client("operate"), action="reschedule", filter=given, run_at=f"{day}T08:00:00+02:00")
    assert done["changed"] == 0


def test_a_count_that_takes_long_says_that_there_may_be_more(
    web: Web, engine: Engine, anna: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling looks for tasks of six statuses, one after another."""
    enqueued(engine, "endless.one")
    body = {"action": "cancel", "filter": {"type": "endless."}, "dry_run": True}
    assert act(web.client("operate"), **body) == {"changed": 3, "problems": [], "next": None, "more": False}
    monkeypatch.setattr(bulk_steps, "COUNT_SECONDS", 0.0)
    assert act(web.client("operate"), **body) == {"changed": 0, "problems": [], "next": None, "more": True}
    page = anna.post("/tasks/act", action="cancel", scope="all", type="endless.").text
    assert "0 or more tasks that match can be cancelled" in page
    assert "Cancel 0 or more tasks</button>" in page


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"action": "cancel", "filter": {"since": "2099-02-29T08:00:00Z"}}, 400),
        ({"action": "cancel", "filter": {"since": "2099-01-31T08:00:00"}}, 400),
        ({"action": "cancel", "filter": {"since": "0001-01-01T00:00:00+23:59"}}, 400),
        ({"action": "cancel", "filter": {"since": "soon"}}, 400),
        ({"action": "cancel"}, 422),
        ({"action": "cancel", "filter": {}, "task_ids": [str(uuid4())]}, 422),
        ({"action": "reschedule", "filter": {}}, 422),
        ({"action": "cancel", "filter": {}, "run_at": "2099-01-01T00:00:00Z"}, 422),
        ({"action": "explode", "filter": {}}, 400),
        ({"action": "cancel", "filter": {"colour": "red"}}, 400),
        ({"action": "cancel", "filter": {}, "cursor": "nonsense.0"}, 422),
        ({"action": "cancel", "filter": {}, "limit": 51}, 400),
        ({"action": "cancel", "filter": {"where": "$.number"}}, 403),
    ],
)
def test_what_cannot_be_meant_is_refused(web: Web, body: dict[str, Any], status: int) -> None:
    assert web.client("operate").post("/v1/tasks/act", json=body).status_code == status


def test_arguments_and_errors_are_searched_where_values_are_shown(open_web: Web) -> None:
    engine, client = open_web.engine, open_web.client("operate")
    ids = declined(engine, "seen.pay", 3)
    given = {"where": "$.number ? (@ == 1)", "type": "seen."}
    assert act(client, action="retry", filter=given, dry_run=True)["changed"] == 1
    given = {"search": "CARD 2 dec", "type": "seen."}
    assert act(client, action="retry", filter=given, dry_run=True)["changed"] == 1
    listed = client.get("/v1/tasks", params={"where": "$.number ? (@ == 1)", "type": "seen."}).json()
    assert [task["task_id"] for task in listed["tasks"]] == [str(ids[1])]
    assert client.get("/v1/tasks", params={"where": "$.a ?"}).status_code == 400
    refused = client.post("/v1/tasks/act", json={"action": "retry", "filter": {"where": "$.a ?"}})
    assert (refused.status_code, "JSON path" in refused.json()["detail"]) == (400, True)
    shown = open_web.client("read").get(f"/v1/tasks/{ids[0]}").json()
    assert (shown["payload"], shown["values_hidden"]) == ({"number": 0}, False)


def test_hidden_values_cannot_be_guessed_by_a_list(web: Web, engine: Engine) -> None:
    declined(engine, "guess.pay", 1)
    refused = web.client("admin").get("/v1/tasks", params={"where": "$.number ? (@ == 0)"})
    assert (refused.status_code, refused.json()["code"]) == (403, "values_hidden")


def test_errors_are_listed_in_groups_and_without_messages_where_values_are_hidden(
    web: Web, open_web: Web
) -> None:
    for server, title in ((web, ""), (open_web, "card # declined")):
        declined(server.engine, "grouped.pay", 3)
        visitor = Visitor(server)
        visitor.log_in("read")
        page = visitor.get("/errors?type=grouped.").text
        [group] = server.client("read").get("/v1/errors", params={"type": "grouped."}).json()["groups"]
        assert (group["title"], group["errors"], group["exception"]) == (title, 3, "shop.Declined")
        assert ("card # declined" in page, "shop.Declined" in page) == (bool(title), True)
        visitor.client.close()


def test_a_preview_counts_and_the_action_needs_a_reason(anna: Visitor, engine: Engine) -> None:
    ids = declined(engine, "preview.pay", 4)
    form = {"action": "retry", "scope": "all", "type": "preview.", "status": "failed"}
    preview = anna.post("/tasks/act", **form)
    assert "Retry 4 tasks" in preview.text
    assert statuses(engine, ids) == ["failed"] * 4
    assert anna.post("/tasks/act", **form, confirmed="yes", reason=" ").status_code == 400
    done = anna.post("/tasks/act", **form, confirmed="yes", reason="mended")
    assert done.status_code == 303
    assert "Retried 4 tasks" in anna.get(done.headers["Location"]).text
    assert statuses(engine, ids) == ["pending"] * 4
    assert engine.run(tasks.task_events(ids[3]))[-1].reason == "mended"


def test_a_long_action_continues_where_it_stopped(
    anna: Visitor, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_steps.take_step, "__defaults__", (None, 2))
    ids = enqueued(engine, "long.one", 15)
    form = {"action": "cancel", "scope": "all", "type": "long.", "confirmed": "yes", "reason": "all"}
    answer = anna.post("/tasks/act", **form)
    while answer.status_code == 200:
        form |= dict(re.findall(r'name="(cursor|changed|refused)" value="([^"]*)"', answer.text))
        answer = anna.post("/tasks/act", **form)
    assert "done=cancelled&about=15" in answer.headers["Location"]
    assert statuses(engine, ids) == ["cancelled"] * 15


def test_selected_tasks_are_changed_and_no_others(anna: Visitor, engine: Engine) -> None:
    first, second = enqueued(engine, "ticked.one", 2)
    form = {"action": "cancel", "scope": "selected", f"task-{first}": "on"}
    assert "1 of 1 selected task" in anna.post("/tasks/act", **form).text
    anna.post("/tasks/act", **form, confirmed="yes", reason="one")
    assert statuses(engine, [first, second]) == ["cancelled", "pending"]


@pytest.mark.parametrize(
    "form",
    [
        {"action": "cancel", "scope": "selected"},
        {"action": "explode", "scope": "all"},
        {"action": "cancel", "scope": "selected", "task-nonsense": "on"},
        {"action": "reschedule", "scope": "all", "at": "soon"},
    ],
)
def test_a_form_that_cannot_be_meant_is_refused(anna: Visitor, form: dict[str, str]) -> None:
    assert anna.post("/tasks/act", **form).status_code == 400


def test_a_reader_may_not_change_many(web: Web) -> None:
    visitor = Visitor(web)
    visitor.log_in("read")
    form = {"action": "cancel", "scope": "all", "csrf": "x"}
    assert visitor.post("/tasks/act", **form).status_code == 403
    assert 'action="/tasks/act"' not in visitor.get("/tasks").text
    visitor.client.close()


def test_the_list_is_sorted_and_counted(anna: Visitor, engine: Engine) -> None:
    for name in ("b", "a", "c"):
        engine.run(enqueue.enqueue(NewTask(f"sorted.{name}")))

    def order(query: str) -> list[str]:
        return re.findall(r"sorted\.(\w)</a>", anna.get(f"/tasks?type=sorted.&{query}").text)

    assert (order("sort=type"), order("sort=-type"), order("")) == (
        ["a", "b", "c"],
        ["c", "b", "a"],
        ["c", "a", "b"],
    )
    assert order("sort=nonsense") == ["c", "a", "b"]
    assert "pending <b>3</b>" in anna.get("/tasks?type=sorted.").text


def test_values_are_shown_in_lists_after_a_recorded_request(anna: Visitor, engine: Engine) -> None:
    [task_id] = [engine.run(enqueue.enqueue(NewTask("shown.one", {"iban": "DE89 3704"})))]
    assert "DE89" not in anna.get("/tasks?type=shown.").text
    assert anna.post("/values/show", reason="").status_code == 400
    answer = anna.post("/values/show", reason="a complaint", back="/tasks?type=shown.")
    assert answer.headers["Location"] == "/tasks?type=shown."
    assert "DE89" in anna.get("/tasks?type=shown.").text
    assert "DE89" in anna.get(f"/tasks/{task_id}").text
    assert str(task_id) in anna.get('/tasks?type=shown.&where=$.iban ? (@ like_regex "^DE")').text
    [event] = [one for one in engine.run(access.access_events()) if one.reason == "a complaint"]
    assert (event.act, event.task_id) == ("revealed", None)
    anna.post("/values/hide", back="//evil.example")
    assert "DE89" not in anna.get("/tasks?type=shown.").text


def test_a_forged_or_borrowed_cookie_shows_nothing(web: Web, anna: Visitor, engine: Engine) -> None:
    engine.run(enqueue.enqueue(NewTask("forged.one", {"iban": "DE89 3704"})))
    anna.post("/values/show", reason="mine")
    mine = anna.client.cookies["holdfast_values"]
    until, _, proof = mine.partition(".")
    other = Visitor(web)
    other.log_in("operate")
    for cookie in (mine, f"{int(until) + 9000}.{proof}", "9" * 30, "x.y", f"{until}.", "²."):
        shown = other.client.get("/tasks?type=forged.", headers={b"Cookie": _cookies(other, cookie)}).text
        assert "DE89" not in shown
        assert "forged.one" in shown
    other.client.close()


def test_a_session_cannot_make_the_cookie_itself(web: Web, engine: Engine) -> None:
    """It would show values without a record. It knows its own cookie, and the CSRF token of every form."""
    engine.run(enqueue.enqueue(NewTask("forged.two", {"iban": "DE89 3704"})))
    other = Visitor(web)
    other.log_in("operate")
    until, session = str(int(time.time()) + 600), other.client.cookies["holdfast_session"]
    csrf = other.csrf()
    for key in (csrf, session, ""):
        for text in (f"values until {until}", f"holdfast values\n{session}\n{until}"):
            proof = hmac.new(key.encode(), text.encode(), "sha256").hexdigest()
            headers = {b"Cookie": _cookies(other, f"{until}.{proof}")}
            assert "DE89" not in other.client.get("/tasks?type=forged.", headers=headers).text
    other.client.close()


def _cookies(visitor: Visitor, values: str) -> bytes:
    session = "; ".join(f"{name}={value}" for name, value in visitor.client.cookies.items())
    return f"{session}; holdfast_values={values}".encode()


def test_a_reader_cannot_ask_for_values(web: Web, engine: Engine) -> None:
    visitor = Visitor(web)
    visitor.log_in("read")
    assert visitor.post("/values/show", reason="curious", csrf="x").status_code == 403
    assert "Show values" not in visitor.get("/tasks").text
    visitor.client.close()


def test_a_server_that_shows_values_shows_them_to_readers(ben: Visitor, open_web: Web) -> None:
    [task_id] = [open_web.engine.run(enqueue.enqueue(NewTask("plain.one", {"iban": "DE89 3704"})))]
    declined(open_web.engine, "plain.two", 1)
    for path in ("/tasks?type=plain.", f"/tasks/{task_id}"):
        assert "DE89" in ben.get(path).text
    assert "card 0 declined" in ben.get("/tasks?search=card 0 decl").text
    assert "is not a JSON path" in ben.get("/tasks?where=$.x ? (").text


def test_every_finding_of_health_links_to_a_page_that_exists(anna: Visitor, engine: Engine) -> None:
    declined(engine, "failing.pay", 6)
    page = anna.get("/health").text
    links = set(re.findall(r'<td data-label="Check" class="name"><a href="([^"]+)"', page))
    assert "/errors?type=failing.pay" in links
    assert all(anna.get(link.replace("&amp;", "&")).status_code == 200 for link in links)
