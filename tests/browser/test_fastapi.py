"""The FastAPI example in a browser: an order whose page waits on one connection, and the dashboard."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast._engine import Engine, access
from holdfast.server.access import hash_of, new_token
from support.accessibility import serious
from support.database import Database
from support.documents import ROOT
from support.watch import watched
from support.worker_thread import working

EXAMPLE = ROOT / "examples" / "fastapi_shop"
SLOW = 40_000


@pytest.fixture
def store(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("DATABASE_URL", db.dsn)
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "s" * 64)
    monkeypatch.syspath_prepend(EXAMPLE)
    module = import_module("store")
    yield module
    module.tasks.close()
    del sys.modules["store"]


@pytest.fixture
def port(store: Any) -> Iterator[int]:
    """The application below /shop, as behind a proxy that passes its own prefix on."""
    outer = Starlette(
        routes=[Mount("/shop", app=store.web)],
        lifespan=lambda _: store.web.router.lifespan_context(store.web),
    )
    server = uvicorn.Server(uvicorn.Config(outer, log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)


@pytest.mark.timeout(200)
def test_an_order_waits_on_one_connection_and_the_dashboard_shows_it(
    db: Database, store: Any, port: int, browser: Browser, axe: str
) -> None:
    token = new_token()
    Engine(db.connect()).run(access.create_token("me", ["admin"], hash_of(token)))
    complaints: list[str] = []
    with watched(port) as watch:
        context = browser.new_context(base_url=f"http://127.0.0.1:{watch.port}")
        page = context.new_page()
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # the form has no icon
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto("/shop/")
        page.get_by_label("Item").fill("lamp")
        page.get_by_label("E-mail").fill("ada@example.com")
        page.get_by_role("button", name="Order").click()
        expect(page.get_by_role("heading", name="Order 1")).to_be_visible(timeout=SLOW)
        with page.expect_response(re.compile("/stream")) as asked:
            page.reload()
        streams: list[str] = [asked.value.url]
        page.on("request", lambda request: streams.append(request.url) if "/stream" in request.url else None)
        assert serious(page, axe) == []
        with working(store.tasks, db.dsn, worker_queues="shop,comms"):
            expect(page.get_by_role("status")).to_have_text("Order 1: lamp is on its way.", timeout=SLOW)
            assert len(streams) == 1
            assert "/shop/holdfast/v1/tasks/" in streams[0]
            page.goto(f"/shop/holdfast/login#{token}")
            page.wait_for_url("**/shop/holdfast/")
            page.goto("/shop/holdfast/mailbox")  # its live part shows the e-mail once it is sent
            expect(page.get_by_text("ada@example.com").first).to_be_visible(timeout=SLOW)
        page.goto("/shop/holdfast/tasks")
        page.get_by_role("link", name="shop.ship").first.click()
        expect(page.get_by_text("succeeded").first).to_be_visible()
        context.close()
    assert complaints == []


@pytest.mark.full
def test_its_tests_pass(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "holdfast.testing",
        "-p",
        "no:django",
        "-c",
        "/dev/null",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    ran = subprocess.run(
        [*command, "--rootdir", str(EXAMPLE), "-o", f"cache_dir={tmp_path}", str(EXAMPLE)],
        cwd=EXAMPLE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout
