"""Actions on pages: each has its form, its right and its reason, and some can be undone."""

import re
from datetime import timedelta

import pytest

from holdfast._engine import Engine, access, enqueue, events, queues, schedules, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._engine.events import Settlement
from holdfast._engine.schedules import NewSchedule
from holdfast.server.access import hash_of, new_token
from support.commands import failed_task
from support.visitor import Visitor
from support.web import Web


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
