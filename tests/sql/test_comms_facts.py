"""Facts are added, never changed; each logical event happens at most once."""

import re

import psycopg
import pytest

from support.comms import CHANNELS, Channel, run
from support.database import Database
from support.engine import Connection, refused, rows, value

FACTS = ["", "_scheduled", "_failed", "_succeeded", "_reported", "_supervised"]
TABLES = ["message", "message_erased", *(f"send_task{fact}" for fact in FACTS)]
CHANGES = ["update comms.{0} set {1} = {1}", "delete from comms.{0}", "truncate comms.{0} cascade"]


def _change(tx: Connection, change: str, table: str) -> None:
    column = value(
        tx,
        """select attname from pg_attribute
           where attrelid = %s::regclass and attnum > 0 and attidentity = '' order by attnum limit 1""",
        [f"comms.{table}"],
    )
    tx.execute(change.format(table, column).encode())


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.split()[0])
def test_no_row_can_be_changed_even_by_the_owner(tx: Connection, table: str, change: str) -> None:
    tx.execute("set local role holdfast_owner")

    with refused(tx, "QF412", f"{change.split(maxsplit=1)[0]} is refused"):
        _change(tx, change, table)


@pytest.mark.parametrize("table", TABLES)
def test_no_row_can_be_changed_while_triggers_are_off(tx: Connection, table: str) -> None:
    tx.execute("set local session_replication_role = replica")

    with refused(tx, "QF412", "append-only"):
        _change(tx, CHANGES[1], table)
    tx.execute("set local session_replication_role = origin")


@pytest.mark.parametrize("change", [CHANGES[0], CHANGES[2]], ids=lambda change: change.split()[0])
def test_the_content_of_a_message_cannot_be_changed(tx: Connection, change: str) -> None:
    tx.execute("set local session_replication_role = replica")

    with refused(tx, "QF412", f"{change.split(maxsplit=1)[0]} is refused"):
        _change(tx, change, "message_content")
    tx.execute("set local session_replication_role = origin")


def test_the_content_of_a_message_goes_only_with_the_fact_of_its_erasure(
    tx: Connection, channel: Channel
) -> None:
    message_id = channel.create(tx)
    tx.execute("set local role holdfast_owner")

    with refused(tx, "QF412", "delete is refused"):
        tx.execute("delete from comms.message_content where message_id = %s", [message_id])


def test_a_function_of_the_owner_is_stopped_too(tx: Connection) -> None:
    tx.execute("set local role holdfast_owner")
    tx.execute(
        """create function comms.tidy() returns void language sql security definer
           set search_path = pg_catalog, pg_temp as $$ delete from comms.send_task_failed $$"""
    )
    tx.execute("reset role")

    with refused(tx, "QF412", "comms.send_task_failed is append-only"):
        tx.execute("select comms.tidy()")


def test_every_table_of_a_process_is_covered(tx: Connection) -> None:
    covered = rows(
        tx,
        """select c.relname::text as name from pg_trigger t join pg_class c on c.oid = t.tgrelid
           where t.tgname = 'append_only' and t.tgenabled = 'A'
             and c.relnamespace = 'comms'::regnamespace""",
    )

    assert {row["name"] for row in covered} == set(TABLES)


def _insert(tx: Connection, table: str, **columns: object) -> None:
    names, places = ", ".join(columns), ", ".join(["%s"] * len(columns))
    tx.execute(f"insert into comms.{table} ({names}) values ({places})".encode(), list(columns.values()))


def test_an_attempt_is_scheduled_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    (first,) = rows(tx, "select * from comms.send_task_scheduled where send_task_id = %s", [send])
    twin = {**first, "task_id": "00000000-0000-7000-8000-000000000000"}

    with pytest.raises(psycopg.errors.UniqueViolation), tx.transaction():
        _insert(tx, "send_task_scheduled", **twin)


def test_an_attempt_fails_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send, 1, kind="first")

    assert channel.fail(tx, send, 1, kind="second") == {"success": True}
    assert [row["kind"] for row in channel.facts(tx, "failed", send)] == ["first"]


def test_a_send_succeeds_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)

    assert channel.succeed(tx, send, 1) == {"success": True}
    assert channel.succeed(tx, send, 1) == {"success": True}
    assert channel.counts(tx, send)["succeeded"] == 1


def test_a_send_ends_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.succeed(tx, send)
    assert channel.supervise(tx, send)["decision"] == "succeeded"
    (*_, last) = rows(tx, "select * from comms.send_task_supervised where send_task_id = %s", [send])

    with pytest.raises(psycopg.errors.UniqueViolation, match=r"one_end_per_"), tx.transaction():
        _insert(tx, "send_task_supervised", **{**last, "run": 99, "decision": "failed"})


def test_a_success_cannot_be_recorded_for_an_attempt_that_failed(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send, 1)

    assert "is recorded as failed" in channel.succeed(tx, send, 1)["validation_failure_message"]
    assert channel.counts(tx, send)["succeeded"] == 0


def test_a_failure_cannot_be_recorded_for_an_attempt_that_succeeded(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.succeed(tx, send, 1)

    assert "is recorded as succeeded" in channel.fail(tx, send, 1)["validation_failure_message"]
    assert channel.counts(tx, send)["failed"] == 0


@pytest.mark.parametrize("attempt", [0, 2, -1, "x", 10**12])
def test_nothing_is_recorded_of_an_attempt_that_was_never_scheduled(
    tx: Connection, channel: Channel, attempt: int
) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)

    for told in (channel.succeed(tx, send, attempt), channel.fail(tx, send, attempt)):
        assert told["success"] is False
        assert f"there is no attempt {attempt} of" in told["validation_failure_message"]


def test_a_handler_without_an_attempt_means_the_last_one(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)

    channel.fail(tx, send)

    assert [row["attempt"] for row in channel.facts(tx, "failed", send)] == [1]


def test_the_facts_are_told_by_functions(tx: Connection, channel: Channel) -> None:
    send, other = channel.kick_off(tx, max_attempts=3), channel.kick_off(tx)
    for _ in range(2):
        channel.supervise(tx, send)
        channel.fail(tx, send)
    channel.supervise(tx, send)
    channel.supervise(tx, other)

    def fact(name: str) -> object:
        return value(tx, f"select comms.{name}(%s)", [send])

    assert fact(f"has_{channel.root}_succeeded") is False
    assert fact(f"count_{channel.root}_failures") == 2
    assert fact(f"count_{channel.root}_scheduled") == 3
    channel.succeed(tx, send)
    assert fact(f"has_{channel.root}_succeeded") is True


def test_a_send_of_one_channel_is_unknown_to_the_functions_of_the_other(tx: Connection) -> None:
    email, sms = CHANNELS
    send = email.kick_off(tx)
    email.supervise(tx, send)

    assert value(tx, "select comms.count_send_email_task_scheduled(%s)", [send]) == 1
    assert value(tx, "select comms.count_send_sms_task_scheduled(%s)", [send]) == 0
    for function in (sms.supervisor, *map(sms.handler, ("before", "success", "error"))):
        payload = {"send_sms_task_id": send}
        told = run(tx, function, {**payload, "original_payload": payload})
        assert (told["success"], f"send_sms_task {send}" in told["validation_failure_message"]) == (
            False,
            True,
        )
    with refused(tx, "QF404", f"there is no send_sms_task {send}"):
        value(tx, "select comms.cancel_send_sms_task(%s)", [send])
    assert rows(tx, "select * from comms.send_sms_history(%s)", [send]) == []
    assert value(tx, "select count(*) from comms.send_sms_task") == 0


def test_a_cancel_by_another_namespace_does_not_wait_for_the_send(db: Database, channel: Channel) -> None:
    """It would otherwise lock the row, and hold up the owner of the send."""
    conn = db.connect()
    send = channel.kick_off(conn)
    holder = db.connect(autocommit=False)
    holder.execute("select from comms.send_task where send_task_id = %s for update", [send])
    stranger = db.connect("holdfast_client")
    stranger.execute("set lock_timeout = '100ms'")
    with pytest.raises(psycopg.Error, match="there is no"):
        stranger.execute(f"select comms.cancel_{channel.root}(%s)".encode(), [send])
    holder.rollback()


def test_supervisors_and_handlers_read_facts_through_functions_only(tx: Connection) -> None:
    for function in ("supervise_send", "get_send_payload", "record_send_success", "record_send_failure"):
        source = value(tx, "select prosrc from pg_proc where oid = %s::regproc", [f"comms.{function}"])
        read = re.findall(r"\b(?:from|join)\s+comms\.(\w+)\b(?!\s*\()", source)
        assert {name for name in read if name.startswith("send_task_")} == set(), function
