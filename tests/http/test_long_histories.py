"""A task with a history that somebody has made long costs others nothing: what is read of it is bounded."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from holdfast._connections.wait_ticket import issue
from holdfast._engine import Engine, enqueue, leases, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._engine.tasks import TaskEvent
from holdfast.server import streamed_steps
from support.database import shards_of
from support.leases import ended
from support.visitor import Visitor
from support.web import SECRET, TRUST, Web

EVENTS = 5000
LONGEST_SECONDS = 5.0  # of /healthz, on a machine that does much else; 0.02 on a quiet one


@pytest.fixture(scope="module")
def task_id(web: Web) -> UUID:
    return moved_often(web)


def moved_often(web: Web) -> UUID:
    """A task that was moved to another time EVENTS times."""
    task_id = web.engine.run(enqueue.enqueue(NewTask("long.history")))
    moved = """insert into queues.act (task_id, act, occurred_at, actor, reason, data)
        select task_id, 'rescheduled', created_at + n * interval '1 millisecond', 'bob', 'number ' || n, null
        from queues.task, generate_series(1, %s) n where task_id = %s"""
    for shard in shards_of(web.database.connect()):
        shard.execute(moved, [EVENTS, task_id])
    return task_id


def address_of(task_id: UUID) -> str:
    return f"/v1/tasks/{task_id}/stream?ticket={issue([SECRET], task_id, timedelta(hours=1), time.time())}"


def steps_of(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    position = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            position = value
        elif name == "data":
            yield position, json.loads(value)


@contextmanager
def others_are_served(web: Web) -> Iterator[None]:
    """Meanwhile, somebody else requests a page that needs no database, and it never takes long."""
    over, slowest = threading.Event(), [0.0]

    def look() -> None:
        with httpx.Client(base_url=web.url, timeout=120, verify=TRUST) as client:
            while not over.is_set():
                began = time.monotonic()
                assert client.get("/healthz").status_code == 200
                slowest.append(time.monotonic() - began)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
    assert max(slowest) < LONGEST_SECONDS


def test_a_stream_sends_the_last_steps_and_delays_nobody(web: Web, task_id: UUID) -> None:
    def read() -> list[tuple[str, Any]]:
        with web.client().stream("GET", address_of(task_id)) as answer:
            steps = steps_of(answer.iter_lines())
            return [next(steps) for _ in range(tasks.MAX_EVENTS)]

    with others_are_served(web):
        found = read()
        assert read() == found
    assert [step["event"] for _, step in found] == ["rescheduled"] * tasks.MAX_EVENTS
    assert found == sorted(found, key=lambda one: one[1]["at"])


def test_a_stream_of_a_long_history_resumes_where_it_broke_off(web: Web, task_id: UUID) -> None:
    with web.client().stream("GET", address_of(task_id)) as answer:
        steps = steps_of(answer.iter_lines())
        seen = [next(steps) for _ in range(tasks.MAX_EVENTS)]
    position, _ = seen[-3]
    with web.client().stream("GET", address_of(task_id), headers={"Last-Event-ID": position}) as answer:
        steps = steps_of(answer.iter_lines())
        assert [next(steps) for _ in range(2)] == seen[-2:]


def test_readers_that_come_back_share_the_steps_that_were_read(
    web: Web, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask("short.history")))
    read: list[list[UUID]] = []
    events_of = tasks.events_of

    def counted(task_ids: list[UUID]) -> Any:
        read.append(task_ids)
        return events_of(task_ids)

    monkeypatch.setattr(tasks, "events_of", counted)
    for _ in range(3):
        with web.client().stream("GET", address_of(task_id)) as answer:
            assert next(steps_of(answer.iter_lines()))[1]["event"] == "created"
    assert read == [[task_id]]
    [task] = engine.run(leases.claim("w1", queues=["short"]))
    engine.run(leases.finish("w1", [ended(task.task_id, task.token, "succeeded", 1)]))
    assert "succeeded" in web.client().get(address_of(task_id)).text


def test_each_step_is_written_once_for_all_readers(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[TaskEvent] = []
    step_json = streamed_steps._step_json

    def counted(event: TaskEvent) -> str:
        written.append(event)
        return step_json(event)

    task_id = moved_often(web)
    monkeypatch.setattr(streamed_steps, "_step_json", counted)
    with (
        web.client().stream("GET", address_of(task_id)) as one,
        web.client().stream("GET", address_of(task_id)) as other,
    ):
        for answer in (one, other):
            steps = steps_of(answer.iter_lines())
            assert len([next(steps) for _ in range(tasks.MAX_EVENTS)]) == tasks.MAX_EVENTS
    assert len(written) == tasks.MAX_EVENTS


def test_the_api_returns_the_last_events_and_leads_to_older_ones(
    web: Web, reader: httpx.Client, task_id: UUID
) -> None:
    with others_are_served(web):
        last = reader.get(f"/v1/tasks/{task_id}/events").json()
    assert len(last["events"]) == tasks.MAX_EVENTS
    assert last["events"][-1]["reason"] == f"number {EVENTS}"
    pages, following = [last["events"]], last["next"]
    while following is not None:
        page = reader.get(following).json()
        pages.insert(0, page["events"])
        following = page["next"]
    whole = [event["reason"] or event["event_type"] for page in pages for event in page]
    assert whole == ["created", *(f"number {n + 1}" for n in range(EVENTS))]
    few = reader.get(f"/v1/tasks/{task_id}/events", params={"limit": 2}).json()
    assert [event["reason"] for event in few["events"]] == [f"number {EVENTS - 1}", f"number {EVENTS}"]
    assert (
        reader.get(f"/v1/tasks/{task_id}/events", params={"limit": tasks.MAX_EVENTS + 1}).status_code == 400
    )


def test_the_page_shows_the_last_events_and_leads_to_older_ones(
    web: Web, anna: Visitor, task_id: UUID
) -> None:
    with others_are_served(web):
        page = anna.client.get(f"/tasks/{task_id}").text
    assert f"number {EVENTS}<" in page
    assert "number 4900<" not in page
    assert len(page) < 200_000
    older = page.partition(f"/tasks/{task_id}?before=")[2].partition('"')[0]
    page = anna.client.get(f"/tasks/{task_id}?before={older}").text
    assert "number 4900<" in page
    assert f"number {EVENTS}<" not in page
    assert "Newest events" in page
    assert anna.client.get(f"/tasks/{task_id}?before=yesterday").status_code == 400
