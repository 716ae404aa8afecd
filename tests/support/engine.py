"""The SQL contract, called as any driver would: one function per SQL function, rows as dictionaries."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from support.database import shards_of

Connection = psycopg.Connection[Any]
Row = dict[str, Any]

_JSON = {
    "activity",
    "payload",
    "metadata",
    "tasks",
    "held",
    "begun",
    "results",
    "killed",
    "runs",
    "after",
    "schedules",
    "schedule",
    "decisions",
    "types",
}
TABLES = (
    "lane",
    "lane_hoarder",
    "task_limit",
    "paused_queue",
    "task",
    "task_key",
    "ready",
    "lease",
    "outcome",
    "deletion",
    "error",
    "act",
    "step",
    "signal",
    "child",
    "generation",
    "wait",
    "chore",
    "worker",
    "loss",
    "leadership",
    "schedule",
    "schedule_firing",
    "schedule_act",
)


class JsonText(str):
    """JSON that Python could not write, sent as it stands."""

    __slots__ = ()


def rows(conn: Connection, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode(), parameters).fetchall()


def value(conn: Connection, query: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Any:
    row = conn.execute(query.encode(), parameters).fetchone()
    assert row
    return row[0]


def call(conn: Connection, function: str, arguments: dict[str, Any]) -> list[Row]:
    """Call a function with named arguments. Those that are jsonb are sent as JSON text, and None as null."""
    sent = {name: _as_text(name, given) for name, given in arguments.items()}
    named = ", ".join(
        f"{name} => %({name}){'s::pg_catalog.jsonb' if name in _JSON else 's'}" for name in arguments
    )
    return rows(conn, f"select * from {function}({named})", sent)


def _as_text(name: str, given: Any) -> Any:
    if name not in _JSON or given is None or isinstance(given, JsonText):
        return given
    return json.dumps(given, default=str)


def answer(conn: Connection, function: str, arguments: dict[str, Any]) -> Any:
    """The only column of the only row."""
    (row,) = call(conn, function, arguments)
    (only,) = row.values()
    return only


def enqueue(conn: Connection, type: str | None = "default.work", **arguments: Any) -> UUID:  # noqa: A002
    return cast("UUID", answer(conn, "queues.enqueue", {"type": type, **arguments}))


def enqueue_many(conn: Connection, tasks: Any) -> list[Row]:
    return call(conn, "queues.enqueue_many", {"tasks": tasks})


def claim(conn: Connection, worker_id: str | None = "w1", **arguments: Any) -> list[Row]:
    return call(conn, "queues.claim", {"worker_id": worker_id, **arguments})


def claim_one(conn: Connection, worker_id: str = "w1", **arguments: Any) -> Row:
    (row,) = claim(conn, worker_id, max_tasks=1, **arguments)
    return row


def claim_new(conn: Connection, **arguments: Any) -> Row:
    """Enqueue a task and claim it."""
    enqueue(conn, **arguments)
    return claim_one(conn)


def held(*tasks: Row, **more: Any) -> list[Row]:
    """What a worker sends back of the tasks that it was given."""
    return [{"task_id": task["task_id"], "token": task["token"], **more} for task in tasks]


def heartbeat(conn: Connection, given: Any, worker_id: str = "w1") -> list[str]:
    return _verdicts(call(conn, "queues.heartbeat", {"worker_id": worker_id, "held": given}))


def release(conn: Connection, given: Any, worker_id: str = "w1") -> list[str]:
    return _verdicts(call(conn, "queues.release", {"worker_id": worker_id, "held": given}))


def finish(conn: Connection, results: Any, worker_id: str = "w1") -> list[str]:
    return _verdicts(call(conn, "queues.finish", {"worker_id": worker_id, "results": results}))


def end(conn: Connection, task: Row, status: str = "succeeded", worker_id: str = "w1", **more: Any) -> str:
    """Finish one task and answer its verdict."""
    (verdict,) = finish(conn, held(task, status=status, **more), worker_id)
    return verdict


def _verdicts(answers: list[Row]) -> list[str]:
    return [row["verdict"] for row in answers]


def sweep(conn: Connection, **arguments: Any) -> Row:
    """Sweep, then do the chores, as the leader does."""
    (row,) = call(conn, "queues.sweep", arguments)
    do_chores(conn)
    return row


def do_chores(conn: Connection, **arguments: Any) -> None:
    """On every shard: each has a leader of its own."""
    for shard in shards_of(conn):
        for kind in answer(shard, "queues.due_chores", {}):
            call(shard, "queues.do_chores", {"kind": kind, **arguments})


def recover_workers(conn: Connection, **arguments: Any) -> list[Row]:
    return call(conn, "queues.recover_workers", arguments)


def act(conn: Connection, function: str, task_id: Any, **arguments: Any) -> str:
    """cancel, retry, delete_task, restore_task or reschedule: what a person does to one task."""
    return cast("str", answer(conn, f"queues.{function}", {"task_id": task_id, **arguments}))


def status(conn: Connection, task_id: Any) -> Row:
    (row,) = rows(conn, "select * from queues.task_status where task_id = %s", [task_id])
    return row


def events(conn: Connection, task_id: Any) -> list[Row]:
    return rows(conn, "select * from queues.task_event where task_id = %s", [task_id])


def explain(conn: Connection, task_id: Any) -> str:
    """Why a task is not running, in words."""
    return explanation(conn, task_id)[0]


def explanation(conn: Connection, task_id: Any) -> tuple[str, str | None]:
    """Why a task is not running, in words, and the errors beside it."""
    from holdfast._words.explanation import explanation_words  # clients of the release before have none

    found = rows(conn, "select * from queues.explain(%s)", [task_id])
    errors = [row["error"] for row in found if row["error"] is not None]
    told = [explanation_words(row["code"], row["facts"]).message for row in found]
    assert not [row for row, words in zip(found, told, strict=True) if words.startswith(f"{row['code']} {{")]
    return " ".join(told), "; ".join(errors) or None


def change_setting(conn: Connection, name: str, new_value: int) -> None:
    conn.execute("update queues.setting set value = %s where name = %s", [new_value, name])


def allow_changes(conn: Connection) -> None:
    """Let a test that plays many histories in one database clear the tables that keep facts."""
    found = rows(
        conn,
        """select distinct tgrelid::regclass::text as name from pg_trigger
           where not tgisinternal and tgrelid in (
             select oid from pg_class where relnamespace = 'queues'::regnamespace)""",
    )
    for table in found:
        conn.execute(f"alter table {table['name']} disable trigger user".encode())


def counts(conn: Connection) -> dict[str, int]:
    """How many rows every table has: what a refusal must leave as it was."""
    columns = ", ".join(f"(select count(*) from queues.{table}) as {table}" for table in TABLES)
    (row,) = rows(conn, f"select {columns}")
    return row


@contextmanager
def refused(conn: Connection, code: str, *parts: str) -> Iterator[None]:
    """The block is refused with this SQLSTATE and a message with these parts, and nothing is written."""
    before = counts(conn)
    with pytest.raises(psycopg.Error) as caught, conn.transaction():
        yield
    told = caught.value.diag.message_primary or ""
    assert (caught.value.sqlstate, [part for part in parts if part not in told]) == (code, []), told
    assert counts(conn) == before
