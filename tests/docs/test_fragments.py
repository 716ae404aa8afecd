"""Parts of programs on pages run as printed, in a scene with the names that they use, on a real database."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs import test_projects, test_walkthroughs
from holdfast import App
from support.database import Database
from support.documents import DOCS, ROOT, code, name_of, pages

BASE = """
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
import psycopg
from holdfast import App, Context
app = App()
"""
SHOP = """
@app.task("shop.ship")
def ship(order_id: int = 0, tenant: int = 0, order: int = 0) -> str: ...
order = SimpleNamespace(id=7)
"""
ORDERS = """
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
class Base(DeclarativeBase):
    pass
class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
engine = create_engine(app.database_url.replace("postgresql:", "postgresql+psycopg:", 1))
Base.metadata.create_all(engine)
"""
SCENES = {
    "README.md": "",
    "explanation/exactly-once.md": "",
    "explanation/workflows.md": "",
    "howto/batch-handlers.md": "",
    "howto/change-workflow-code.md": "class Receipt: pass",
    "howto/fan-out.md": """
images, home, day = [1, 2], "https://example.com", "2026-11-17"
@app.task("album.announce")
def announce(album: int) -> None: ...
@app.task("day.extract")
def extract(day: str) -> None: ...
@app.task("day.load")
def load(day: str) -> None: ...
@app.task("day.first_report")
def report(day: str) -> None: ...
""",
    "howto/isolate-tasks.md": "",
    "howto/limit-what-runs.md": """
@app.task("reports.render.v1")
def render(report_id: int) -> None: ...
""",
    "howto/migrate-from-celery.md": f"{SHOP}\ntransaction = SimpleNamespace(on_commit=list)\n"
    "transaction.on_commit = lambda call: None\nconnection = psycopg.connect(app.database_url)\n",
    "howto/migrate-from-procrastinate.md": """
@app.task("shop.charge")
def charge(order_id: int) -> None: ...
with psycopg.connect(app.database_url) as prepared:
    prepared.execute("create table orders (id integer)")
""",
    "howto/replay-runs.md": "",
    "howto/scale-out.md": f"{SHOP}\ntenant, order = 1, 7\n",
    "howto/send-email-and-sms.md": """
from pathlib import Path
from holdfast import messages
Path("templates").mkdir()
Path("templates/login_code.subject.txt").write_text("Your code")
Path("templates/login_code.txt").write_text("Your code is {{ code }}")
address, code, tx = "ada@example.com", "123456", None
""",
    "howto/send-events.md": f"""{SHOP}{ORDERS}
from holdfast.events import ReceivedEvent, receive
session = Session(engine)
connection = psycopg.connect(app.database_url, autocommit=True)
def place_order(session: Session, item: str) -> Order:
    made = Order(item=item)
    session.add(made)
    session.flush()
    return made
request, body, SECRET = SimpleNamespace(headers={{}}), b"", ""
def verify(headers: Any, body: bytes, secret: str) -> ReceivedEvent:
    return ReceivedEvent("e-7", "/shop", "order.paid", None, None, dict(order=7), dict())
""",
    "howto/unique-and-debounced-tasks.md": """
changed = [1, 2]
@app.task("billing.sync")
def sync(account: int) -> None: ...
""",
    "howto/use-fastapi.md": f"""{SHOP}{ORDERS}
from typing import Annotated
from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from holdfast.contrib.fastapi import InTransaction, in_transaction
async def open_session() -> Any: ...
""",
    "howto/use-ray.md": "",
    "howto/use-schedules.md": "",
    "howto/use-sqlalchemy.md": f"{SHOP}{ORDERS}",
    "howto/wait-in-a-browser.md": """
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from holdfast import messages
from holdfast.server import create_app
web, tasks, Transaction = FastAPI(), app, Any
@app.task("reports.make")
async def make_report(year: int) -> None: ...
""",
    "reference/python.md": """
session, invoices, images = None, [(9, Decimal(1))], [1, 2]
class Decision:
    by: str
@app.task("billing.charge")
def charge(invoice_id: int, amount: Decimal) -> None: ...
@app.task("album.resize")
def resize(image: int) -> None: ...
@app.task("album.publish")
def publish(album: int) -> None: ...
""",
    "reference/sinks.md": "",
}
# Each of these has a test of its own, which runs its files.
ELSEWHERE = {
    DOCS / "howto" / "add-an-executor.md",
    DOCS / "howto" / "develop.md",
    DOCS / "howto" / "send-email-and-sms.md",
    DOCS / "howto" / "trace-tasks.md",
    DOCS / "howto" / "use-flask-or-litestar.md",
    DOCS / "tutorial" / "order-payment-shipment.md",
    *test_projects.PAGES,
    *test_projects.OTHERS,
}


@pytest.mark.parametrize("page", SCENES)
def test_the_python_of_a_page_runs(
    page: str, db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", db.dsn)
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "0" * 64)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(BASE + SCENES[page], "scene", "exec"), names)  # noqa: S102 - written above
    blocks = [
        block for block in code((DOCS / page).read_text(), "python") if not _is_run_elsewhere(page, block)
    ]
    opened = [names["app"]]
    try:
        for block in blocks:
            exec(compile(block, page, "exec", dont_inherit=True), names)  # noqa: S102 - our own page
            opened += [value for value in names.values() if isinstance(value, App)]
    finally:
        for app in opened:
            app.close()
        for name in ("session", "connection"):
            if names.get(name) is not None:
                names[name].close()
        if "engine" in names:
            names["engine"].dispose()
    assert blocks


def _is_run_elsewhere(page: str, block: str) -> bool:
    return DOCS / page in ELSEWHERE and bool(re.match(r"# [\w/.-]+\.py\n", block))


def test_every_page_with_python_is_run() -> None:
    walked = [page for param in test_walkthroughs.PAGES for page in getattr(param, "values", [param])]
    known = {*walked, *ELSEWHERE, *(DOCS / page for page in SCENES)}
    assert [name_of(page) for page in pages() if code(page.read_text(), "python") and page not in known] == []


def test_the_module_that_sets_up_tracing_can_be_imported() -> None:
    """In a process of its own: a tracer provider is set once."""
    [module] = code((DOCS / "howto" / "trace-tasks.md").read_text(), "python")
    subprocess.run([sys.executable, "-c", f"{module}\nassert app.tasks == {{}}"], check=True, timeout=60)


def test_the_programs_for_flask_and_litestar_are_the_examples() -> None:
    for block in code((DOCS / "howto" / "use-flask-or-litestar.md").read_text(), "python"):
        name, _, program = block.partition("\n")
        assert program in (ROOT / "examples" / name.removeprefix("# ")).read_text(), name
