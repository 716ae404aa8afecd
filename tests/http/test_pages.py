"""The dashboard without a browser: logins, actions, and that no value becomes markup."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.engine import Engine, access, enqueue, events, messages, queues, schedules, tasks
from holdfast.engine.enqueue import NewTask
from holdfast.engine.events import Settlement
from holdfast.engine.schedules import NewSchedule
from holdfast.http.access import hash_of, new_token
from holdfast.http.pages import page
from holdfast.http.pages.page import NAVIGATION
from holdfast.postgres import EmbeddedServer
from support.commands import fail
from support.database import cloned_database
from support.documents import REFERENCE, rows, sections
from support.hostile_house import stage
from support.hostile_strings import STRINGS
from support.visitor import Visitor
from support.web import Web, serving

FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"
PAGES = [path for path, _ in NAVIGATION]


class Tags(HTMLParser):
    """The elements of a page, parsed as a browser parses them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture
def stranger(web: Web) -> Iterator[Visitor]:
    visitor = Visitor(web)
    yield visitor
    visitor.client.close()


@pytest.fixture
def anna(stranger: Visitor) -> Visitor:
    assert stranger.log_in("admin").status_code == 303
    return stranger


def failed_task(engine: Engine, **more: Any) -> UUID:
    return fail(engine, **more)[0]


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


def test_a_login_sets_a_cookie_that_scripts_and_other_sites_cannot_use(stranger: Visitor) -> None:
    answer = stranger.log_in("read", next="/queues")
    assert answer.headers["Location"] == "/queues"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert stranger.get("/queues").status_code == 200


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/\r\nX: y"]
)
def test_a_login_never_redirects_to_another_site(stranger: Visitor, wanted: str) -> None:
    assert stranger.log_in("read", next=wanted).headers["Location"] == "/"


@pytest.mark.parametrize("token", ["", "x", "hf_" + "A" * 43])
def test_a_wrong_token_is_rejected(stranger: Visitor, token: str) -> None:
    answer = stranger.post("/login", token=token, csrf="")
    assert answer.status_code == 403
    assert "unknown, expired or revoked" in answer.text
    assert "Set-Cookie" not in answer.headers


def test_failed_logins_are_limited(module_db: Any) -> None:
    with serving(module_db) as own:
        visitor, wrong = Visitor(own), "x"
        statuses = [visitor.post("/login", token=wrong, csrf="").status_code for _ in range(12)]
        assert statuses == [403] * 10 + [429] * 2
        assert visitor.log_in("read").status_code == 429
        visitor.client.close()


def test_logging_out_ends_the_session(anna: Visitor) -> None:
    session = dict(anna.client.cookies)
    assert anna.post("/logout").status_code == 303
    anna.client.cookies.update(session)
    assert anna.get("/queues").status_code == 303


def test_a_session_ends_with_its_token(web: Web, stranger: Visitor) -> None:
    from holdfast.http.access import hash_of, new_token

    token = new_token()
    number = web.engine.run(access.create_token("short", ["read"], hash_of(token)))
    assert stranger.post("/login", token=token, csrf="").status_code == 303
    assert stranger.get("/queues").status_code == 200
    web.engine.run(access.revoke_token(number))
    assert stranger.get("/queues").status_code == 303


@pytest.mark.parametrize("origin", [None, "https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_form_of_another_site_does_nothing(anna: Visitor, engine: Engine, origin: str | None) -> None:
    answer = anna.post("/queues/pause", origin, queue="forged", reason="x")
    assert answer.status_code == 403
    assert "forged" not in [queue.queue for queue in engine.run(queues.queue_status())]


@pytest.mark.parametrize("csrf", ["", "wrong"])
def test_a_form_without_the_csrf_token_does_nothing(anna: Visitor, engine: Engine, csrf: str) -> None:
    assert anna.post("/queues/pause", queue="forged", reason="x", csrf=csrf).status_code == 403
    assert "forged" not in [queue.queue for queue in engine.run(queues.queue_status())]


def test_a_reader_is_offered_no_actions_and_cannot_do_any(stranger: Visitor, engine: Engine) -> None:
    stranger.log_in("read")
    task_id = failed_task(engine, queue="watched")
    assert 'class="action"' not in stranger.get(f"/tasks/{task_id}").text
    for path in (f"/tasks/{task_id}/retry", f"/tasks/{task_id}/reveal", "/queues/pause", "/access/revoke"):
        assert stranger.post(path, reason="x", csrf=_csrf(stranger)).status_code == 403
    assert stranger.get("/access").status_code == 403


def _csrf(visitor: Visitor) -> str:
    return str(re.findall(r'name="csrf" value="([\w-]+)"', visitor.get("/queues").text)[0])


def test_a_token_that_may_only_enqueue_sees_nothing(stranger: Visitor) -> None:
    stranger.log_in("enqueue")
    assert stranger.get("/queues").status_code == 403


def test_actions_need_a_reason_and_can_be_undone(anna: Visitor, engine: Engine) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("acted.on")))
    for act, undo, status in [("cancel", "retry", "cancelled"), ("delete", "restore", "pending")]:
        answer = anna.post(f"/tasks/{task_id}/{act}", reason="a good one")
        assert answer.status_code == 303
        shown = anna.get(answer.headers["Location"]).text
        assert f'action="/tasks/{task_id}/{undo}"' in shown
        task = engine.run(tasks.task_status(task_id))
        assert task
        assert task.status == status
        assert anna.post(f"/tasks/{task_id}/{undo}", reason="undone").status_code == 303
    acts = [
        (event.event_type, event.actor) for event in engine.run(tasks.task_events(task_id)) if event.actor
    ]
    assert acts[1:] == [
        (act, "holdfast_web_login for test admin") for act in ("cancelled", "retried", "deleted", "restored")
    ]


@pytest.mark.parametrize("form", ["queue=a%00b&reason=x", "queue=a", "queue", "%ff%fe=%ff"])
def test_a_malformed_form_is_rejected(anna: Visitor, form: str) -> None:
    answer = anna.client.post(
        "/queues/pause",
        content=f"csrf={anna.csrf()}&{form}",
        headers={"Origin": anna.web.url, "Content-Type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 400


def test_an_action_without_a_reason_is_rejected(anna: Visitor, engine: Engine) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("acted.on")))
    assert anna.post(f"/tasks/{task_id}/cancel", reason=" ").status_code == 400
    task = engine.run(tasks.task_status(task_id))
    assert task
    assert task.status == "pending"


def test_queues_are_paused_and_resumed(anna: Visitor, engine: Engine) -> None:
    engine.run(enqueue.enqueue(NewTask("halted.one")))
    anna.post("/queues/pause", queue="halted", reason="moving")
    assert "moving" in anna.get("/queues").text
    anna.post("/queues/resume", queue="halted", reason="moved")
    assert "moving" not in anna.get("/queues").text


def test_schedules_are_paused_and_resumed(anna: Visitor, engine: Engine) -> None:
    engine.run(
        schedules.add_schedule(NewSchedule(name="nightly", task=NewTask("a.b"), every=timedelta(days=1)))
    )
    answer = anna.post("/schedules/pause", name="nightly", reason="holidays")
    shown = anna.get(answer.headers["Location"]).text
    assert "holidays" in shown
    assert "Undo: resume" in shown
    anna.post("/schedules/resume", name="nightly", reason="back")
    assert "holidays" not in anna.get("/schedules").text
    assert anna.post("/schedules/explode", name="nightly", reason="x").status_code == 404


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
    engine.run(schedules.plan_schedule(due, datetime(2031, 3, 29, 1, 30, tzinfo=UTC)))
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


def test_schedules_of_one_name_are_told_apart_by_their_namespace(
    anna: Visitor, engine: Engine, web: Web
) -> None:
    every = timedelta(hours=1)
    mine = NewSchedule(name="twice", task=NewTask("a.b"), every=every)
    engine.run(schedules.add_schedule(mine))
    Engine(web.database.connect("holdfast_client")).run(schedules.add_schedule(mine))

    assert anna.post("/schedules/pause", name="twice", reason="x").status_code == 400
    named = {"name": "twice", "namespace": "holdfast_client_login", "reason": "stocktaking"}
    assert "holdfast_client_login" in anna.post("/schedules/pause", **named).headers["Location"]
    states = {
        one.namespace: one.state for one in engine.run(schedules.schedule_status()) if one.name == "twice"
    }
    assert states == {engine.run(access.namespace()): "active", "holdfast_client_login": "paused"}


def _row(anna: Visitor, name: str) -> str:
    """One row of the page Outbox, where other tests leave events, too."""
    _, found, rest = anna.get("/outbox").text.partition(f'<tr id="{name}">')
    assert found
    return rest.partition("</tr>")[0]


def test_subscriptions_are_paused_resumed_and_redriven(anna: Visitor, engine: Engine) -> None:
    subscription_id = engine.run(events.subscribe("shop", "console", "-", ["order.*"]))
    engine.run(events.emit("order.created", {"order": 7}, "order-7"))
    [event] = engine.run(events.claim_events("d1", subscription_id))
    engine.run(
        events.settle_events(
            "d1", [Settlement(subscription_id, event.event_id, event.token, "rejected", "410")]
        )
    )
    assert "1 failed" in _row(anna, f"event-{event.event_id}")
    assert anna.post("/outbox/redrive", name="shop").status_code == 400
    anna.post("/outbox/redrive", name="shop", reason="it is back")
    assert "1 failed" not in _row(anna, f"event-{event.event_id}")
    shown = anna.get(anna.post("/outbox/pause", name="shop", reason="moving").headers["Location"]).text
    assert "holdfast_web_login for test admin: moving" in shown
    assert "Undo: resume" in shown
    anna.post("/outbox/resume", name="shop", reason="moved")
    assert "moving" not in anna.get("/outbox").text
    assert anna.post("/outbox/explode", name="shop", reason="x").status_code == 404
    assert anna.post("/outbox/resume", name="nobody", reason="x").status_code == 404


def test_a_token_is_revoked(anna: Visitor, engine: Engine) -> None:
    token_id = engine.run(access.create_token("lost", ["read"], hash_of(new_token())))
    answer = anna.post("/access/revoke", token_id=str(token_id), reason="stolen")
    assert "The token is revoked" in anna.get(answer.headers["Location"]).text
    assert [
        token.revoked_at for token in engine.run(access.access_tokens()) if token.token_id == token_id
    ] != [None]
    odd = {"token_id": "x", "reason": "stolen"}
    assert anna.post("/access/revoke", **odd).status_code == 400


def test_values_are_hidden_until_revealed(anna: Visitor, engine: Engine) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("hidden.one", {"card": "4111-1111"})))
    assert "4111-1111" not in anna.get(f"/tasks/{task_id}").text
    assert "4111-1111" in anna.post(f"/tasks/{task_id}/reveal", reason="support").text
    assert [event.reason for event in engine.run(access.reveals_of(task_id))] == ["support"]
    assert "4111-1111" not in anna.get(f"/tasks/{task_id}").text


def test_error_messages_are_hidden_until_revealed(anna: Visitor, engine: Engine) -> None:
    [task_id] = fail(engine, queue="leaky")
    for path in (f"/tasks/{task_id}", "/tasks?queue=leaky", "/", "/health"):
        shown = anna.get(path).text
        assert "it broke" not in shown, path
    assert "Boom" in anna.get("/tasks?queue=leaky").text
    assert "it broke" in anna.post(f"/tasks/{task_id}/reveal", reason="support").text


def test_a_message_of_the_mailbox_is_shown_after_that_is_recorded(
    anna: Visitor, web: Web, engine: Engine
) -> None:
    engine.run(
        messages.keep_message(
            "email", "bert@example.com", "kept-1", subject="Your code is 271828", text_body="Or 314159."
        )
    )
    [kept] = engine.run(messages.list_mailbox(limit=1))
    path = f"/mailbox/{kept.mailbox_message_id}/reveal"
    reader = Visitor(web)
    reader.log_in("read")
    for visitor in (anna, reader):
        shown = visitor.get("/mailbox").text
        assert "bert@example.com" in shown
        assert "271828" not in shown
        assert "314159" not in shown
    assert reader.post(path, reason="curious").status_code == 403
    assert [event.act for event in engine.run(access.access_events(1))] == ["logged_in"]
    assert anna.post(path, reason="").status_code == 400
    shown = anna.post(path, reason="support").text
    assert "Your code is 271828" in shown
    assert "314159" in shown
    [event] = engine.run(access.access_events(1))
    assert (event.act, event.mailbox_message_id, event.reason) == (
        "revealed",
        kept.mailbox_message_id,
        "support",
    )
    assert anna.post("/mailbox/999999/reveal", reason="x").status_code == 404
    assert anna.post("/mailbox/x/reveal", reason="x").status_code == 404
    reader.client.close()


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


def test_pages_load_nothing_from_other_hosts_and_have_no_inline_script_or_style(
    anna: Visitor, engine: Engine
) -> None:
    task_id = failed_task(engine, queue="plain")
    for path in [*PAGES, f"/tasks/{task_id}"]:
        for tag, attributes in Tags(anna.get(path).text).found:
            assert tag != "style", path
            assert tag != "script" or "src" in attributes, path
            assert not [name for name in attributes if name == "style" or name.startswith("on")], (path, tag)
            for name in ("src", "href", "action", "formaction"):
                assert (attributes.get(name) or "/").startswith(("/", "#")), (path, attributes)


def test_static_files_are_served_and_nothing_beside_them(web: Web) -> None:
    for name in ("dashboard.css", "dashboard.js", "login.js", "holdfast.js", "icon.svg"):
        assert web.client().get(f"/static/{name}").status_code == 200
    for path in ("/static/../site.py", "/static/%2e%2e/site.py", "/static/..%2fsite.py", "/static/"):
        assert web.client().get(path).status_code == 404


def _skeleton(html: str) -> list[tuple[str, tuple[str, ...]]]:
    """The elements of a page and the names of their attributes, without any text."""
    return [(tag, tuple(attributes)) for tag, attributes in Tags(html).found]


ALIVE = {"iframe", "object", "embed", "math", "video", "style", "base", "marquee", "template", "noscript"}


@pytest.mark.full
def test_a_hundred_hostile_strings_stay_text_on_every_page(module_db: Any) -> None:
    assert len(set(STRINGS)) == 100
    with serving(module_db) as own:
        visitor = Visitor(own)
        visitor.log_in("admin")

        csrf = visitor.csrf()

        def seen(text: str, number: int) -> list[list[tuple[str, tuple[str, ...]]]]:
            """Every page that shows only this text; by default, one of them in turn."""
            staged = stage(own.engine, text)
            reason = text.strip()[:100] or "x"
            shown = visitor.post(f"/tasks/{staged.task_id}/reveal", reason=reason, csrf=csrf).text
            paths = staged.paths if FULL else [staged.paths[number % 5]]
            return [_skeleton(html) for html in [shown, *(visitor.get(path).text for path in paths)]]

        plain = [seen("harmless", number) for number in range(5)]
        for number, text in enumerate(STRINGS):
            assert seen(text, number) == plain[number % 5], repr(text)
        for path in PAGES:
            answer = visitor.get(path)
            assert answer.status_code == 200
            found = _skeleton(answer.text)
            assert ALIVE.isdisjoint(tag for tag, _ in found), path
            assert not any(name.startswith("on") for _, names in found for name in names), path
            assert sum(tag == "script" for tag, _ in found) == 1, path
        visitor.client.close()


TIMED = ("/", "/health")
"""Pages whose charts and findings depend on the minute. Other tests show them every hostile string."""


def test_lists_of_one_hostile_thing_look_like_lists_of_a_harmless_one(
    server: EmbeddedServer, template: str
) -> None:
    """The worst ones, on pages that would otherwise show a hundred together."""

    def lists(text: str) -> list[list[tuple[str, tuple[str, ...]]]]:
        with cloned_database(server, template) as database, serving(database) as own:
            visitor = Visitor(own)
            visitor.log_in("admin")
            stage(own.engine, text)
            found = [_skeleton(visitor.get(path).text) for path in PAGES if path not in TIMED]
            visitor.client.close()
        return found

    plain = lists("harmless")
    for text in ('"/><div id="live-part">', "</textarea><script>window.hacked=1</script>"):
        assert lists(text) == plain, text
