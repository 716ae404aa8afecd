"""The pages of the dashboard without a browser: what each shows, and the part of it that is live."""

import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from holdfast._engine import Engine, enqueue, queues, schedules
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import Decision, NewSchedule
from holdfast.server.pages import page
from holdfast.server.pages.page import NAVIGATION
from support.commands import fail
from support.documents import REFERENCE, rows, sections
from support.visitor import Visitor
from support.web import Web

PAGES = [path for path, _ in NAVIGATION]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_redirects_to_the_login(stranger: Visitor, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/login")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_an_empty_database_says_what_to_do(anna: Visitor, path: str) -> None:
    answer = anna.get(path)
    assert answer.status_code == 200
    assert "<h1>" in answer.text


def test_every_page_is_in_the_reference() -> None:
    described = {cells[0] for cells in rows(sections(REFERENCE / "http.md")["Dashboard"])}
    assert described == {name for _, name in NAVIGATION} | {"one task"}


def test_processes_of_an_application_are_shown_with_their_trouble(anna: Visitor, engine: Engine) -> None:
    admin = anna.web.database.connect()
    admin.execute(
        """insert into queues.process
        select 'shipping', kind, schema_name, root_table, 'shipping.supervisor', repair, cancel, history,
          files, registered_at, registered_by
        from queues.process where process = 'comms.send_email'"""
    )
    supervisor = engine.run(enqueue.enqueue(NewTask("shipping.supervise")))
    admin.execute(
        """insert into queues.process_instance (process, process_id, created_at, created_by, namespace,
          updated_at, decision, reason, task_id, trouble, troubled_at)
        values ('shipping', 7, now(), 'shop', 'shop',
          now(), 'wait', 'the carrier is slow', %s, 'orphaned', now())""",
        [supervisor],
    )
    page = anna.get("/processes").text
    assert "the carrier is slow" not in page
    anna.post("/values/show", back="/processes", reason="support")
    page = anna.get("/processes").text
    assert "the carrier is slow" in page
    assert f'href="/tasks/{supervisor}"' in page
    assert "orphaned" in page


def test_a_schedule_shows_its_next_runs_and_what_it_led_to(anna: Visitor, engine: Engine) -> None:
    nightly = NewSchedule(name="in-berlin", task=NewTask("a.berlin"), cron="30 2 * * *", tz="Europe/Berlin")
    engine.run(schedules.add_schedule(nightly))
    [due] = [one for one in engine.run(schedules.due_schedules()) if one.name == "in-berlin"]
    planned = Decision(due, (), datetime(2031, 3, 29, 1, 30, tzinfo=UTC))
    engine.run(schedules.decide_schedules([planned]))
    answer = anna.post("/schedules/run", name="in-berlin", reason="the auditors ask")
    assert answer.headers["location"].startswith("/tasks/")
    page = anna.get("/schedules/show?name=in-berlin").text
    # Half past two does not exist on 30 March; from then on it is an hour earlier in UTC.
    times = re.findall(r'data-local="day" datetime="([^"]+)', page)
    assert [at[5:16] for at in times] == [
        *("03-29T01:30", "03-30T01:00", "03-31T00:30", "04-01T00:30", "04-02T00:30"),
    ]
    assert "the auditors ask" in page
    assert anna.get("/schedules/show?name=nothing").status_code == 404


def test_one_visitor_cannot_open_all_live_pages(
    anna: Visitor, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_LIVE_PER_CALLER", 1)
    live = {"Accept": "text/event-stream"}
    other = Visitor(web)
    other.log_in("read")
    with anna.client.stream("GET", "/queues", headers=live) as first:
        lines = first.iter_lines()
        assert next(lines) == "event: live"
        assert anna.get("/queues", **live).status_code == 503
        with other.client.stream("GET", "/queues", headers=live) as theirs:
            assert theirs.status_code == 200
    other.client.close()


def test_tasks_are_searched(anna: Visitor, engine: Engine) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("sought.one", idempotency_key="order-77")))
    engine.run(enqueue.enqueue(NewTask("sought.other")))
    [failed] = fail(engine, queue="sought3")
    assert str(failed) in anna.get("/tasks?search=SOUGHT3&status=failed").text
    assert str(failed) not in anna.get("/tasks?search=it broke").text  # hidden values cannot be searched
    for query in (
        "search=order-77",
        f"search={task_id}",
        "type=sought.one",
        "status=pending&queue=sought&type=sought.one",
    ):
        shown = anna.get(f"/tasks?{query}").text
        assert str(task_id) in shown
        assert "sought.other" not in shown
    assert "No tasks found" in anna.get("/tasks?search=nothing-like-it").text


def test_a_missing_page_is_an_html_page_in_a_browser(anna: Visitor) -> None:
    for path in (
        f"/tasks/{uuid4()}",
        "/tasks/odd",
        "/processes/comms.send_email/999999",
        "/processes/post/1",
        "/processes/post",
        "/nowhere",
    ):
        answer = anna.get(path)
        assert answer.status_code == 404
        assert answer.headers["Content-Type"].startswith("text/html")


def test_the_live_part_of_a_page_is_a_stream(anna: Visitor, engine: Engine) -> None:
    engine.run(enqueue.enqueue(NewTask("alive.one")))
    with anna.client.stream("GET", "/queues", headers={"Accept": "text/event-stream"}) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == "event: live"
        assert any("alive" in line for line in lines)


def test_static_files_are_served_and_nothing_beside_them(web: Web) -> None:
    for name in ("dashboard.css", "dashboard.js", "login.js", "holdfast.js", "icon.svg"):
        assert web.client().get(f"/static/{name}").status_code == 200
    for path in ("/static/../site.py", "/static/%2e%2e/site.py", "/static/..%2fsite.py", "/static/"):
        assert web.client().get(path).status_code == 404


def test_health_resumes_a_queue_and_links_to_what_it_cannot_do(anna: Visitor, engine: Engine) -> None:
    engine.run(queues.pause("printing", "no paper"))
    fail(engine, queue="broken", count=5)
    page = anna.get("/health").text
    form = re.search(r'action="/queues/resume">.*?name="queue" value="printing"', page, re.DOTALL)
    assert form is not None
    assert re.search(r'<a href="/errors\?type=[^"]+">Show</a>', page)
    anna.post("/queues/resume", queue="printing", reason="there is paper")
    assert 'value="printing"' not in anna.get("/health").text
    reader = Visitor(anna.web)
    reader.log_in("read")
    engine.run(queues.pause("printing", "no paper"))
    assert "/queues/resume" not in reader.get("/health").text
    reader.client.close()
