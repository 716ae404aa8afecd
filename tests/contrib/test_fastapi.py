"""holdfast.contrib.fastapi: tasks in the session of a request, and the HTTP side below a prefix."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import asyncpg
import httpx
import psycopg
import pytest
from fastapi import Depends, FastAPI, Request
from httpx import ASGITransport, AsyncClient
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import App
from holdfast._engine import Engine, access
from holdfast.contrib.fastapi import Holdfast, InTransaction, in_transaction
from holdfast.errors import InvalidArgument
from holdfast.server.access import hash_of, new_token
from support.database import Database
from support.worker_thread import working


@pytest.fixture
def tasks(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "s" * 64)
    app = App(db.dsn)
    yield app
    app.close()


def alchemy(db: Database) -> str:
    return db.dsn.replace("postgresql:", "postgresql+psycopg:", 1)


async def async_session(db: Database) -> AsyncIterator[Any]:
    engine = create_async_engine(alchemy(db))
    async with AsyncSession(engine) as session, session.begin():
        yield session
    await engine.dispose()


async def async_psycopg(db: Database) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(db.dsn) as connection:
        yield connection


async def of_asyncpg(db: Database) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(db.dsn)
    async with connection.transaction():
        yield connection
    await connection.close()


def sync_session(db: Database) -> Iterator[Any]:
    engine = create_engine(alchemy(db))
    with Session(engine) as session, session.begin():
        yield session
    engine.dispose()


def sync_psycopg(db: Database) -> Iterator[Any]:
    with psycopg.connect(db.dsn) as connection:
        yield connection


@pytest.mark.parametrize("opened", [async_session, async_psycopg, of_asyncpg, sync_session, sync_psycopg])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of connections that the failed request leaves
async def test_a_task_is_enqueued_in_the_session_of_the_request(
    db: Database, tasks: App, opened: Any
) -> None:
    given: list[Any] = []

    @tasks.task("shop.ship")
    def ship(order_id: int) -> None: ...

    if opened.__name__.startswith("sync"):

        def sync_dependency() -> Iterator[Any]:
            yield from opened(db)

        dependency: Any = sync_dependency
    else:

        async def async_dependency() -> AsyncIterator[Any]:
            async for session in opened(db):
                yield session

        dependency = async_dependency
    queue = Annotated[InTransaction, Depends(in_transaction(dependency))]
    web = FastAPI()

    async def order(order_id: int, tx: Annotated[Any, Depends(dependency)], queue: queue) -> None:
        given.append((tx, queue.tx))
        bound = queue(ship, key=f"order-{order_id}")
        if opened.__name__.startswith("sync"):
            bound.enqueue(order_id)
        else:
            await bound.aenqueue(order_id)
        if order_id == 0:
            raise RuntimeError("the request fails")

    web.post("/orders/{order_id}")(order)
    async with AsyncClient(transport=ASGITransport(web), base_url="http://shop") as client:
        assert (await client.post("/orders/7")).status_code == 200
        with pytest.raises(RuntimeError, match="the request fails"):
            await client.post("/orders/0")
    assert all(session is used for session, used in given)
    found = db.connect().execute("select payload from queues.task").fetchall()
    assert found == [({"order_id": 7},)]


@asynccontextmanager
async def served(web: FastAPI, asgi: Any = None) -> AsyncIterator[AsyncClient]:
    transport = ASGITransport(asgi or web)
    async with (
        web.router.lifespan_context(web),
        AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


ROOTS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "no root_path": ("", "", lambda web: web),
    "the proxy removes its prefix": ("/outer", "", lambda web: web),
    "the proxy keeps its prefix": ("/outer", "/outer", lambda web: web),
    "mounted in another application": (
        "",
        "/outer",
        lambda web: Starlette(routes=[Mount("/outer", app=web)]),
    ),
}


@pytest.mark.parametrize("how", ROOTS)
async def test_links_cookies_forms_and_waits_work_below_the_prefix(
    db: Database, tasks: App, how: str
) -> None:
    root_path, sent, around = ROOTS[how]
    seen = root_path or sent  # how the paths begin in the browser

    @tasks.task("shop.double")
    async def double(n: int) -> int:
        return 2 * n

    holdfast = Holdfast(tasks, prefix="/tasks")
    web = FastAPI(lifespan=holdfast.lifespan)
    web.root_path = root_path  # as the deprecated argument sets it; uvicorn --root-path keeps the prefix
    holdfast.mount(web)

    @web.post("/begin")
    async def begin(request: Request) -> str:
        return holdfast.wait_path(request, await double.aenqueue(21))

    token = new_token()
    Engine(db.connect()).run(access.create_token("me", ["admin"], hash_of(token)))
    async with served(web, around(web)) as client:
        strange = await client.get(f"{sent}/tasks/queues")
        assert strange.headers["Location"] == f"{seen}/tasks/login?next=%2Fqueues"
        login = await client.get(f"{sent}/tasks/login")
        assert f'action="{seen}/tasks/login"' in login.text
        assert (await client.get(f"{sent}/tasks/static/dashboard.css")).status_code == 200
        form = {"token": token, "next": "/queues"}
        foreign = await client.post(
            f"{sent}/tasks/login", data=form, headers={"Origin": "http://evil.example"}
        )
        assert foreign.status_code == 403
        entered = await client.post(f"{sent}/tasks/login", data=form, headers={"Origin": "http://127.0.0.1"})
        assert entered.headers["Location"] == f"{seen}/tasks/queues"
        cookie = entered.headers["Set-Cookie"]
        assert f"Path={seen}/tasks;" in cookie
        assert "HttpOnly" in cookie
        page = await client.get(f"{sent}/tasks/queues", headers={"Cookie": cookie.partition(";")[0]})
        assert f'href="{seen}/tasks/tasks' in page.text
        assert not re.findall(rf'(?:href|src|action)="(?!{seen}/tasks[/"?]|#|\?|https?:)[^"]+"', page.text)
        assert "script-src 'self'" in page.headers["Content-Security-Policy"]
        listed = await client.get(f"{sent}/tasks/v1/queues", headers={"Authorization": f"Bearer {token}"})
        assert listed.status_code == 200
        wait = (await client.post(f"{sent}/begin")).json()
        assert wait.startswith(f"{seen}/tasks/v1/tasks/")
        with working(tasks, db.dsn, worker_queues="shop"):
            asked = sent + wait.removeprefix(seen)
            assert (await client.get(asked)).json()["result"] == 42
            stream = await client.get(asked.replace("/wait?", "/stream?"))
            assert "event: end" in stream.text
        assert (await client.get(f"{sent}/tasks/healthz")).status_code == 200


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whatever the program that started the tests did with SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def test_the_lifespan_of_the_application_runs_inside(tasks: App, interruptible: None) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def own(_: FastAPI) -> AsyncIterator[dict[str, str]]:
        seen.append("begun")
        yield {"shop": "open"}
        seen.append("ended")

    holdfast = Holdfast(tasks)
    web = FastAPI(lifespan=holdfast.lifespan_with(own))
    holdfast.mount(web)
    before = signal.getsignal(signal.SIGINT)
    async with web.router.lifespan_context(web) as state:
        assert state == {"shop": "open"}
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert seen == ["begun", "ended"]
    assert tasks._client is None


async def test_host_names_are_those_of_the_settings_and_of_this_machine(
    tasks: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WEB_HOSTS", "shop.example")
    for hosts, accepted in (((), True), (None, True), (["other.example"], False)):
        web = FastAPI()
        Holdfast(tasks, hosts=hosts).mount(web)
        async with AsyncClient(transport=ASGITransport(web), base_url="http://shop.example") as client:
            answered = await client.get("/holdfast/login")
        assert (answered.status_code == 200) is accepted


@pytest.mark.parametrize("prefix", ["holdfast", "/holdfast/", ""])
def test_a_prefix_that_cannot_be_mounted_is_refused(tasks: App, prefix: str) -> None:
    with pytest.raises(InvalidArgument):
        Holdfast(tasks, prefix=prefix)


async def test_a_page_that_waits_escapes_what_it_is_given(tasks: App) -> None:
    @tasks.task("shop.never")
    async def never() -> None: ...

    holdfast = Holdfast(tasks)
    web = FastAPI(lifespan=holdfast.lifespan)
    holdfast.mount(web)

    @web.get("/")
    async def page(request: Request) -> Any:
        title = "<script>alert(1)</script>"
        return holdfast.waiting_page(request, await never.aenqueue(), title=title, then='"><b>')

    async with served(web) as client:
        answered = await client.get("/")
    assert "<script>alert" not in answered.text
    assert '"><b>' not in answered.text
    assert 'src="/holdfast/static/wait_page.js"' in answered.text
    assert "default-src 'none'" in answered.headers["Content-Security-Policy"]


PROGRAM = """
from fastapi import FastAPI, Request
from holdfast import App
from holdfast.contrib.fastapi import Holdfast

tasks = App()
holdfast = Holdfast(tasks)
web = FastAPI(lifespan=holdfast.lifespan)
holdfast.mount(web)

@tasks.task("shop.never")
async def never() -> None: ...

@web.post("/begin")
async def begin(request: Request) -> str:
    return holdfast.wait_path(request, await never.aenqueue())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_stops_at_once_while_pages_wait(
    db: Database, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "waits.py").write_text(PROGRAM)
    environment = {**os.environ, "DATABASE_URL": db.dsn, "HOLDFAST_WEB_SECRET": "s" * 64}
    command = [sys.executable, "-m", "uvicorn", "waits:web", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        assert server.stderr
        url = next(re.findall(r"http://\S+", line)[0] for line in server.stderr if "running on" in line)
        wait = httpx.post(f"{url}/begin").json().replace("/wait?", "/stream?")
        try:
            with httpx.stream("GET", f"{url}{wait}", timeout=60) as stream:
                lines = stream.iter_lines()
                next(lines)
                server.send_signal(number)
                for _ in lines:  # until the server ends the stream
                    pass
            server.wait(20)
        finally:
            server.kill()
