"""examples/login: log in with a mailed code."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from httpx import ASGITransport, AsyncClient

from support.database import Database
from support.engine import rows
from support.provider_server import Fault
from support.resend_server import API_KEY, ResendServer
from support.worker_thread import working

EXAMPLE = Path(__file__).parents[2] / "examples" / "login"


@pytest.fixture
def login(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example, imported again for this test's database."""
    monkeypatch.setenv("DATABASE_URL", db.dsn)
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "s" * 32)
    monkeypatch.setenv("HOLDFAST_WEB_URL", "http://127.0.0.1/holdfast")
    monkeypatch.syspath_prepend(EXAMPLE)
    yield import_module("login")
    sys.modules.pop("login").tasks.close()


@asynccontextmanager
async def visitor(login: Any) -> AsyncIterator[AsyncClient]:
    client = AsyncClient(transport=ASGITransport(login.web), base_url="http://127.0.0.1", timeout=60)
    async with login.lifespan(login.web), client:
        yield client


async def ask(client: AsyncClient, email: str = "ada@example.com") -> tuple[str, str]:
    """The login, and where to wait for its mail."""
    asked = await client.post("/logins", data={"email": email})
    assert asked.status_code == 200, asked.text
    return asked.json()["login"], asked.json()["wait"]


async def mailed(client: AsyncClient, wait: str) -> str:
    answer = await client.get(wait, params={**parse_qs(urlsplit(wait).query), "timeout": "60"})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["status"])


def mailed_code(db: Database) -> str:
    [mail] = rows(db.connect(), "select * from comms.mailbox")
    [code] = re.findall(r"\b\d{6}\b", mail["text_body"])
    assert mail["recipient"] == "ada@example.com"
    assert mail["subject"] == f"Your code is {code}"
    assert f"<strong>{code}</strong>" in mail["html_body"]
    return str(code)


def other(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06}"


async def test_somebody_logs_in_with_the_mailed_code(db: Database, login: Any) -> None:
    with working(login.tasks, db.dsn, worker_queues="comms"):
        async with visitor(login) as client:
            assert "Send me a code" in (await client.get("/")).text
            assert (await client.get("/me")).status_code == 401
            begun, wait = await ask(client)
            assert await mailed(client, wait) == "succeeded"
            code = mailed_code(db)
            wrong = await client.post(f"/logins/{begun}/code", data={"code": other(code)})
            assert (wrong.status_code, wrong.json()) == (403, {"detail": "that is not the code"})
            right = await client.post(f"/logins/{begun}/code", data={"code": f" {code} "})
            assert right.json() == {"email": "ada@example.com"}
            assert (await client.get("/me")).json() == "ada@example.com"
            again = await client.post(f"/logins/{begun}/code", data={"code": code})
            assert (again.status_code, again.json()) == (403, {"detail": "ask for a new code"})
    [stored] = rows(db.connect(), "select * from login")
    assert code not in str(stored)


@pytest.mark.full
async def test_a_provider_that_fails_at_first_is_asked_again(
    db: Database, login: Any, resend: ResendServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resend.faults.append(Fault(500))
    options = {"email_provider": "resend", "resend_api_key": API_KEY, "resend_url": resend.url}
    with working(
        login.tasks, db.dsn, worker_queues="comms", email_sender="Shop <shop@example.com>", **options
    ):
        async with visitor(login) as client:
            _, wait = await ask(client)
            assert await mailed(client, wait) == "succeeded"
    assert [one.email["to"] for one in resend.delivered] == [["ada@example.com"]]
    assert len(resend.requests) == 2


async def test_a_mail_that_nobody_takes_is_told(db: Database, login: Any, resend: ResendServer) -> None:
    options = {"email_provider": "resend", "resend_api_key": API_KEY, "resend_url": resend.url}
    with working(
        login.tasks, db.dsn, worker_queues="comms", email_sender="shop@elsewhere.example", **options
    ):
        async with visitor(login) as client:
            _, wait = await ask(client)
            assert await mailed(client, wait) == "failed"
    assert resend.delivered == []


async def test_what_is_no_address_begins_no_login(db: Database, login: Any) -> None:
    async with visitor(login) as client:
        for email in ("nobody", "ada@example.com\r\nBcc: eve@example.com", "a@example.com, b@example.com"):
            refused = await client.post("/logins", data={"email": email})
            assert refused.status_code == 422
    connection = db.connect()
    assert rows(connection, "select from login") == rows(connection, "select from comms.message") == []


async def test_a_login_that_fails_sends_no_mail(
    db: Database, login: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visitor(login) as client:
        monkeypatch.setattr(login, "Login", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await client.post("/logins", data={"email": "ada@example.com"})
    assert rows(db.connect(), "select from comms.send_email_task") == []


async def test_a_code_is_good_for_a_few_guesses(db: Database, login: Any) -> None:
    async with visitor(login) as client:
        begun, _ = await ask(client)
        [mail] = rows(db.connect(), "select text_body from comms.email_message")
        [code] = re.findall(r"\b\d{6}\b", mail["text_body"])
        answers = [
            (await client.post(f"/logins/{begun}/code", data={"code": given})).json()
            for given in [other(code)] * login.MAX_GUESSES + [code]
        ]
    assert [answer["detail"] for answer in answers] == [
        *(["that is not the code"] * login.MAX_GUESSES),
        "ask for a new code",
    ]


@pytest.mark.full
async def test_a_code_is_good_for_some_minutes(db: Database, login: Any) -> None:
    async with visitor(login) as client:
        begun, _ = await ask(client)
        connection = db.connect()
        connection.execute("update login set created_at = created_at - interval '11 minutes'")
        [mail] = rows(connection, "select text_body from comms.email_message")
        [code] = re.findall(r"\b\d{6}\b", mail["text_body"])
        late = await client.post(f"/logins/{begun}/code", data={"code": code})
    assert late.json() == {"detail": "ask for a new code"}


async def test_more_logins_than_slots_each_hear_of_their_mail(db: Database, login: Any) -> None:
    async with visitor(login) as client:
        waits = [(await ask(client, f"user{n}@example.com"))[1] for n in range(25)]
        hearing = [asyncio.create_task(mailed(client, wait)) for wait in waits]
        with working(login.tasks, db.dsn, worker_queues="comms", worker_concurrency=2):
            assert await asyncio.gather(*hearing) == ["succeeded"] * 25
