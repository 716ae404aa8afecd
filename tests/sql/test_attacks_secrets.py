"""What a login cannot learn of the tasks of another, neither from views nor from errors."""

from uuid import UUID

import psycopg
import pytest

from support.attacks import CANARY, UNKNOWN, error_of
from support.database import Database
from support.engine import call, explain, rows, status, value


@pytest.fixture
def secret(castle: Database) -> UUID:
    task_id: UUID = value(castle.connect(), "select task_id from queues.task where type = 'vault.open'")
    return task_id


def _told(error: psycopg.Error) -> str:
    """Everything that a server says with an error."""
    diag = error.diag
    return " ".join(
        str(part)
        for part in (
            *(diag.message_primary, diag.message_detail, diag.message_hint, diag.context),
            *(diag.internal_query, diag.constraint_name, diag.table_name, diag.column_name),
        )
    )


def test_another_logins_task_cannot_be_seen(castle: Database, secret: UUID) -> None:
    mallory = castle.connect("mallory")

    for view in ("task_status", "task_event", "task_error"):
        assert rows(mallory, f"select * from queues.{view} where task_id = %s", [secret]) == []
    assert secret not in {row["task_id"] for row in call(mallory, "queues.list_tasks", {})}
    assert call(mallory, "queues.list_tasks", {"type_prefix": "vault."}) == []
    assert call(mallory, "queues.list_tasks", {"status": "pending", "queue": "vault"}) == []


@pytest.mark.parametrize("function", ["cancel", "reschedule", "watch"])
def test_another_logins_task_cannot_be_told_from_one_that_does_not_exist(
    castle: Database, secret: UUID, function: str
) -> None:
    mallory = castle.connect("mallory")
    more = ", now()" if function == "reschedule" else ""

    errors = [error_of(mallory, f"select queues.{function}(%s{more})", [tid]) for tid in (secret, UNKNOWN)]

    assert [error.sqlstate for error in errors] == ["QF404", "QF404"]
    assert _told(errors[0]).replace(str(secret), str(UNKNOWN)) == _told(errors[1])
    assert status(castle.connect(), secret)["status"] == "pending"


def test_an_explanation_tells_nothing_of_another_logins_task(castle: Database, secret: UUID) -> None:
    mallory = castle.connect("mallory")

    assert explain(mallory, secret).replace(str(secret), str(UNKNOWN)) == explain(mallory, UNKNOWN)


def test_a_condition_that_fails_or_talks_learns_nothing_of_another_logins_rows(castle: Database) -> None:
    mallory = castle.connect("mallory")
    heard: list[str] = []
    mallory.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
    mallory.execute(
        """create function lair.hear(jsonb) returns boolean language plpgsql cost 0.0000001
           as $$ begin raise notice '%', $1; return true; end $$"""
    )

    for view, column in (("task_status", "payload"), ("task_event", "data"), ("task_error", "detail")):
        mallory.execute(f"select * from queues.{view} where lair.hear({column})".encode())
        mallory.execute(f"select * from queues.{view} where ({column} ->> 'secret')::integer = 1".encode())
        mallory.execute(f"select * from queues.{view} where 1 / length({column}::text) > 5".encode())
    assert not any(CANARY in told for told in heard)


def test_no_error_tells_of_another_logins_row(castle: Database, secret: UUID) -> None:
    mallory, worker = castle.connect("mallory"), castle.connect("holdfast_worker")
    attempts = [
        (mallory, f"select queues.cancel('{secret}')"),
        (mallory, f"select queues.reschedule('{secret}', 'infinity')"),
        (mallory, f"select queues.retry('{secret}')"),
        (mallory, "select * from queues.task"),
        (mallory, f"insert into queues.task (task_id) values ('{secret}')"),
        (worker, f'select queues.finish(\'w\', \'[{{"task_id": "{secret}", "token": 1}}]\')'),
        (worker, 'select queues.finish(\'w\', \'[{"task_id": "x", "token": 1, "status": "failed"}]\')'),
        (worker, "select queues.heartbeat('w', '[7]')"),
        (worker, "select queues.claim('w', queues => '{vault}', lease => '1 year')"),
        (worker, "select queues.claim('w', queues => '{vault}', after => '[]')"),
        (worker, "select queues.register_worker('w', concurrency => -1)"),
        (worker, "select internal.run_function('vault.open', '{}')"),
    ]

    for conn, attempt in attempts:
        assert CANARY not in _told(error_of(conn, attempt)), attempt


def test_nulls_are_never_stopped_by_a_constraint_only(castle: Database) -> None:
    """An error of a constraint would show the row; so the guards of a function have to come first."""
    admin = castle.connect(autocommit=False)
    granted = rows(
        admin,
        """select p.oid::regproc::text as name, array(
             select 'null::' || format_type(t, null) from unnest(p.proargtypes) t) as nulls
           from pg_proc p where pronamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and p.prorettype <> 'trigger'::regtype
             and exists (select from aclexplode(p.proacl) a where a.grantee <> p.proowner)""",
    )
    assert len(granted) > 20
    for function in granted:
        attempt = f"select * from {function['name']}({', '.join(function['nulls'])})"
        try:
            with admin.transaction():
                admin.execute(attempt.encode())
        except psycopg.Error as error:
            code = error.sqlstate or ""
        else:
            code = "fine"
        assert code == "fine" or code.startswith("QF"), (attempt, code)
    admin.rollback()
