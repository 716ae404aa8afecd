"""Reading tasks over HTTP, and actions on them."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast._engine import Engine, access, enqueue, leases, schedules, tasks, workers
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import NewSchedule
from support.commands import fail
from support.leases import ended, holding
from support.web import Web

CANARY = "4111-1111-1111-1111"


@pytest.fixture
def task_id(engine: Engine) -> UUID:
    return engine.run(
        enqueue.enqueue(
            NewTask("cards.charge", {"card": CANARY, "amounts": [1, 2]}, metadata={"note": CANARY})
        )
    )


def test_a_task_is_shown_with_its_values_hidden(reader: httpx.Client, task_id: UUID) -> None:
    answer = reader.get(f"/v1/tasks/{task_id}")
    shown = answer.json()
    assert (shown["status"], shown["queue"], shown["values_hidden"]) == ("pending", "cards", True)
    assert shown["payload"] == {
        "card": f"(hidden: text of {len(CANARY)} characters)",
        "amounts": ["(hidden: number)", "… 2 elements in all"],
    }
    assert "no live worker" in shown["why"]
    assert CANARY not in answer.text


def test_no_listing_or_wait_of_a_reader_shows_a_value(
    reader: httpx.Client, engine: Engine, task_id: UUID
) -> None:
    [task] = engine.run(leases.claim("w1", queues=["cards"], max_tasks=1))
    engine.run(leases.finish("w1", [ended(task.task_id, task.token, "succeeded", {"card": CANARY})]))
    for path in (
        "",
        f"/{task.task_id}",
        f"/{task.task_id}/events",
        f"/{task.task_id}/wait",
        f"/{task.task_id}/stream",
    ):
        answer = reader.get(f"/v1/tasks{path}")
        assert answer.status_code == 200
        assert CANARY not in answer.text, path


def test_who_does_not_see_values_sees_how_far_a_task_is_and_not_its_note(web: Web, engine: Engine) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("noted.one")))
    [task] = engine.run(leases.claim("w1", queues=["noted"], max_tasks=1))
    progress = {"done": 1, "total": 2, "note": CANARY}
    engine.run(leases.heartbeat("w1", [holding(task.task_id, task.token, progress=progress)]))
    hidden = {"done": 1, "total": 2, "note": f"(hidden: text of {len(CANARY)} characters)"}
    reader = web.client("read")
    for path in ("", "/wait?timeout=0"):
        assert reader.get(f"/v1/tasks/{task_id}{path}").json()["progress"] == hidden, path
    with reader.stream("GET", f"/v1/tasks/{task_id}/stream") as answer:
        lines = answer.iter_lines()
        assert "event: progress" in lines  # reads up to it
        assert json.loads(next(lines).removeprefix("data: ")) == hidden
    engine.run(leases.finish("w1", [ended(task_id, task.token, "succeeded")]))


def test_values_are_not_revealed_without_a_reason(web: Web, task_id: UUID) -> None:
    for path in ("", "/errors"):
        answer = web.client("operate").get(f"/v1/tasks/{task_id}{path}", params={"reveal": "true"})
        assert (answer.status_code, answer.json()["code"]) == (400, "QF400")
        assert "a reason is required" in answer.json()["detail"]
    assert web.engine.run(access.reveals_of(task_id)) == []


def test_values_are_revealed_to_operators_and_that_is_recorded(web: Web, task_id: UUID) -> None:
    operator = web.client("operate")
    shown = operator.get(f"/v1/tasks/{task_id}", params={"reveal": "true", "reason": "ticket 12"}).json()
    assert (shown["values_hidden"], shown["payload"]["card"]) == (False, CANARY)
    [seen] = web.engine.run(access.reveals_of(task_id))
    assert (seen.act, seen.actor, seen.reason) == (
        "revealed",
        "holdfast_web_login for test operate",
        "ticket 12",
    )
    assert seen.address == "127.0.0.1"


def test_pages_are_delimited_by_task_id(reader: httpx.Client, engine: Engine) -> None:
    ids = [str(engine.run(enqueue.enqueue(NewTask("pages.one")))) for _ in range(5)]
    address: str | None = "/v1/tasks?queue=pages&limit=2"
    seen: list[list[str]] = []
    while address:
        page = reader.get(address).json()
        seen.append([task["task_id"] for task in page["tasks"]])
        engine.run(enqueue.enqueue(NewTask("pages.later")))
        address = page["next"]
    assert [len(page) for page in seen] == [2, 2, 1]
    assert [task for page in seen for task in page] == ids[::-1]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "status=odd",
        "before=x",
        "since=yesterday",
        f"queue={'x' * 201}",
        "type=%00",
        "queue=%00",
    ],
)
def test_an_invalid_filter_is_rejected(reader: httpx.Client, query: str) -> None:
    answer = reader.get(f"/v1/tasks?{query}")
    assert 400 <= answer.status_code < 500
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_filters_are_those_of_the_engine(reader: httpx.Client, engine: Engine) -> None:
    [failed] = fail(engine, queue="filtered")
    engine.run(enqueue.enqueue(NewTask("filtered.other")))
    found = reader.get(
        "/v1/tasks", params={"status": "failed", "queue": "filtered", "type": "filtered.ch"}
    ).json()
    assert [task["task_id"] for task in found["tasks"]] == [str(failed)]
    assert reader.get("/v1/tasks", params={"since": "2100-01-01T00:00:00Z"}).json()["tasks"] == []


def test_events_and_errors_of_a_task(reader: httpx.Client, engine: Engine) -> None:
    [task_id] = fail(engine, queue="events")
    events = reader.get(f"/v1/tasks/{task_id}/events").json()["events"]
    assert [event["event_type"] for event in events] == ["created", "claimed", "started", "failed"]
    [error] = reader.get(f"/v1/tasks/{task_id}/errors").json()["errors"]
    assert (error["kind"], error["attempt"]) == ("Boom", 1)
    assert error["message"] == "(hidden: text of 8 characters)"


@pytest.mark.parametrize("status", ["failed", "dead_letter", "retry"])
def test_error_messages_are_hidden_until_revealed(
    web: Web, reader: httpx.Client, engine: Engine, status: str
) -> None:
    queue = f"leaky_{status}"
    task_id = engine.run(
        enqueue.enqueue(NewTask(f"{queue}.charge", max_attempts=1 if status == "dead_letter" else 3))
    )
    [claimed] = engine.run(leases.claim("w1", queues=[queue]))
    error = {"kind": "Declined", "message": f"card {CANARY} was declined", "traceback": f"card={CANARY!r}"}
    word: Any = "failed" if status == "failed" else "retry"
    engine.run(leases.finish("w1", [ended(task_id, claimed.token, word, error=error)]))
    for path in (f"/{task_id}", f"/{task_id}/errors", f"/{task_id}/events", f"?queue={queue}"):
        answer = reader.get(f"/v1/tasks{path}")
        assert answer.status_code == 200
        assert CANARY not in answer.text, path
    assert CANARY not in reader.get("/v1/health").text
    assert reader.get(f"/v1/tasks?queue={queue}").json()["tasks"][0]["last_error"] == "Declined"
    asked = {"reveal": "true", "reason": "support"}
    assert reader.get(f"/v1/tasks/{task_id}/errors", params=asked).status_code == 403
    operator = web.client("operate")
    assert CANARY in operator.get(f"/v1/tasks/{task_id}/errors", params=asked).text
    assert CANARY in operator.get(f"/v1/tasks/{task_id}", params=asked).json()["reasons"][0]["error"]
    assert [seen.reason for seen in engine.run(access.reveals_of(task_id))] == ["support", "support"]


def test_the_reason_of_an_action_is_not_hidden(reader: httpx.Client, engine: Engine) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("acted.on")))
    engine.run(tasks.cancel(task_id, "the customer asked for it"))
    for path in ("", "/events"):
        assert "the customer asked for it" in reader.get(f"/v1/tasks/{task_id}{path}").text


def test_what_a_handler_says_is_hidden(reader: httpx.Client, engine: Engine) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("declined.charge")))
    [claimed] = engine.run(leases.claim("w1", queues=["declined"]))
    cancelled = ended(
        task_id, claimed.token, "cancelled", error={"kind": "Cancel", "message": f"card {CANARY}"}
    )
    engine.run(leases.finish("w1", [cancelled]))
    for path in (f"/{task_id}", f"/{task_id}/events", "?queue=declined"):
        assert CANARY not in reader.get(f"/v1/tasks{path}").text, path


@pytest.mark.parametrize("path", ["", "/events", "/errors", "/wait", "/stream"])
def test_a_missing_task_is_not_found(reader: httpx.Client, path: str) -> None:
    answer = reader.get(f"/v1/tasks/{uuid4()}{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "QF404")


def test_an_action_is_recorded_with_the_name_of_the_token(web: Web, engine: Engine, task_id: UUID) -> None:
    operator = web.client("operate")
    answer = operator.post(f"/v1/tasks/{task_id}/cancel", json={"reason": "not wanted"})
    assert answer.json() == {"task_id": str(task_id), "status": "cancelled"}
    [cancelled] = [
        event for event in engine.run(tasks.task_events(task_id)) if event.event_type == "cancelled"
    ]
    assert (cancelled.actor, cancelled.reason) == ("holdfast_web_login for test operate", "not wanted")


def test_a_task_goes_through_all_actions(web: Web, task_id: UUID) -> None:
    operator = web.client("operate")
    for act, status in [
        ("cancel", "cancelled"),
        ("retry", "pending"),
        ("delete", "deleted"),
        ("restore", "pending"),
    ]:
        answer = operator.post(f"/v1/tasks/{task_id}/{act}")
        assert (answer.status_code, answer.json()["status"]) == (200, status)


def test_an_impossible_action_is_rejected(web: Web, engine: Engine, task_id: UUID) -> None:
    operator = web.client("operate")
    answer = operator.post(f"/v1/tasks/{task_id}/retry")
    assert (answer.status_code, answer.json()["code"]) == (412, "QF412")
    engine.run(enqueue.enqueue(NewTask("ended.one")))
    [task] = engine.run(leases.claim("w1", queues=["ended"]))
    engine.run(leases.finish("w1", [ended(task.task_id, task.token, "succeeded")]))
    assert operator.post(f"/v1/tasks/{task.task_id}/cancel").status_code == 412
    assert operator.post(f"/v1/tasks/{uuid4()}/cancel").status_code == 404


def test_a_queue_is_paused_and_resumed(web: Web, engine: Engine) -> None:
    operator = web.client("operate")
    assert operator.post("/v1/queues/pausing/pause", json={"reason": "moving"}).json() == {
        "queue": "pausing",
        "paused": True,
        "changed": True,
    }
    [shown] = [queue for queue in operator.get("/v1/queues").json()["queues"] if queue["queue"] == "pausing"]
    assert (shown["paused_by"], shown["pause_reason"]) == ("holdfast_web_login for test operate", "moving")
    assert operator.post("/v1/queues/pausing/resume").json()["changed"] is True
    assert operator.post("/v1/queues/pausing/resume").json()["changed"] is False


def test_workers_are_listed(reader: httpx.Client, engine: Engine) -> None:
    engine.run(workers.register_worker("w-listed", "host", queues=["listed"], concurrency=4))
    [shown] = [
        worker for worker in reader.get("/v1/workers").json()["workers"] if worker["worker_id"] == "w-listed"
    ]
    assert (shown["live"], shown["concurrency"], shown["queues"]) == (True, 4, ["listed"])


def test_schedules_are_listed_with_the_values_of_their_tasks_hidden(
    reader: httpx.Client, engine: Engine
) -> None:
    task = NewTask("cards.nightly", {"card": CANARY}, metadata={"card": CANARY}, priority=7)
    engine.run(schedules.add_schedule(NewSchedule(name="nightly", task=task, every=timedelta(days=1))))
    answer = reader.get("/v1/schedules")
    [shown] = [schedule for schedule in answer.json()["schedules"] if schedule["name"] == "nightly"]
    assert (shown["every"], shown["task"]["type"], shown["task"]["priority"]) == (86400, "cards.nightly", 7)
    assert shown["task"]["payload"] == {"card": f"(hidden: text of {len(CANARY)} characters)"}
    assert CANARY not in answer.text


def test_metrics_are_in_the_prometheus_format(reader: httpx.Client, engine: Engine) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    engine.run(enqueue.enqueue(NewTask("metered.one", queue='odd"queue\\')))
    families = {family.name: family for family in text_string_to_metric_families(reader.get("/metrics").text)}
    due = {sample.labels["queue"]: sample.value for sample in families["holdfast_queue_due"].samples}
    assert due['odd"queue\\'] == 1
    assert families["holdfast_http_waits"].samples[0].value == 0
