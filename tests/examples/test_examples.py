"""Every program in examples/ runs as its first lines say."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient
from sqlalchemy.orm import Session

from holdfast._serialization.webhook_signature import new_secret, signature_headers
from support.database import Database
from support.worker_thread import working

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTS = Path(__file__).parents[1]


@pytest.fixture
def example(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import an example again, for this test's database."""
    monkeypatch.setenv("DATABASE_URL", db.dsn)
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded: list[str] = []

    def load(name: str) -> Any:
        loaded.append(name)
        return import_module(name)

    yield load
    for name in loaded:
        module: Any = sys.modules.pop(name)
        (module.app if name == "plain_script" else module.tasks).close()


def run(db: Database, *command: str) -> str:
    environment = {**os.environ, "DATABASE_URL": db.dsn, "PYTHONPATH": f"{EXAMPLES}:{TESTS}"}
    ran = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if path.stem not in tested] == []


def test_the_plain_script(db: Database, example: Callable[[str], Any]) -> None:
    app = example("plain_script").app
    script = (str(EXAMPLES / "plain_script.py"), "To be or not to be")
    with working(app, db.dsn, worker_queues="report"):
        first, again = run(db, *script), run(db, *script)
    assert first.startswith("asked for")
    assert again.startswith("already asked for")
    assert first.splitlines()[1] == again.splitlines()[1] == "[('to', 2), ('be', 2), ('or', 1)]"


def test_sqlalchemy(db: Database, example: Callable[[str], Any]) -> None:
    shop = example("sqlalchemy_shop")
    engine = shop.connect()
    with Session(engine) as session:
        shop.place_order(session, "a chair")
        session.rollback()
    with Session(engine) as session, session.begin():
        handle = shop.place_order(session, "a lamp")
    with working(shop.tasks, db.dsn, worker_queues="shop"):
        assert handle.result(60).endswith(": a lamp is on its way")
    found = db.connect().execute("select count(*), (select count(*) from orders) from queues.task")
    assert found.fetchone() == (1, 1)
    engine.dispose()


async def test_fastapi_events(
    db: Database, example: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = new_secret()
    monkeypatch.setenv("ORDERS_SECRET", secret)
    shop = example("fastapi_events")
    event = {"specversion": "1.0", "source": "/orders", "type": "order.created", "data": {"order": 7}}

    async def send(event_id: str, key: str = secret, **changes: Any) -> int:
        body = json.dumps(event | {"id": event_id} | changes).encode()
        answered = await client.post(
            "/events", content=body, headers=signature_headers(event_id, body, [key])
        )
        return int(answered.status_code)

    client = AsyncClient(transport=ASGITransport(shop.api), base_url="http://shop")
    with working(shop.tasks, db.dsn, worker_queues="shop"):
        async with shop.lifespan(shop.api), client:
            assert await send("1", new_secret()) == 401
            assert [await send("1") for _ in range(3)] == [204, 204, 204]
            assert await send("2", type="order.paid") == 204
            found = db.connect().execute("select task_id from queues.task").fetchall()
            assert len(found) == 1
            assert await shop.tasks.handle(found[0][0]).aresult(60) == "order 7 is on its way"


async def test_litestar(db: Database, example: Callable[[str], Any]) -> None:
    shop = example("litestar_shop")
    client = AsyncClient(transport=ASGITransport(shop.web), base_url="http://shop")
    with working(shop.tasks, db.dsn, worker_queues="shop"):
        async with shop.web.lifespan(), client:
            begun = (await client.post("/orders", params={"item": "lamp"})).json()
            handle = shop.tasks.handle(begun["task_id"])
            assert await handle.aresult(60) == "order 1: lamp is on its way"
            assert (await client.get(f"/tasks/{handle.task_id}")).json() == {"status": "succeeded"}


def test_flask(db: Database, example: Callable[[str], Any]) -> None:
    shop = example("flask_shop")
    client = shop.web.test_client()
    signed_up = client.post("/signups?email=ada@example.com")
    assert signed_up.status_code == 202
    assert client.post("/signups?email=ada@example.com").status_code == 500
    task_id = signed_up.json["task_id"]
    assert client.get(f"/tasks/{task_id}").json == {"status": "pending"}
    with working(shop.tasks, db.dsn, worker_queues="mail"):
        assert shop.tasks.handle(task_id).result(60) == "Welcome, ada@example.com!"
    assert client.get(f"/tasks/{task_id}").json == {"status": "succeeded"}


def test_the_task_executor() -> None:
    payload = json.dumps({"task": "shout", "arguments": {"text": "done"}})
    ran = subprocess.run(
        [sys.executable, "-m", "task_executor"],
        cwd=EXAMPLES,
        input=payload,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout) == {"success": True, "payload": "DONE"}


def test_order_workflow(db: Database, example: Callable[[str], Any]) -> None:
    shop = example("order_workflow")
    script = str(EXAMPLES / "order_workflow.py")
    with working(shop.tasks, db.dsn, worker_queues="orders"):
        assert run(db, script, "7").strip() == "begun"
        assert run(db, script, "7", "yes").strip() == "kept"
        assert shop.fulfil.using(key="order-7").enqueue(7).result(60) == "parcel-7"
        assert shop.decide(7, approved=False) == "ended"
