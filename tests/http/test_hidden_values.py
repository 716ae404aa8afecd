"""Values on pages are hidden until a person reveals them, and that is recorded."""

from holdfast._engine import Engine, access, enqueue, messages
from holdfast._engine.enqueue import NewTask
from support.commands import fail
from support.engine import claim_one, end
from support.engine import enqueue as enqueue_task
from support.visitor import Visitor
from support.web import Web


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


def test_results_and_arguments_of_steps_are_hidden_until_revealed(anna: Visitor, web: Web) -> None:
    conn = web.database.connect()
    task_id = enqueue_task(conn, type="stepped.one")
    charged = {"name": "charge", "number": 1, "kind": "step", "took_ms": 20, "result": {"card": "4111-2222"}}
    charged["arguments"] = {"account": "DE02-1203"}
    tried = {"name": "ship", "try": 1, "tries": 3, "retry_at": "2090-01-01 00:00Z"}
    tried["error"] = {"kind": "handler_error", "message": "no", "arguments": {"street": "Elm-17"}}
    wait = {"name": "decision", "signal": "decision", "until": "2090-01-01 00:00Z"}
    claimed = claim_one(conn, queues=["stepped"])
    end(conn, claimed, "suspend", waits=[wait], run_at="2090-01-01 00:00Z", steps=[charged], tries=[tried])

    page = anna.get(f"/tasks/{task_id}").text
    assert "charge" in page
    assert all(text not in page for text in ("4111-2222", "DE02-1203", "Elm-17"))
    shown = anna.post(f"/tasks/{task_id}/reveal", reason="support").text
    assert all(text in shown for text in ("4111-2222", "DE02-1203", "Elm-17"))
    assert "Arguments of charge" in shown
