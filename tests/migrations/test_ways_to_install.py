"""Each way to install, and then everything with real processes and one login."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg.conninfo import make_conninfo

from support.command import HOLDFAST, Command, holdfast
from support.database import Database
from support.mail_server import MailServer, running

APPLICATION = """
from datetime import timedelta

from holdfast import App, Context, messages

app = App(name="shop")


async def reserve(order: int) -> str:
    return f"reserved {order}"


@app.task("shop.order")
async def order(ctx: Context, order: int) -> str:
    found = await ctx.step(reserve, order)
    said = await ctx.wait("decision", str, timeout=timedelta(minutes=5))
    await app.aemit("order.decided", {"order": order}, f"order-{order}")
    await messages.asend_email(to="ada@example.com", subject="Your order", text=said, app=app)
    return f"{found}, {said}"


@app.schedule(every=timedelta(seconds=1))
@app.task("shop.tick")
def tick() -> None: ...
"""

LOGIN = "App-Owner"


def until(look: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


class Shop:
    """One login in its database, with the commands and processes that it runs."""

    def __init__(self, url: str, directory: Path, mail: MailServer) -> None:
        self.directory = directory
        self.variables = {
            "DATABASE_URL": url,
            "HOLDFAST_EMAIL_PROVIDER": "smtp",
            "HOLDFAST_SMTP_HOST": "127.0.0.1",
            "HOLDFAST_SMTP_PORT": str(mail.port),
            "HOLDFAST_SMTP_SECURITY": "none",
            "HOLDFAST_EMAIL_SENDER": "shop@example.com",
            "HOLDFAST_OUTBOX_DIRECTORY": str(directory / "outbox"),
            "HOLDFAST_WEB_SECRET": "5" * 64,
        }

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [HOLDFAST, *arguments],
            cwd=self.directory,
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def start(self, *arguments: str) -> Any:
        return holdfast(*arguments, cwd=self.directory, **self.variables)


@contextmanager
def served(shop: Shop) -> Iterator[httpx.Client]:
    with shop.start("serve", "--port", "0") as server:
        address = _address(server)
        with httpx.Client(base_url=address, timeout=40) as client:
            yield client


def _address(server: Command) -> str:
    assert server.process.stderr
    for text in server.process.stderr:
        server.read.append(text)
        if found := re.search(r"Serving on (\S+)", text):
            return found[1]
    raise AssertionError("".join(server.read))


def everything_works(shop: Shop, mail: MailServer) -> None:
    """A workflow with steps and a wait, a schedule, a mail, an event, the dashboard, the API and waiting."""
    (shop.directory / "shop.py").write_text(APPLICATION)
    shop.run("events", "subscribe", "audit", "--sink", "file", "--to", "audit.jsonl", "--event", "order.*")
    token = shop.run("tokens", "create", "tester", "--scope", "admin").split()[-1]
    with ExitStack() as stack:
        stack.enter_context(shop.start("worker", "shop:app")).logged("worker_started")
        stack.enter_context(shop.start("dispatch")).logged("dispatcher_started")
        client = stack.enter_context(served(shop))
        client.headers["Authorization"] = f"Bearer {token}"

        sent = client.post("/v1/tasks", json={"type": "shop.order", "payload": {"order": 7}})
        assert sent.status_code == 201, sent.text
        task_id = sent.json()["task_id"]
        shop.run("runs", "signal", task_id, "decision", '"yes"')
        waited = client.get(f"/v1/tasks/{task_id}/wait", params={"timeout": 30})
        assert (waited.status_code, waited.json()["status"]) == (200, "succeeded"), waited.text
        until(lambda: mail.delivered)
        assert mail.delivered[0]["subject"] == "Your order"
        delivered = until(lambda: list((shop.directory / "outbox").rglob("audit.jsonl*")))
        assert until(delivered[0].read_text).count("order.decided") == 1
        succeeded = {"type": "shop.tick", "status": "succeeded"}
        until(lambda: client.get("/v1/tasks", params=succeeded).json()["tasks"])

        assert client.get("/readyz").status_code == 200
        assert not [
            line for line in client.get("/v1/health").json()["lines"] if line["check_name"] == "missing_grant"
        ]
        login = client.post(
            "/login", data={"token": token}, headers={"Origin": str(client.base_url).rstrip("/")}
        )
        assert login.status_code in {200, 303}, login.text
        for page in ("/", "/tasks", f"/tasks/{task_id}", "/workers", "/schedules", "/health", "/processes"):
            assert client.get(page).status_code == 200, page
        assert client.post(f"/v1/tasks/{task_id}/cancel", json={"reason": "late"}).status_code == 412


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with running(MailServer()) as server:
        yield server


@pytest.fixture
def owned(blank: Database) -> Database:
    """A database whose owner may log in and nothing else. A neighbour may connect to it, too."""
    dba = blank.connect()
    dba.execute(f'create role "{LOGIN}" login')
    dba.execute("create role neighbour login")
    dba.execute(f'alter database {blank.name} owner to "{LOGIN}"')
    return blank


@pytest.mark.full
def test_a_database_owner_who_cannot_create_roles_runs_everything_as_a_single_login(
    owned: Database, tmp_path: Path, mail: MailServer
) -> None:
    shop = Shop(make_conninfo(owned.dsn, user=LOGIN), tmp_path, mail)
    refusal = shop.run("migrate", code=3)
    assert "create role holdfast_owner nologin;" in refusal
    assert "holdfast migrate --single-login" in refusal
    assert "for a single login" in shop.run("migrate", "--single-login")
    everything_works(shop, mail)
    assert "nothing to do" in shop.run("migrate")


@pytest.mark.full
def test_after_a_dba_has_run_exactly_what_migrate_prints_everything_works(
    owned: Database, tmp_path: Path, mail: MailServer
) -> None:
    shop = Shop(make_conninfo(owned.dsn, user=LOGIN), tmp_path, mail)
    refusal = shop.run("migrate", code=3)
    owned.connect().execute("".join(re.findall(r"^ +(\w.*;)$", refusal, re.MULTILINE)).encode())
    assert "installed version" in shop.run("migrate")
    everything_works(shop, mail)


@pytest.mark.full
def test_a_login_that_creates_roles_migrates_and_runs_everything(
    owned: Database, tmp_path: Path, mail: MailServer
) -> None:
    owned.connect().execute(f'alter role "{LOGIN}" createrole')
    shop = Shop(make_conninfo(owned.dsn, user=LOGIN), tmp_path, mail)
    assert "installed version" in shop.run("migrate")
    everything_works(shop, mail)


@pytest.mark.full
def test_a_login_that_was_granted_all_runs_everything_after_a_superuser_has_migrated(
    owned: Database, tmp_path: Path, mail: MailServer
) -> None:
    admin = Shop(owned.dsn, tmp_path, mail)
    admin.run("migrate")
    assert "holdfast_operator" in admin.run("grant", "neighbour", "--as", "all")
    everything_works(Shop(make_conninfo(owned.dsn, user="neighbour"), tmp_path, mail), mail)
