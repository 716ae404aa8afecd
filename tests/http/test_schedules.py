"""Schedules over HTTP: of which namespace; and acts that are done once, although the reply was lost."""

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import httpx
import pytest

from holdfast._engine import Engine, enqueue, events, schedules, steps, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import NewSchedule
from holdfast._engine.tasks import TaskFilter
from holdfast.server import bulk_steps
from holdfast.server.api import subscriptions
from support.database import Database
from support.visitor import Visitor
from support.web import Web, serving, web_dsn
from support.wire import Wire

HOUR = timedelta(hours=1)


@pytest.fixture
def wire(module_db: Database) -> Iterator[Wire]:
    wire = Wire(web_dsn(module_db), Random(1))  # noqa: S311 - a test's own order
    with wire.running():
        yield wire


@pytest.fixture
def web(module_db: Database, wire: Wire) -> Iterator[Web]:
    with serving(module_db, database_url=wire.dsn) as running:
        yield running


@pytest.fixture
def anna(web: Web) -> Iterator[Visitor]:
    visitor = Visitor(web)
    assert visitor.log_in("admin").status_code == 303
    yield visitor
    visitor.client.close()


def _add(engine: Engine, name: str, type_: str) -> None:
    engine.run(schedules.add_schedule(NewSchedule(name=name, task=NewTask(type_), every=HOUR)))


def _count(engine: Engine, type_: str) -> int:
    return len(engine.run(tasks.find_tasks(TaskFilter(None, None, type_))).task_ids)


def _lose_the_reply(wire: Wire, module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the commit after the statement that this function of the engine makes."""
    given = getattr(module, name)

    def make(*arguments: Any, **more: Any) -> Any:
        wire.cut_at("after", b"COMMIT", after=f"queues.{name}".encode())
        return given(*arguments, **more)

    monkeypatch.setattr(module, name, make)


def test_running_it_by_hand_is_not_repeated(
    web: Web, anna: Visitor, wire: Wire, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add(engine, "by-hand", "hand.one")
    _lose_the_reply(wire, schedules, "run_schedule", monkeypatch)
    answer = web.client("admin").post("/v1/schedules/by-hand/run", json={"reason": "once"})
    assert (answer.status_code, wire.cuts, _count(engine, "hand.one")) == (503, 1, 1)
    answer = anna.post("/schedules/run", name="by-hand", reason="once more")
    assert (answer.status_code, wire.cuts, _count(engine, "hand.one")) == (503, 2, 2)


def test_a_signal_and_a_fork_are_not_repeated(
    web: Web, anna: Visitor, wire: Wire, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = engine.run(enqueue.enqueue(NewTask("forked.one")))
    _lose_the_reply(wire, steps, "signal", monkeypatch)
    assert anna.post(f"/tasks/{run}/signal", name="approved", payload="1").status_code == 503
    _lose_the_reply(wire, steps, "fork", monkeypatch)
    assert anna.post(f"/tasks/{run}/fork", reason="try again").status_code == 503
    sent = web.database.connect().execute("select count(*) from queues.signal where task_id = %s", [run])
    assert (wire.cuts, sent.fetchone(), _count(engine, "forked.one")) == (2, (1,), 2)


def test_a_bulk_action_and_sending_events_again_are_not_repeated(
    web: Web, wire: Wire, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one would not change what the first has changed, and would report that as its own result."""
    task = engine.run(enqueue.enqueue(NewTask("bulk.one")))
    _lose_the_reply(wire, bulk_steps, "act_on_tasks", monkeypatch)
    request = {"action": "delete", "task_ids": [str(task)], "reason": "not needed"}
    assert web.client("admin").post("/v1/tasks/act", json=request).status_code == 503
    engine.run(events.subscribe("again", "console", "-", ["again.*"]))
    _lose_the_reply(wire, subscriptions, "redrive_events", monkeypatch)
    assert web.client("admin").post("/v1/subscriptions/again/redrive").status_code == 503
    deleted = web.database.connect().execute(
        "select count(*) from queues.deletion where task_id = %s", [task]
    )
    assert (wire.cuts, deleted.fetchone()) == (2, (1,))


def test_a_name_of_two_namespaces_is_shown_with_the_namespace_only(
    web: Web, engine: Engine, reader: httpx.Client
) -> None:
    _add(engine, "twice", "mine.one")
    _add(Engine(web.database.connect("holdfast_client")), "twice", "theirs.one")
    refused = reader.get("/v1/schedules/twice")
    assert (refused.status_code, refused.json()["code"]) == (400, "QF400")
    assert "exists in 2 namespaces" in refused.json()["detail"]
    shown = reader.get("/v1/schedules/twice", params={"namespace": "holdfast_client_login"}).json()
    assert shown["schedule"]["type"] == "theirs.one"
