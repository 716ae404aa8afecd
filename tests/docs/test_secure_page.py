"""What the page about a secure deployment says that a login cannot do is refused by the database."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from holdfast.shards.logins import Logins, Purpose
from support.database import Database
from support.documents import DOCS, rows, sections

OTHERS = "01900000-0000-7000-8000-000000000001"
"""The id of a task that another application has enqueued."""
STATEMENTS = {
    "run tasks": ["select queues.claim('w')", "select queues.finish('w', '[]')"],
    "enqueue": [
        "select queues.enqueue('shop.ship')",
        'select queues.enqueue_many(\'[{"type": "shop.ship"}]\')',
    ],
    "enqueue database functions": ["select queues.enqueue('shop.tidy', executor => 'db_function')"],
    "pause queues": ["select queues.pause('shop')", "select queues.resume('shop')"],
    "read tables": [
        "select from queues.task",
        "select from queues.ready",
        "select from comms.message_content",
    ],
    "change the schema": [
        "create table queues.mine ()",
        "drop function queues.clock()",
        "alter table queues.task add column mine text",
    ],
    "change anything": [
        "select queues.enqueue('shop.ship')",
        "select queues.claim('w')",
        f"select queues.cancel('{OTHERS}', 'why')",
        "select queues.pause('shop')",
        "select queues.sweep()",
        "delete from queues.task",
    ],
}


def _table() -> dict[str, list[str]]:
    found = rows(sections(DOCS / "howto" / "secure-a-deployment.md")["Logins"])
    return {login: cannot.split(", ") for login, _, cannot in found}


@pytest.fixture
def login(db: Database, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A login that was granted what `holdfast grant --as` grants."""
    name = f"secure_{request.param}"
    admin = db.connect()
    admin.execute(SQL("create role {} login").format(Identifier(name)))
    granting = Logins(db.dsn, {})
    granting.apply(granting.to_grant(name, [Purpose(request.param)]))
    with psycopg.connect(make_conninfo(db.dsn, user=name), autocommit=True) as connection:
        yield connection
    admin.execute(SQL("drop owned by {0}; drop role {0}").format(Identifier(name)))


@pytest.mark.parametrize("login", _table(), indirect=True)
def test_a_login_cannot_do_what_the_page_says(
    login: psycopg.Connection[Any], db: Database, request: pytest.FixtureRequest
) -> None:
    purpose = request.node.callspec.params["login"]
    [(other,)] = db.connect().execute("select queues.enqueue('shop.ship')").fetchall()
    for act in _table()[purpose]:
        if act == "read tasks of other applications":
            assert login.execute("select from queues.task_status").fetchall() == []
        elif act == "cancel tasks of other applications":
            _refuse(login, f"select queues.cancel('{other}', 'why')", "QF404")
        else:
            for statement in STATEMENTS[act]:
                _refuse(login, statement, "42501", "QF403")


def _refuse(login: psycopg.Connection[Any], statement: str, *states: str) -> None:
    with pytest.raises(psycopg.DatabaseError) as refused:
        login.execute(statement.encode())
    assert refused.value.sqlstate in states, f"{statement}: {refused.value}"
