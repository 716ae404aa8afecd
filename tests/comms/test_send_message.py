"""comms.send_email and send_sms: in the application's transaction, checked before anything is written."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import App, messages
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from support.database import Database
from support.django_project import django_connection
from support.engine import rows

WELCOME: Any = {"to": "ada@example.com", "subject": "Welcome", "text": "Hello"}


@pytest.fixture
def app(db: Database) -> Iterator[App]:
    app = App(db.dsn)
    yield app
    app.close()


def emails(db: Database) -> list[dict[str, Any]]:
    return rows(db.connect(), "select * from comms.email_message order by message_id")


def sends(db: Database) -> list[tuple[int, str]]:
    found = rows(db.connect(), "select send_email_task_id, status from comms.send_email_status order by 1")
    return [(row["send_email_task_id"], row["status"]) for row in found]


def test_a_send_exists_if_the_transaction_is_committed(db: Database) -> None:
    connection = db.connect(autocommit=False)
    messages.send_email(**WELCOME, tx=connection)
    connection.rollback()
    assert sends(db) == []
    sending = messages.send_email(**WELCOME, tx=connection)
    assert sends(db) == []
    connection.commit()
    assert sends(db) == [(sending.send_id, "scheduled")]
    supervisors = rows(db.connect(), "select payload ->> 'send_email_task_id' as id from queues.task_status")
    assert supervisors == [{"id": str(sending.send_id)}]


def sqlalchemy_url(db: Database, driver: str) -> sqlalchemy.URL:
    parts = conninfo_to_dict(db.dsn)
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        username=str(parts["user"]),
        database=str(parts["dbname"]),
        query={"host": str(parts["host"]), "port": str(parts["port"])},
    )


def test_a_session_of_sqlalchemy_is_a_transaction(db: Database) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(db, "psycopg"))
    with Session(engine) as session, session.begin():
        messages.send_email(**WELCOME, scheduled_at=datetime(2050, 1, 1, tzinfo=UTC), tx=session)
    engine.dispose()
    assert len(sends(db)) == 1


def test_a_connection_of_django_is_a_transaction(db: Database) -> None:
    with django_connection(db.dsn) as connection:
        messages.send_sms(to="+4915112345678", text="100 %s", tx=connection)
    assert rows(db.connect(), "select recipient, text_body from comms.sms_message") == [
        {"recipient": "+4915112345678", "text_body": "100 %s"}
    ]


@pytest.fixture(params=["psycopg", "asyncpg", "sqlalchemy"])
async def async_tx(request: pytest.FixtureRequest, db: Database) -> AsyncIterator[Any]:
    if request.param == "psycopg":
        async with await psycopg.AsyncConnection.connect(db.dsn) as connection:
            yield connection
    elif request.param == "asyncpg":
        parts = conninfo_to_dict(db.dsn)
        asyncpg_connection = await asyncpg.connect(
            user=parts["user"], database=parts["dbname"], host=parts["host"], port=int(str(parts["port"]))
        )
        yield asyncpg_connection
        await asyncpg_connection.close()
    else:
        engine = create_async_engine(sqlalchemy_url(db, "psycopg"))
        async with AsyncSession(engine) as session, session.begin():
            yield session
        await engine.dispose()


async def test_asynchronous_transactions_are_taken(async_tx: Any) -> None:
    first = await messages.asend_email(**WELCOME, tx=async_tx)
    second = await messages.asend_email(**WELCOME, max_attempts=5, tx=async_tx)
    text = await messages.asend_sms(to="+4915112345678", text="Hello", tx=async_tx)
    assert second.send_id > first.send_id
    assert text.channel == "sms"


def test_a_synchronous_call_refuses_what_is_asynchronous(db: Database) -> None:
    async def call() -> None:
        async with await psycopg.AsyncConnection.connect(db.dsn) as connection:
            with pytest.raises(InvalidArgument, match="await asend_email instead of calling send_email"):
                messages.send_email(**WELCOME, tx=connection)

    asyncio.run(call())


def test_without_a_transaction_it_is_written_at_once(db: Database, app: App) -> None:
    sending = messages.send_email(**WELCOME, app=app)
    assert sends(db) == [(sending.send_id, "scheduled")]
    assert sending.status().status == "scheduled"
    assert messages.find_email(sending.send_id, app=app).status().recipient == "ada@example.com"


async def test_without_a_transaction_it_is_written_at_once_also_asynchronously(
    db: Database, app: App
) -> None:
    sending = await messages.asend_sms(to="+4915112345678", text="Hello", app=app)
    assert (await sending.astatus()).attempts == 0
    assert (await messages.find_sms(sending.send_id, app=app).astatus()).send_id == sending.send_id


def test_neither_transaction_nor_app_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="pass tx=… or app=…"):
        messages.send_email(**WELCOME)


def test_the_message_is_stored_as_it_will_be_sent(db: Database, app: App) -> None:
    messages.send_email(
        to="ada@example.com",
        template=messages.Template("Code for {{ name }}", "{{ code }}", "<b>{{ code }}</b> {{ name }}"),
        values={"name": "<Ada>", "code": 7},
        sender="Shop, Inc <shop@example.com>".replace(",", ""),
        reply_to='"Help, please" <help@example.com>',
        headers={"X-Order": "7"},
        app=app,
    )
    [stored] = emails(db)
    assert (stored["subject"], stored["text_body"], stored["html_body"]) == (
        "Code for <Ada>",
        "7",
        "<b>7</b> &lt;Ada&gt;",
    )
    assert (stored["sender"], stored["reply_to"], stored["headers"]) == (
        "Shop Inc <shop@example.com>",
        '"Help, please" <help@example.com>',
        {"X-Order": "7"},
    )


def test_a_template_is_found_where_the_settings_say(
    db: Database, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mails").mkdir()
    (tmp_path / "mails" / "welcome.subject.txt").write_text("Welcome, {{ name }}\n")
    (tmp_path / "mails" / "welcome.txt").write_text("Hello")
    monkeypatch.setenv("HOLDFAST_TEMPLATES", "mails")
    messages.send_email(to="ada@example.com", template="welcome", values={"name": "Ada"}, app=app)
    messages.send_email(
        to="ada@example.com", template="welcome", values={"name": "Ada"}, subject="Own", tx=db.connect()
    )
    assert [row["subject"] for row in emails(db)] == ["Welcome, Ada", "Own"]


def test_a_value_cannot_break_out_of_the_subject(db: Database, app: App) -> None:
    template = messages.Template("Hello {{ name }}", "Hi")
    with pytest.raises(InvalidArgument, match="subject"):
        messages.send_email(
            to="ada@example.com", template=template, values={"name": "Ada\r\nBcc: eve@example.com"}, app=app
        )


@pytest.mark.parametrize(
    "given",
    [
        {"to": "ada@example.com, eve@example.com"},
        {"to": "nobody"},
        {"subject": None},
        {"subject": "a\nb"},
        {"text": None},
        {"text": "a\0b"},
        {"sender": "a@example.com\nBcc: eve@example.com"},
        {"reply_to": "nobody"},
        {"headers": {"Bcc": "eve@example.com"}},
        {"values": {"a": 1}},
        {"template": "nowhere"},
        {"max_attempts": 0},
        {"max_attempts": 1000},
        {"when_unknown": "panic"},
        {"scheduled_at": datetime(2050, 1, 1)},  # noqa: DTZ001 - that is what is refused
    ],
)
def test_what_cannot_be_sent_is_refused_and_nothing_is_written(db: Database, app: App, given: Any) -> None:
    with pytest.raises(HoldfastError):
        messages.send_email(**{**WELCOME, **given}, app=app)
    assert (emails(db), sends(db)) == ([], [])


@pytest.mark.parametrize(
    "given", [{"to": "015112345678"}, {"text": None}, {"text": "x" * 1601}, {"sender": "Sh\nop"}]
)
def test_a_text_that_cannot_be_sent_is_refused(db: Database, app: App, given: Any) -> None:
    with pytest.raises(InvalidArgument):
        messages.send_sms(**{"to": "+4915112345678", "text": "Hello", **given}, app=app)
    assert rows(db.connect(), "select from comms.message") == []


def test_a_client_sends_and_sees_its_own(db: Database) -> None:
    client = App(db.dsn_as("holdfast_client"))
    sending = messages.send_email(**WELCOME, app=client)
    other = messages.send_email(**WELCOME, tx=db.connect())
    assert sending.status().status == "scheduled"
    with pytest.raises(NotFound, match="commit the transaction first"):
        messages.find_email(other.send_id, app=client).status()
    client.close()


def test_a_sending_without_an_app_says_what_it_needs(db: Database) -> None:
    sending = messages.send_email(**WELCOME, tx=db.connect())
    with pytest.raises(InvalidArgument, match="Pass app=…"):
        sending.status()


def test_waiting_ends_after_the_time_given(app: App) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(TimeoutError):
        messages.send_email(**WELCOME, scheduled_at=soon, app=app).wait_end(timeout=0.2)


def test_every_name_can_be_imported() -> None:
    for name in messages.__all__:
        assert getattr(messages, name)
