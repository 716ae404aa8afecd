"""A real Chromium, one for all tests of a module, and a house with everything in it."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from holdfast.engine import Engine
from holdfast.model import Held, NewTask, Result
from holdfast.postgres import EmbeddedServer
from support.commands import fail
from support.database import cloned_database
from support.documents import ROOT
from support.hostile_strings import STRINGS
from support.web import Web, serving

CHROMIUM = "/usr/bin/chromium"
PICTURES = ROOT / "build" / "screenshots"
_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if shutil.which(CHROMIUM) is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is missing")
        pytest.skip("Chromium is missing: run tools/ensure-chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def web(server: EmbeddedServer, template: str) -> Iterator[Web]:
    with cloned_database(server, template) as database, serving(database) as running:
        yield running


@pytest.fixture(scope="module")
def task_id(web: Web) -> UUID:
    """A house in which something of everything has happened; answers a task that runs."""
    return furnish(web.engine)


def furnish(engine: Engine) -> UUID:
    engine.register_worker("worker-1", "host-a", pid=7, queues=["media", "billing"], concurrency=8)
    fail(engine, queue="billing", count=2)
    fail(engine, queue="billing", status="dead_letter")
    for n in range(6):
        engine.enqueue(NewTask("mail.welcome", {"to": f"{n}@example.com"}, idempotency_key=f"welcome-{n}"))
    engine.pause("mail", "the provider is down")
    engine.take_sample()
    for text in STRINGS[:40]:
        task = NewTask("hostile.one", {text: text}, idempotency_key=text[:100] or None)
        hostile = engine.enqueue(task)
        [claimed] = engine.claim("worker-1", queues=["hostile"])
        error = {"kind": text, "message": text, "traceback": text}
        engine.finish("worker-1", [Result(hostile, claimed.token, "failed", error=error)])
    running = engine.enqueue(NewTask("media.report", {"pages": 12}))
    [claimed] = engine.claim("worker-1", queues=["media"])
    progress = {"done": 3, "total": 12, "note": "drawing page 3"}
    engine.heartbeat("worker-1", [Held(running, claimed.token, engine.clock(), progress)])
    return running


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_page(browser: Browser, web: Web) -> Iterator[Callable[..., Page]]:
    """A page of somebody who has logged in. Whatever its console complains of fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(scheme: Any = "light", width: int = 1280, scopes: tuple[str, ...] = ("admin",)) -> Page:
        size: Any = {"width": width, "height": 900}
        context = browser.new_context(base_url=web.url, color_scheme=scheme, viewport=size)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.goto("/login")
        page.get_by_label("Access token").fill(web.token(*scopes))
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
