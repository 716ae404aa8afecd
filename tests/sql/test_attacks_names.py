"""Names that an attacker chooses: its tables, functions and operators are never used instead of ours."""

import psycopg
import pytest

from support.attacks import error_of
from support.database import Database
from support.engine import (
    Connection,
    act,
    call,
    claim,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    explain,
    finish,
    heartbeat,
    held,
    release,
)

HIJACKED = [
    *(
        "task",
        "ready",
        "lease",
        "outcome",
        "deletion",
        "error",
        "act",
        "lane",
        "task_key",
        "setting",
        "namespace_login",
    ),
    *(
        "executor",
        "paused_queue",
        "worker",
        "leadership",
        "waiter",
        "crash_detector",
        "new_task",
        "task_status",
    ),
    *("pg_proc", "pg_namespace", "pg_roles", "text", "jsonb", "uuid", "timestamptz", "interval"),
]


def _set_a_trap(attacker: Connection) -> None:
    """Temporary tables of every name we use, which tell who touches them, and come first in the path."""
    attacker.execute(
        """create function pg_temp.spring() returns trigger language plpgsql as $$
           begin raise exception 'trapped as %', current_user; end $$"""
    )
    for name in HIJACKED:
        attacker.execute(f'create temporary table "{name}" (n integer)'.encode())
        attacker.execute(
            f"""create trigger spring before insert or update or delete on pg_temp."{name}"
                for each statement execute function pg_temp.spring()""".encode()
        )
    attacker.execute("set search_path = pg_temp, queues, pg_catalog")


def test_temporary_tables_and_their_triggers_catch_no_function_of_a_client(castle: Database) -> None:
    attacker = castle.connect("mallory")
    _set_a_trap(attacker)

    task_id = enqueue(attacker, payload={"a": 1}, idempotency_key="trap", run_at="2040-01-01 00:00Z")
    enqueue_many(attacker, [{"type": "default.work", "idempotency_key": "trap2", "timeout": "5s"}])
    act(attacker, "reschedule", task_id, run_at="2041-01-01 00:00Z")
    explain(attacker, task_id)
    call(attacker, "queues.list_tasks", {"type_prefix": "default."})
    assert act(attacker, "cancel", task_id) == "cancelled"
    with pytest.raises(psycopg.Error) as caught:
        enqueue(attacker, executor="db_function")
    assert caught.value.sqlstate == "QF403"


def test_temporary_tables_and_their_triggers_catch_no_function_of_a_worker(castle: Database) -> None:
    enqueue_many(castle.connect(), [{"type": "trap.work"}] * 4)
    attacker = castle.connect("holdfast_worker")
    _set_a_trap(attacker)

    attacker.execute("select queues.register_worker('w1', queues => '{trap}')")
    one, two, three, four = claim(attacker, max_tasks=4, queues=["trap"])
    assert heartbeat(attacker, held(one)) == ["held"]
    assert release(attacker, held(four)) == ["released"]
    results = [*held(one, status="succeeded"), *held(two, status="retry"), *held(three, status="snooze")]
    assert finish(attacker, results) == ["accepted"] * 3
    for query in (
        "select queues.sweep()",
        "select queues.lead('w1')",
        "select queues.mark_idle('w1', true)",
        "select queues.next_due()",
        "select queues.release_wakeups('w1', queues.hold_wakeups('w1', '{trap}'))",
        "select queues.notify_idle('{trap}')",
        "select queues.retire_worker('w1')",
    ):
        attacker.execute(query.encode())
    assert error_of(attacker, "select internal.run_function('pg_temp.x', '{}')").sqlstate == "QF404"


def test_temporary_functions_are_not_called(castle: Database) -> None:
    attacker = castle.connect("mallory")
    for signature in (
        "set_config(text, text, boolean) returns text",
        "jsonb_typeof(jsonb) returns text",
        "octet_length(text) returns integer",
        "split_part(text, text, integer) returns text",
        "has_function_privilege(text, text) returns boolean",
        "pg_has_role(name, name, text) returns boolean",
        "clock() returns timestamptz",
    ):
        attacker.execute(
            f"""create function pg_temp.{signature} language plpgsql as $$
                begin raise exception 'trapped as %', current_user; end $$""".encode()
        )
    attacker.execute("set search_path = pg_temp, queues, pg_catalog")

    task_id = enqueue(attacker, payload={"a": 1})

    assert act(attacker, "cancel", task_id) == "cancelled"


OPERATORS = [
    *(("=", "text", "text"), ("<>", "text", "text"), ("||", "text", "text"), ("~", "text", "text")),
    *(("->", "jsonb", "text"), ("->>", "jsonb", "text"), ("?", "jsonb", "text"), ("=", "jsonb", "jsonb")),
    *((">", "timestamptz", "timestamptz"), ("<=", "timestamptz", "timestamptz"), ("=", "uuid", "uuid")),
    *((">", "integer", "integer"), ("<=", "integer", "integer"), ("=", "boolean", "boolean")),
]


def test_operators_of_an_attacker_never_run_as_the_owner(castle: Database) -> None:
    attacker = castle.connect("mallory")
    heard: list[str] = []
    attacker.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
    for n, (operator, left, right) in enumerate(OPERATORS):
        answers = {"||": "text", "->": "jsonb", "->>": "text"}.get(operator, "boolean")
        attacker.execute(
            f"""create function lair.o{n}({left}, {right}) returns {answers} language plpgsql as $$
                begin raise notice 'ran as %', current_user; return null; end $$""".encode()
        )
        operands = f"leftarg = {left}, rightarg = {right}"
        attacker.execute(f"create operator lair.{operator} (function = lair.o{n}, {operands})".encode())
    attacker.execute("set search_path = lair, pg_catalog, pg_temp")

    task_id = enqueue(attacker, payload={"a": 1}, idempotency_key="operators")
    enqueue_many(attacker, [{"type": "default.work", "idempotency_key": "operators2"}])
    explain(attacker, task_id)
    call(attacker, "queues.list_tasks", {"queue": "default"})
    act(attacker, "cancel", task_id)
    attacker.execute("select * from queues.task_status")
    attacker.execute("select * from queues.task_event")

    assert set(heard) <= {"ran as mallory"}


@pytest.mark.parametrize(
    "name",
    [
        "';drop-table-queues.task;--",
        "%s%n",
        "$1",
        "../../etc/passwd",
        "\\",
        "{{7*7}}",
        "\u202e",
        '"',
        "\u20ac",
    ],
)
def test_odd_names_go_through_as_they_are(castle: Database, name: str) -> None:
    mallory, worker = castle.connect("mallory"), castle.connect("holdfast_worker")
    task_type = f"odd{name.replace('.', '')}"
    enqueue(mallory, task_type, queue="odd", payload={"name": name}, idempotency_key=name)

    task = claim_one(worker, type_prefixes=[task_type])

    assert (task["type"], task["payload"]) == (task_type, {"name": name})
    assert end(worker, task) == "accepted"
