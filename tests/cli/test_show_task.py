import json
from datetime import timedelta
from uuid import UUID, uuid4

from holdfast._engine import Engine, enqueue, queues, tasks
from holdfast._engine.enqueue import NewTask
from support.commands import Holdfast, answer, fail
from support.database import Database

UNKNOWN = "01990000-0000-7000-8000-000000000000"


def test_show_tells_fields_life_and_errors(engine: Engine, holdfast: Holdfast) -> None:
    [task_id] = fail(engine)
    engine.run(tasks.retry(task_id, "the bank is back"))
    shown = holdfast("show", str(task_id)).stdout
    for expected in (str(task_id), "billing.charge", "pending", "payload\n{}", "events", "the bank is back"):
        assert expected in shown
    assert "it broke" in shown.partition("\nerrors\n")[2]


def test_show_as_json_has_every_field_the_events_and_the_errors(engine: Engine, holdfast: Holdfast) -> None:
    [task_id] = fail(engine)
    shown = answer(holdfast("show", str(task_id), "--json"))
    assert (shown["task_id"], shown["status"], shown["last_error"]) == (str(task_id), "failed", "it broke")
    assert [event["event_type"] for event in shown["events"]] == ["created", "claimed", "started", "failed"]
    assert shown["errors"][0]["kind"] == "Boom"
    assert shown["created_at"] == shown["events"][0]["occurred_at"]
    assert "T" in shown["created_at"]
    assert shown["deleted_at"] is None


def test_durations_are_seconds_in_json(engine: Engine, holdfast: Holdfast) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("a.b", timeout=timedelta(milliseconds=1500))))
    assert answer(holdfast("show", str(task_id), "--json"))["timeout"] == 1.5


def test_the_payload_is_written_over_several_lines(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    assert 'payload\n{\n  "amount": 7\n}\n' in holdfast("show", str(task_id)).stdout


def test_a_payload_does_not_control_the_terminal(engine: Engine, holdfast: Holdfast) -> None:
    text = "\x1b[31mred \x9b \x7f \u202e [bold]not markup[/bold] :smile:"
    task_id = engine.run(enqueue.enqueue(NewTask("a.b", {"text": text}, idempotency_key=text)))
    shown = holdfast("show", str(task_id)).stdout
    assert not {"\x1b", "\x9b", "\x7f", "\u202e"} & set(shown)
    assert r"\x1b[31mred \x9b \x7f \u202e [bold]not markup[/bold] :smile:" in shown
    assert answer(holdfast("show", str(task_id), "--json"))["payload"] == {"text": text}


def test_json_is_ascii_whatever_the_payload_holds(engine: Engine, holdfast: Holdfast) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("a.b", "snowman ☃")))
    assert holdfast("show", str(task_id), "--json").stdout.isascii()


def test_an_unknown_task_is_not_found_with_4(holdfast: Holdfast) -> None:
    for command in ("show", "why"):
        missing = holdfast(command, UNKNOWN)
        assert (missing.exit_code, missing.stdout) == (4, "")
        assert missing.stderr.startswith(f"holdfast: there is no task {UNKNOWN}. ")


def test_a_task_of_another_login_is_not_found(db: Database, holdfast: Holdfast, task_id: UUID) -> None:
    assert holdfast("show", str(task_id), url=db.dsn_as("holdfast_client")).exit_code == 4


def test_what_is_neither_an_id_nor_a_key_is_not_found(holdfast: Holdfast) -> None:
    for bad in ("7", "'; drop", str(uuid4())[:-1], "[red]x[/red]", "%", "\\"):
        refused = holdfast("show", bad)
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert f"no task has the id or the key {bad!r}" in refused.stderr


def test_why_says_why_in_one_sentence(holdfast: Holdfast, engine: Engine, task_id: UUID) -> None:
    engine.run(queues.pause("billing", "moving house"))
    why = holdfast("why", str(task_id)).stdout
    assert why.startswith("Queue billing was paused at ")
    assert "because: moving house" in why


def test_why_as_json_has_the_status_too(holdfast: Holdfast, task_id: UUID) -> None:
    told = answer(holdfast("why", str(task_id), "--json"))
    assert (told["task_id"], told["status"]) == (str(task_id), "pending")
    assert "no live worker subscribes" in told["why"]


def test_the_json_of_show_can_be_enqueued_again(engine: Engine, holdfast: Holdfast, task_id: UUID) -> None:
    payload = answer(holdfast("show", str(task_id), "--json"))["payload"]
    again = holdfast("enqueue", "billing.charge", "-", stdin=json.dumps(payload))
    found = engine.run(tasks.task_status(UUID(again.stdout.strip())))
    assert found is not None
    assert found.payload == {"amount": 7}
