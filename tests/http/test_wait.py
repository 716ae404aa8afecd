"""Waiting for the end of a task, on one connection."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from structlog.testing import capture_logs

from holdfast import App
from holdfast._connections import waiting as core
from holdfast._connections.pool import AsyncWork
from holdfast._connections.session import DatabaseAddress
from holdfast._connections.wait_ticket import expiry, issue
from holdfast._connections.waiting import Waits, Watched
from holdfast._engine import Engine, enqueue, leases, tasks
from holdfast._engine.enqueue import NewTask
from holdfast.errors import ConfigurationError, InvalidArgument
from holdfast.server.problem import report_waits
from holdfast.server.role_pool import RolePool
from holdfast.settings import Settings
from support.database import Database, shards_of
from support.leases import ended, holding
from support.web import SECRET, Web, dsn_of, grants, serving, web_dsn

HOUR = timedelta(hours=1)


@pytest.fixture
def queue() -> str:
    """One per test: the tests of this module share a database."""
    return f"q{uuid4().hex}"


@pytest.fixture
def task_id(engine: Engine, queue: str) -> UUID:
    return engine.run(enqueue.enqueue(NewTask(f"{queue}.one")))


def ticket(task_id: UUID, ttl: timedelta = HOUR, secret: str = SECRET) -> str:
    return issue([secret], task_id, ttl, time.time())


def finish(engine: Engine, queue: str, result: Any = None, status: Any = "succeeded") -> UUID:
    [task] = engine.run(leases.claim("w1", queues=[queue]))
    engine.run(leases.finish("w1", [ended(task.task_id, task.token, status, result)]))
    return UUID(task.task_id)


def when_waiting(web: Web, count: int) -> None:
    """Blocks until `count` requests wait."""
    deadline = time.monotonic() + 30
    while web.site.waiting != count:
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def test_the_response_comes_when_the_task_ends(web: Web, engine: Engine, task_id: UUID, queue: str) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(
            web.client().get, f"/v1/tasks/{task_id}/wait", params={"ticket": ticket(task_id), "timeout": "60"}
        )
        when_waiting(web, 1)
        assert not waiting.done()
        finish(engine, queue, result={"total": 9.50})
        answer = waiting.result(timeout=30)
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["result"]) == ("succeeded", {"total": 9.5})
    when_waiting(web, 0)


def test_a_wait_for_an_ended_task_returns_at_once(
    web: Web, engine: Engine, task_id: UUID, queue: str
) -> None:
    finish(engine, queue, result=7)
    answer = web.client().get(f"/v1/tasks/{task_id}/wait", params={"ticket": ticket(task_id)})
    assert (answer.status_code, answer.json()["result"]) == (200, 7)


def test_after_the_timeout_the_response_has_the_next_url(
    web: Web, engine: Engine, task_id: UUID, queue: str
) -> None:
    client = web.client()
    answer = client.get(f"/v1/tasks/{task_id}/wait", params={"ticket": ticket(task_id), "timeout": "0.01"})
    assert (answer.status_code, answer.json()["status"], answer.json()["result"]) == (202, "pending", None)
    finish(engine, queue)
    assert client.get(answer.json()["next"]).status_code == 200


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_ticket_shows_no_reason_of_a_failure(
    web: Web, engine: Engine, task_id: UUID, status: str, queue: str
) -> None:
    [task] = engine.run(leases.claim("w1", queues=[queue]))
    secret = {"kind": "Boom", "message": "secret internals"}
    engine.run(leases.finish("w1", [ended(task.task_id, task.token, status, error=secret)]))  # type: ignore[arg-type] # one of those
    answer = web.client().get(f"/v1/tasks/{task_id}/wait", params={"ticket": ticket(task_id)})
    assert answer.json()["status"] == status
    assert "secret internals" not in answer.text


def test_a_ticket_is_valid_for_its_own_task_only(web: Web, engine: Engine, task_id: UUID) -> None:
    other = engine.run(enqueue.enqueue(NewTask("others.one")))
    for path in (f"/v1/tasks/{other}/wait", f"/v1/tasks/{other}/stream", f"/v1/tasks/{task_id}", "/v1/tasks"):
        answer = web.client().get(path, params={"ticket": ticket(task_id), "timeout": 0})
        assert answer.status_code == 401, path


@pytest.mark.parametrize("wrong", ["", "x", "1.x", "99999999999." + "A" * 43, "0" * 500])
def test_a_forged_ticket_is_rejected(web: Web, task_id: UUID, wrong: str) -> None:
    answer = web.client().get(f"/v1/tasks/{task_id}/wait", params={"ticket": wrong, "timeout": 0})
    assert answer.status_code in (400, 401)


def test_a_ticket_expires_and_needs_the_right_secret(task_id: UUID) -> None:
    now = time.time()
    short = issue([SECRET], task_id, timedelta(seconds=5), now)
    assert expiry([SECRET], task_id, short, now + 4) is not None
    assert expiry([SECRET], task_id, short, now + 6) is None
    assert expiry(["x" * 32], task_id, short, now) is None
    assert expiry(["x" * 32, SECRET], task_id, short, now) is not None, "an older secret is still accepted"
    assert expiry([], task_id, short, now) is None


def test_an_application_creates_the_wait_url(web: Web, engine: Engine, queue: str) -> None:
    settings = Settings.load(database_url=web.database.dsn, web_secret=SECRET, web_url=web.url)
    app = App(settings=settings)

    @app.task(f"{queue}.by_url")
    def work() -> int:
        return 1

    url = work.enqueue().wait_url(ttl=60)
    app.close()
    finish(engine, queue, result=1)
    assert httpx.get(url, timeout=30).json()["result"] == 1


def test_an_application_without_secret_or_address_is_told_what_to_set(web: Web, task_id: UUID) -> None:
    bare = App(settings=Settings.load(database_url=web.database.dsn))
    with pytest.raises(ConfigurationError, match="HOLDFAST_WEB_SECRET"):
        bare.handle(task_id).wait_url()
    signing = App(settings=Settings.load(database_url=web.database.dsn, web_secret=SECRET))
    with pytest.raises(ConfigurationError, match="HOLDFAST_WEB_URL"):
        signing.handle(task_id).wait_url()
    with pytest.raises(InvalidArgument, match="ttl"):
        signing.handle(task_id).wait_url(ttl=timedelta(days=30))


def test_the_response_to_an_enqueue_has_the_wait_url(shop: httpx.Client, engine: Engine, queue: str) -> None:
    url = shop.post("/v1/tasks", json={"type": f"{queue}.over_http"}).json()["wait_url"]
    finish(engine, queue, result="done")
    assert httpx.get(url, timeout=30).json()["result"] == "done"


def test_a_client_that_disconnects_no_longer_counts(web: Web, task_id: UUID) -> None:
    with pytest.raises(httpx.ReadTimeout):
        web.client().get(f"/v1/tasks/{task_id}/wait", params={"ticket": ticket(task_id)}, timeout=0.3)
    when_waiting(web, 0)


def test_any_page_that_has_a_ticket_may_wait(web: Web, engine: Engine, task_id: UUID, queue: str) -> None:
    finish(engine, queue)
    for path in ("wait", "stream"):
        by_ticket = web.client().get(f"/v1/tasks/{task_id}/{path}", params={"ticket": ticket(task_id)})
        assert by_ticket.headers["Access-Control-Allow-Origin"] == "*"
    by_token = web.client("read").get(f"/v1/tasks/{task_id}/wait")
    assert "Access-Control-Allow-Origin" not in by_token.headers


def test_waits_are_bounded(web: Web, engine: Engine, queue: str) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask(f"{queue}.one")))
    params = {"ticket": ticket(task_id), "timeout": "60"}
    with ThreadPoolExecutor(20) as pool:
        waiting = [
            pool.submit(web.client().get, f"/v1/tasks/{task_id}/wait", params=params) for _ in range(16)
        ]
        when_waiting(web, 16)
        refused = web.client().get(f"/v1/tasks/{task_id}/wait", params=params)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_waits")
        assert "Retry-After" in refused.headers
        finish(engine, queue)
        assert {one.result(30).status_code for one in waiting} == {200}


def test_a_full_server_responds_503_and_a_stopping_one_202(module_db: Any) -> None:
    with ThreadPoolExecutor() as pool:
        with serving(module_db, web_max_waits=1) as small:
            task_id = small.engine.run(enqueue.enqueue(NewTask("full.one")))
            path, params = f"/v1/tasks/{task_id}/wait", {"ticket": ticket(task_id), "timeout": "60"}
            waiting = pool.submit(httpx.get, small.url + path, params=params, timeout=60)
            when_waiting(small, 1)
            assert small.client().get(path, params=params).status_code == 503
        answer = waiting.result(30)
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")


def wait_in(pool: ThreadPoolExecutor, web: Web, task_id: UUID, address: str) -> "Future[httpx.Response]":
    """With a ticket, from this address according to the proxy."""
    params = {"ticket": ticket(task_id), "timeout": "60"}
    headers = {"X-Forwarded-For": address}
    url = f"{web.url}/v1/tasks/{task_id}/wait"
    return pool.submit(httpx.get, url, params=params, headers=headers, timeout=60)


def test_no_client_takes_all_waits_and_readers_keep_some(module_db: Any) -> None:
    """Of 20 waits, one address gets a quarter, and a fifth is reserved for access tokens."""
    with (
        ThreadPoolExecutor(20) as pool,
        serving(module_db, web_max_waits=20, web_proxies="127.0.0.1") as small,
    ):
        ids = [small.engine.run(enqueue.enqueue(NewTask("crowded.one"))) for _ in range(5)]
        waiting = [wait_in(pool, small, task_id, "192.0.2.1") for task_id in ids]
        when_waiting(small, 5)
        refused = wait_in(pool, small, ids[0], "192.0.2.1").result(30)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_waits")
        for address in ("192.0.2.2", "192.0.2.3"):
            waiting += [wait_in(pool, small, task_id, address) for task_id in ids]
        when_waiting(small, 15)
        waiting.append(wait_in(pool, small, ids[0], "192.0.2.4"))
        when_waiting(small, 16)
        assert wait_in(pool, small, ids[0], "192.0.2.5").result(30).status_code == 429
        reader = small.client("read")
        answer = reader.get(f"/v1/tasks/{ids[0]}/wait", params={"timeout": "0.01"})
        assert answer.status_code == 202
        small.site.stop_waits()
        assert {one.result(30).status_code for one in waiting} == {202}


def test_one_access_token_does_not_take_all_waits(module_db: Any) -> None:
    with ThreadPoolExecutor() as pool, serving(module_db, web_max_waits=4) as small:
        path = f"/v1/tasks/{small.engine.run(enqueue.enqueue(NewTask('crowded.one')))}/wait"
        waiting = [pool.submit(small.client("read").get, path, params={"timeout": "60"}) for _ in range(2)]
        when_waiting(small, 2)
        assert small.client("read").get(path).status_code == 429
        assert small.client("operate").get(path, params={"timeout": "0.01"}).status_code == 202
        small.site.stop_waits()
        assert {one.result(30).status_code for one in waiting} == {202}


@pytest.mark.parametrize(("values", "result"), [("shown", 7), ("hidden", "(hidden: number)")])
def test_an_access_token_sees_the_result_where_the_server_shows_values(
    module_db: Database, queue: str, values: str, result: Any
) -> None:
    with serving(module_db, web_values=values) as web:
        task_id = web.engine.run(enqueue.enqueue(NewTask(f"{queue}.one")))
        finish(web.engine, queue, result=7)
        reader = web.client("read")
        assert reader.get(f"/v1/tasks/{task_id}").json()["result"] == result
        assert reader.get(f"/v1/tasks/{task_id}/wait").json()["result"] == result


async def test_a_failed_refresh_is_logged_once_with_the_missing_grant(module_db: Database) -> None:
    dsn = dsn_of(module_db, "holdfast_poor_login", "holdfast_client")
    address = DatabaseAddress(lambda: dsn)
    database = RolePool(address)
    waits = waits_of(address, database)
    with capture_logs() as logs:
        async with waits.register(uuid4()):
            for _ in range(3):
                assert not await waits._look(list(waits._watched))
            with grants(module_db, "holdfast_poor_login", "holdfast_operator"):
                for _ in range(3):
                    assert await waits._look(list(waits._watched))
            assert not await waits._look(list(waits._watched))
        await waits.aclose()
        database.close()
    failed = [line for line in logs if line["event"] == "wait_refresh_failed"]
    assert len(failed) == 2
    assert re.search(r'grant holdfast_operator\b.* to "holdfast_poor_login"', failed[0]["error"])
    assert [line["trouble"] for line in logs if line["event"] == "recovered"] == ["wait_refresh_failed"]


def test_a_server_whose_login_lacks_a_role_says_so_in_its_log_and_is_not_ready(module_db: Database) -> None:
    dsn = dsn_of(module_db, "holdfast_client_login", "holdfast_client")
    with capture_logs() as logs, serving(module_db, database_url=dsn) as poor:
        for path in ("/readyz", "/v1/queues"):
            answer = poor.client("read").get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "login_lacks_role")
            assert "holdfast_client_login" not in answer.text
    grant = re.compile(r'grant holdfast_operator\b.* to "holdfast_client_login"')
    assert any(grant.search(str(line.get("error"))) for line in logs)


def _events(answer: httpx.Response) -> Iterator[tuple[str, str, Any]]:
    event: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line and event.keys() >= {"id", "event", "data"}:
            yield event["id"], event["event"], json.loads(event["data"])
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


def _told(answer: httpx.Response) -> list[Any]:
    return [data.get("event", kind) if isinstance(data, dict) else kind for _, kind, data in _events(answer)]


def test_a_stream_has_every_step_of_a_task(web: Web, engine: Engine, task_id: UUID, queue: str) -> None:
    address = f"/v1/tasks/{task_id}/stream"
    with web.client().stream("GET", address, params={"ticket": ticket(task_id)}) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        events = _events(answer)
        assert next(events)[2]["event"] == "created"
        [task] = engine.run(leases.claim("w1", queues=[queue]))
        assert next(events)[2]["event"] == "claimed"
        engine.run(leases.heartbeat("w1", [holding(task_id, task.token, progress={"done": 1, "total": 2})]))
        assert next(events)[1:] == ("progress", {"done": 1, "total": 2})
        engine.run(leases.finish("w1", [ended(task_id, task.token, "succeeded", {"n": 7})]))
        rest = [(kind, data.get("event") or data["result"]) for _, kind, data in events]
    assert rest == [("status", "started"), ("status", "succeeded"), ("end", {"n": 7})]


def test_a_stream_resumes_where_it_broke_off(web: Web, engine: Engine, task_id: UUID, queue: str) -> None:
    client, address = web.client(), f"/v1/tasks/{task_id}/stream?ticket={ticket(task_id)}"
    with client.stream("GET", address) as answer:
        first, _, _ = next(_events(answer))
    finish(engine, queue)
    whole = _told(client.get(address))
    assert whole == ["created", "claimed", "started", "succeeded", "end"]
    for resume in (
        {"headers": {"Last-Event-ID": first}},
        {"params": {"ticket": ticket(task_id), "after": first}},
    ):
        assert _told(client.get(address, **resume)) == whole[1:]  # type: ignore[arg-type] # headers or params
    last = list(_events(client.get(address)))[-1][0]
    assert client.get(address, headers={"Last-Event-ID": last}).status_code == 204


def test_a_step_that_was_recorded_late_is_not_left_out(
    web: Web, engine: Engine, task_id: UUID, queue: str
) -> None:
    client, address = web.client(), f"/v1/tasks/{task_id}/stream?ticket={ticket(task_id)}"
    engine.run(leases.claim("w1", queues=[queue]))
    engine.run(tasks.cancel(task_id))
    *steps, (_, kind, _) = _events(client.get(address))
    assert [data["event"] for _, _, data in steps] == ["created", "claimed", "cancelled"]
    assert kind == "end"
    # As if the start had been reported late.
    late = "update queues.outcome set started_at = claimed_at where task_id = %s"
    for shard in shards_of(web.database.connect()):
        shard.execute(late, [task_id])
    again = _told(client.get(address, headers={"Last-Event-ID": steps[-1][0]}))
    assert again == ["created", "claimed", "started", "cancelled", "end"]


def test_all_readers_of_one_task_receive_its_end(web: Web, engine: Engine, queue: str) -> None:
    task_id = engine.run(enqueue.enqueue(NewTask(f"{queue}.one")))
    params = {"ticket": ticket(task_id)}
    with ThreadPoolExecutor(12) as pool:
        streams = [
            pool.submit(web.client().get, f"/v1/tasks/{task_id}/stream", params=params) for _ in range(6)
        ]
        polls = [pool.submit(web.client().get, f"/v1/tasks/{task_id}/wait", params=params) for _ in range(6)]
        when_waiting(web, 12)
        finish(engine, queue, result=1)
        assert {one.result(30).json()["result"] for one in polls} == {1}
        assert {_told(one.result(30))[-1] for one in streams} == {"end"}


def test_a_lost_listener_loses_no_end(web: Web, engine: Engine, task_id: UUID, queue: str) -> None:
    with ThreadPoolExecutor() as pool:
        params = {"ticket": ticket(task_id), "timeout": "60"}
        waiting = pool.submit(web.client().get, f"/v1/tasks/{task_id}/wait", params=params)
        when_waiting(web, 1)
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'holdfast_web_login'"
        web.database.connect().execute(ended)
        finish(engine, queue, result=3)
        assert waiting.result(30).json()["result"] == 3


def waits_of(address: DatabaseAddress, database: RolePool) -> Waits[None]:
    async def run(work: AsyncWork[Any]) -> Any:
        return await database.run("holdfast_reader", work)

    return Waits(address, run, report=report_waits())


class Delayed(RolePool):
    """A database whose first result comes late."""

    def __init__(self, address: DatabaseAddress) -> None:
        super().__init__(address)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def run(self, *given: Any, **named: Any) -> Any:
        first = not self.asked.is_set()
        found = await super().run(*given, **named)
        if first:
            self.asked.set()
            await self.answer.wait()
        return found


async def test_a_query_that_was_overtaken_takes_nothing_back(
    web: Web, engine: Engine, task_id: UUID, queue: str
) -> None:
    address = DatabaseAddress(lambda: web_dsn(web.database))
    database = Delayed(address)
    waits = waits_of(address, database)
    watched = waits._watched[task_id] = Watched(task_id, task_id)
    early = asyncio.create_task(waits._look([task_id]))
    await database.asked.wait()
    await asyncio.to_thread(finish, engine, queue)
    assert await waits._look([task_id])
    assert watched.state is not None
    assert watched.state.ended
    database.answer.set()
    assert await early
    assert watched.state.ended
    database.close()


async def test_a_loop_that_fails_is_logged_and_started_again(
    web: Web, engine: Engine, task_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "RESTART_SECONDS", 0.01)
    address = DatabaseAddress(lambda: web_dsn(web.database))
    database = RolePool(address)
    waits = waits_of(address, database)
    look, failures = waits._look, [RuntimeError("a bug"), RuntimeError("another bug")]

    async def failing(keys: list[UUID]) -> bool:
        if keys and failures:
            raise failures.pop()
        return await look(keys)

    monkeypatch.setattr(waits, "_look", failing)
    with capture_logs() as logs:
        async with waits.register(task_id) as waiter:
            await waiter.wait_until_known(30)
            assert waiter.known
    await waits.aclose()
    database.close()
    failed = [line for line in logs if line["event"] == "loop_failed"]
    assert [(line["log_level"], line["loop"]) for line in failed] == [("error", "waits")] * 2
