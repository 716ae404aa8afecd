"""The HTTP API and the dashboard on a front."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import httpx
import pytest

from holdfast._engine import Engine, access, enqueue
from holdfast._engine.enqueue import NewTask
from support.engine import claim_one, end
from support.sharded import FrontDatabase, lost
from support.web import Web

PAGES = [
    "/",
    "/tasks",
    "/queues",
    "/workers",
    "/schedules",
    "/outbox",
    "/mailbox",
    "/access",
    "/processes",
    "/health",
]


@pytest.fixture
def made(web: Web, module_db: FrontDatabase) -> list[str]:
    """A task on each shard."""
    return [
        str(Engine(shard.connect()).run(enqueue.enqueue(NewTask("billing.charge"))))
        for shard in module_db.shards
    ]


@pytest.fixture
def visitor(web: Web) -> Iterator[httpx.Client]:
    """Of the dashboard, logged in."""
    with httpx.Client(base_url=web.url, timeout=60, headers={"Origin": web.url}) as client:
        form = {"token": web.token("admin"), "csrf": ""}
        assert client.post("/login", data=form).status_code == 303
        yield client


def test_tasks_of_all_shards_are_listed_read_and_cancelled(admin: httpx.Client, made: list[str]) -> None:
    listed = admin.get("/v1/tasks", params={"limit": 100}).json()["tasks"]

    assert set(made) <= {task["task_id"] for task in listed}
    for task_id in made:
        assert admin.post(f"/v1/tasks/{task_id}/cancel", json={"reason": "test"}).status_code == 200
        assert admin.get(f"/v1/tasks/{task_id}").json()["status"] == "cancelled"


def test_a_wait_ends_when_the_shard_says_so(
    admin: httpx.Client, web: Web, module_db: FrontDatabase, made: list[str]
) -> None:
    shard = module_db.shards[1].connect()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(admin.get, f"/v1/tasks/{made[1]}/wait", params={"timeout": 20})
        while shard.execute("select from queues.waiter").fetchone() is None:
            pass
        while task := claim_one(shard, queues=["billing"]):
            end(shard, task, result=9)
            if str(task["task_id"]) == made[1]:
                break
        answer = waiting.result(60)

    assert answer.json()["status"] == "succeeded"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_shown_for_all_shards(visitor: httpx.Client, made: list[str], path: str) -> None:
    assert visitor.get(path).status_code == 200


def test_the_rest_is_served_while_a_shard_is_lost(
    admin: httpx.Client, visitor: httpx.Client, module_db: FrontDatabase, made: list[str]
) -> None:
    with lost(module_db, 1) as name:
        listed = admin.get("/v1/tasks", params={"limit": 100})
        shown = [visitor.get(path).status_code for path in PAGES]
        overview = visitor.get("/health")
        other = admin.get(f"/v1/tasks/{made[0]}")
        gone = admin.get(f"/v1/tasks/{made[1]}")

    assert (listed.status_code, other.status_code, gone.status_code) == (200, 200, 503)
    assert made[1] not in {task["task_id"] for task in listed.json()["tasks"]}
    assert set(shown) == {200}
    assert f"shard {name} cannot be reached" in gone.text
    assert f"shard {name} cannot be reached" in overview.text


def test_the_shard_is_named_over_http_and_on_the_dashboard(
    admin: httpx.Client, visitor: httpx.Client, module_db: FrontDatabase, made: list[str]
) -> None:
    for n, shard in enumerate(module_db.shards):
        shard.connect().execute("select queues.register_worker(%s)", [f"worker-{n}"])
    listed = {task["task_id"]: task["shard"] for task in admin.get("/v1/tasks?limit=100").json()["tasks"]}
    workers = {one["worker_id"]: one["shard"] for one in admin.get("/v1/workers").json()["workers"]}

    for n, task_id in enumerate(made):
        assert listed[task_id] == admin.get(f"/v1/tasks/{task_id}").json()["shard"] == f"s{n:02}"
        assert workers[f"worker-{n}"] == f"s{n:02}"
        assert f"<dt>Shard</dt><dd>s{n:02}</dd>" in visitor.get(f"/tasks/{task_id}").text
        assert f"<dt>Shard</dt><dd>s{n:02}</dd>" in visitor.get(f"/workers/show?id=worker-{n}").text
        assert f'<td data-label="Shard">s{n:02}</td>' in visitor.get("/workers").text
        assert f'<span class="dim">s{n:02}</span>' in visitor.get("/tasks").text


def test_values_of_a_task_on_any_shard_are_revealed_and_that_is_recorded_once(
    admin: httpx.Client, module_db: FrontDatabase, made: list[str]
) -> None:
    engine = Engine(module_db.connect())
    for n, task_id in enumerate(made):
        answer = admin.get(f"/v1/tasks/{task_id}", params={"reveal": "true", "reason": f"ticket {n}"})
        assert answer.json()["values_hidden"] is False
        [seen] = engine.run(access.reveals_of(UUID(task_id)))
        assert seen.reason == f"ticket {n}"
    recorded = [event.reason for event in engine.run(access.access_events(200)) if event.act == "revealed"]
    assert recorded[: len(made)] == [f"ticket {n}" for n in reversed(range(len(made)))]
    created = [event for event in engine.run(access.access_events(200)) if event.act == "token_created"]
    assert len({event.token_id for event in created}) == len(created)
