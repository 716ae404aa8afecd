"""The database connections of the server: cancelled requests, locks and probes."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from holdfast._connections.session import DatabaseAddress
from holdfast._engine import AsyncEngine, health
from holdfast.errors import DatabaseUnavailable
from holdfast.server import role_pool, turns
from holdfast.server.access import hash_of
from holdfast.server.role_pool import POOL_SIZE, RolePool
from holdfast.server.site import CALLER_SHARE, LoopResources, Site, SiteOptions
from support.database import Database
from support.web import serving, web_dsn


async def test_a_cancelled_request_leaves_no_statement_running(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    connections = RolePool(DatabaseAddress(lambda: web_dsn(db)), size=1)

    async def leave(engine: AsyncEngine) -> None:
        # As frameworks do it: cancelled again at every await, until the task has ended.
        asyncio.get_running_loop().call_later(0.1, scope.cancel)
        await engine.connection.execute("select pg_sleep(60)")

    with caplog.at_level(logging.WARNING):
        with anyio.CancelScope() as scope:
            await connections.run("holdfast_reader", leave)
        assert scope.cancelled_caught
        await connections.run("holdfast_reader", lambda engine: engine.run(health.clock()))
    connections.close()
    assert caplog.records == []


async def test_work_that_took_too_long_is_not_done_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.role_pool.REPLY_SECONDS", 0.3)
    connections = RolePool(DatabaseAddress(lambda: web_dsn(db)), size=1)
    begun = 0

    async def take_long(engine: AsyncEngine) -> None:
        nonlocal begun
        begun += 1
        await engine.connection.execute("select pg_sleep(5)")

    with pytest.raises(DatabaseUnavailable):
        await connections.run("holdfast_reader", take_long)
    assert begun == 1
    await connections.run("holdfast_reader", lambda engine: engine.run(health.clock()))
    connections.close()


@pytest.mark.full
def test_probes_and_reads_are_served_while_enqueues_and_actions_wait_for_a_lock(db: Database) -> None:
    more_than_all = 3 * POOL_SIZE
    with serving(db) as web, ThreadPoolExecutor(more_than_all) as pool:
        shop, reader = web.client("enqueue"), web.client("read")
        assert shop.post("/v1/tasks", json={"type": "held.one"}).status_code == 201
        assert reader.get("/v1/queues").status_code == 200
        holder = db.connect(autocommit=False)
        holder.execute("lock table queues.task in share row exclusive mode")
        waiting = [
            pool.submit(shop.post, "/v1/tasks", json={"type": "held.one"}) for _ in range(more_than_all)
        ]
        until_locked(db, CALLER_SHARE)
        assert web.client().get("/readyz").status_code == 200
        assert reader.get("/v1/queues").status_code == 200
        assert not any(one.done() for one in waiting)
        answers = [one.result(60) for one in waiting]
        holder.rollback()
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {
            (503, "locked"),
            (429, "too_many_requests"),
        }
        assert all(answer.headers["Retry-After"] for answer in answers)
        assert shop.post("/v1/tasks", json={"type": "held.one"}).status_code == 201


def test_a_token_whose_requests_wait_for_locks_delays_no_other(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = role_pool._TRANSACTION_SETTINGS.replace("'3s'", "'60s'")
    monkeypatch.setattr(role_pool, "_TRANSACTION_SETTINGS", patient)
    monkeypatch.setattr(turns, "TURN_SECONDS", 60)
    more_than_all = 2 * POOL_SIZE
    with serving(db) as web, ThreadPoolExecutor(2 * more_than_all) as pool:
        stuck, other = web.client("enqueue", "read"), web.client("admin")
        task_id = other.post("/v1/tasks", json={"type": "free.one"}).json()["task_id"]
        holder = db.connect(autocommit=False)
        given = '[{"type": "held.one", "idempotency_key": "taken"}]'
        token_hash = hash_of(web.token("enqueue", "read"))
        holder.execute("select queues.enqueue_for_token(%s, %s)", [token_hash, given])
        holder.execute("lock table queues.schedule in access exclusive mode")
        held: dict[str, Any] = {"json": {"type": "held.one"}, "headers": {"Idempotency-Key": "taken"}}
        waiting = [pool.submit(stuck.post, "/v1/tasks", **held) for _ in range(more_than_all)]
        waiting += [pool.submit(stuck.get, "/v1/schedules") for _ in range(more_than_all)]
        until_locked(db, 2 * CALLER_SHARE, "true")
        assert other.post("/v1/tasks", json={"type": "free.one"}).status_code == 201
        assert other.get("/v1/queues").status_code == 200
        assert other.get(f"/v1/tasks/{task_id}/wait?timeout=0").status_code == 202
        assert other.post(f"/v1/tasks/{task_id}/cancel", json={"reason": "x"}).status_code == 200
        assert not any(one.done() for one in waiting)
        holder.rollback()
        assert {one.result(60).status_code for one in waiting} <= {200, 201}


def until_locked(db: Database, count: int, which: str = "relation = 'queues.task'::regclass") -> None:
    look = db.connect()
    query = f"select count(*) from pg_locks where not granted and {which}".encode()
    deadline = time.monotonic() + 30
    while look.execute(query).fetchone() != (count,):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


async def test_concurrent_probes_share_one_query(db: Database) -> None:
    dsn = web_dsn(db)
    resources = LoopResources(Site(DatabaseAddress(lambda: dsn), SiteOptions(), {}))
    await asyncio.gather(*(resources.probe() for _ in range(20)))
    query = "select count(*) from pg_stat_activity where usename = 'holdfast_web_login' and datname = %s"
    assert db.connect().execute(query, [db.name]).fetchone() == (1,)
    await resources.close()
