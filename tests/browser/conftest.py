"""Chromium, one per module, and a database with something on every page."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect, sync_playwright

from holdfast._engine import (
    Engine,
    activity,
    enqueue,
    events,
    health,
    leases,
    messages,
    queues,
    schedules,
    workers,
)
from holdfast._engine.enqueue import NewTask
from holdfast._engine.events import Settlement
from holdfast._engine.schedules import NewSchedule
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.processes.scaffold import scaffold
from support.commands import fail
from support.comms import CHANNELS, run
from support.database import Database, cloned_database
from support.documents import ROOT
from support.engine import value
from support.leases import ended, holding
from support.web import Web, serving

FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"
CHROMIUM = "/usr/bin/chromium"
PICTURES = ROOT / "build" / "screenshots"
PATIENCE_MILLISECONDS = 40_000
"""What a page may take to show what is expected of it: five seconds are too few on a busy machine."""
_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


expect.set_options(timeout=PATIENCE_MILLISECONDS)


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


@pytest.fixture(scope="session")
def axe() -> str:
    found = sorted((ROOT / "build" / "axe").glob("*.js"))
    if not found:
        if os.environ.get("CI") == "true":
            pytest.fail("axe-core is missing")
        pytest.skip("axe-core is missing: run tools/ensure-axe")
    return found[-1].read_text()


@pytest.fixture(scope="module")
def web(server: EmbeddedServer, template: str) -> Iterator[Web]:
    with cloned_database(server, template) as database, serving(database) as running:
        yield running


@pytest.fixture(scope="module")
def task_id(web: Web) -> UUID:
    """Fills every page of the dashboard; returns a running task."""
    return furnish(web.engine, web.database)


def furnish(engine: Engine, database: Database) -> UUID:
    engine.run(
        workers.register_worker("worker-1", "host-a", pid=7, queues=["media", "billing"], concurrency=8)
    )
    engine.run(workers.lead("worker-1", timedelta(hours=1)))
    engine.run(workers.register_worker("worker-2", "host-b", pid=9, queues=["mail"], concurrency=2))
    fail(engine, queue="billing", count=2)
    fail(engine, queue="billing", status="dead_letter")
    for n in range(6):
        engine.run(
            enqueue.enqueue(
                NewTask("mail.welcome", {"to": f"{n}@example.com"}, idempotency_key=f"welcome-{n}")
            )
        )
    engine.run(queues.pause("mail", "the provider is down"))
    engine.run(activity.take_sample())
    task = NewTask("reports.weekly", {"of": "last week"})
    engine.run(
        schedules.add_schedule(
            NewSchedule(name="weekly-report", task=task, cron="0 9 * * mon-fri", tz="Europe/Berlin")
        )
    )
    _mail(engine, database)
    _process(database)
    _tell_others(engine)
    return _run(engine)


def _mail(engine: Engine, database: Database) -> None:
    """An e-mail that failed once and then succeeded, and a text message that waits."""
    connection = database.connect()
    email, sms = CHANNELS
    send = email.kick_off(connection, scheduled_at=engine.run(health.clock()))
    email.supervise(connection, send)
    email.fail(connection, send, attempt=1)
    email.supervise(connection, send)
    email.succeed(connection, send, attempt=2)
    sms.kick_off(connection)
    engine.run(
        messages.keep_message(
            "email",
            "ada@example.org",
            "m-1",
            sender="Shop <shop@example.org>",
            subject="Your code",
            text_body="Your code is 123456",
            html_body="<p>Your code is <b>123456</b></p>",
        )
    )


def _process(database: Database) -> None:
    """A process with one instance, whose first attempt is outstanding."""
    connection = database.connect()
    with tempfile.TemporaryDirectory() as directory:
        scaffold("parcels", Path(directory) / "parcels").create(connection)
    process_id = value(connection, """select parcels.kickoff_parcels_task('{"order": 7}')""")
    run(connection, "parcels.parcels_supervisor", {"parcels_task_id": process_id})


def _tell_others(engine: Engine) -> None:
    """A delivered event and an undeliverable one."""
    subscription_id = engine.run(events.subscribe("shop", "console", "-", ["order.*"]))
    for number, status in ((1, "delivered"), (2, "rejected")):
        engine.run(events.emit("order.created", {"order": number}, f"order-{number}"))
        [claimed] = engine.run(events.claim_events("d1", subscription_id))
        how: Any = status
        told = Settlement(subscription_id, claimed.event_id, claimed.token, how, "410 Gone")
        engine.run(events.settle_events("d1", [told]))


def _run(engine: Engine) -> UUID:
    running = engine.run(enqueue.enqueue(NewTask("media.report", {"pages": 12}, max_attempts=5)))
    [claimed] = engine.run(leases.claim("worker-1", queues=["media"]))
    error = {"kind": "ConnectionError", "message": "no answer", "traceback": "Traceback:\n  line 1\n  line 2"}
    again = ended(running, claimed.token, "retry", error=error, run_at=engine.run(health.clock()))
    engine.run(leases.finish("worker-1", [again]))
    [claimed] = engine.run(leases.claim("worker-1", queues=["media"]))
    progress = {"done": 3, "total": 12, "note": "drawing page 3"}
    engine.run(
        leases.heartbeat("worker-1", [holding(running, claimed.token, engine.run(health.clock()), progress)])
    )
    return running


@pytest.fixture(params=["light", "dark"] if FULL else ["dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def sessions(browser: Browser, web: Web) -> Callable[..., Any]:
    """The cookies of logged-in sessions, by scopes."""
    known: dict[tuple[str, ...], Any] = {}

    def session(*scopes: str) -> Any:
        if scopes not in known:
            context = browser.new_context(base_url=web.url)
            page = context.new_page()
            page.goto("/login")
            page.get_by_label("Access token").fill(web.token(*scopes))
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url("**/")
            known[scopes] = context.storage_state()
            context.close()
        return known[scopes]

    return session


@pytest.fixture
def open_page(browser: Browser, web: Web, sessions: Callable[..., Any]) -> Iterator[Callable[..., Page]]:
    """A page with a logged-in session. Console errors and dialogs fail the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def refuse(dialog: Dialog) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    def opened(scheme: Any = "light", width: int = 1280, scopes: tuple[str, ...] = ("admin",)) -> Page:
        context = browser.new_context(
            base_url=web.url,
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
            storage_state=sessions(*scopes),
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on("dialog", refuse)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
