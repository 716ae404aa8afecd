"""internal.run_function: calls one business function that was granted, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.database import Database
from support.engine import Connection, value

PINNED = "security definer set search_path = pg_catalog, pg_temp"
ENVELOPE = "select jsonb_build_object('success', true, 'payload', payload, 'ran_as', current_user)"


@pytest.fixture(autouse=True)
def _application(tx: Connection) -> None:
    tx.execute("create role runner_owner")
    tx.execute("create schema app authorization runner_owner")
    tx.execute("grant usage on schema app to holdfast_caller")


def _create(
    tx: Connection,
    name: str = "app.charge",
    *,
    parameters: str = "payload jsonb",
    returns: str = "returns jsonb",
    how: str = PINNED,
    body: str = ENVELOPE,
    kind: str = "function",
) -> None:
    signature = f"{name}({parameters.removesuffix(' default 1')})"
    tx.execute(f"create {kind} {name}({parameters}) {returns} language sql {how} as $$ {body} $$".encode())
    tx.execute(f"alter routine {signature} owner to runner_owner".encode())
    tx.execute(f"revoke all on routine {signature} from public".encode())
    tx.execute(f"grant execute on routine {signature} to holdfast_caller".encode())


@contextmanager
def _as_worker(tx: Connection) -> Iterator[None]:
    with tx.transaction():
        tx.execute("set local role holdfast_worker")
        yield
        tx.execute("reset role")


def _run(tx: Connection, name: Any, payload: Any = None) -> Any:
    with _as_worker(tx):
        return value(tx, "select internal.run_function(%s, %s)", [name, Jsonb(payload)])


def _refused(tx: Connection, name: Any) -> str:
    with pytest.raises(psycopg.Error) as caught:
        _run(tx, name)
    assert caught.value.sqlstate == "QF404"
    return caught.value.diag.message_primary or ""


def test_it_answers_the_functions_envelope_and_runs_it_as_its_owner(tx: Connection) -> None:
    _create(tx)

    assert _run(tx, "app.charge", {"n": 1}) == {
        "success": True,
        "payload": {"n": 1},
        "ran_as": "runner_owner",
    }


def test_a_payload_may_be_null(tx: Connection) -> None:
    _create(tx)

    with _as_worker(tx):
        answered = value(tx, "select internal.run_function('app.charge', null)")
    assert answered["payload"] is None


def test_an_error_of_the_function_comes_through(tx: Connection) -> None:
    _create(tx, body="select jsonb_build_object('n', 1 / 0)")

    with pytest.raises(psycopg.errors.DivisionByZero):
        _run(tx, "app.charge")


def test_its_effects_are_in_the_callers_transaction(tx: Connection) -> None:
    tx.execute("create table app.ledger (n integer)")
    tx.execute("alter table app.ledger owner to runner_owner")
    _create(tx, body="insert into app.ledger values (1) returning jsonb_build_object('success', true)")

    _run(tx, "app.charge")

    assert value(tx, "select count(*) from app.ledger") == 1


def test_missing_and_forbidden_read_the_same(tx: Connection) -> None:
    _create(tx, "app.forbidden")
    tx.execute("revoke execute on function app.forbidden from holdfast_caller")

    missing, forbidden = _refused(tx, "app.missing"), _refused(tx, "app.forbidden")

    assert missing.replace("missing", "forbidden") == forbidden


def test_a_function_in_a_schema_that_the_caller_may_not_use_is_refused(tx: Connection) -> None:
    _create(tx)
    tx.execute("revoke usage on schema app from holdfast_caller")

    _refused(tx, "app.charge")


def test_what_everybody_may_execute_is_refused(tx: Connection) -> None:
    _create(tx)
    tx.execute("grant execute on function app.charge to public")

    _refused(tx, "app.charge")


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("set search_path = pg_catalog, pg_temp", id="not a definer"),
        pytest.param("security definer", id="no pinned path"),
        pytest.param("security definer set search_path = pg_catalog", id="without pg_temp"),
        pytest.param("security definer set search_path = pg_temp, pg_catalog", id="pg_temp first"),
        pytest.param("security definer set search_path = app, pg_catalog, pg_temp", id="another schema"),
        pytest.param("security definer set search_path = pg_catalog, pg_temp, app", id="one more schema"),
        pytest.param("security definer set search_path = ''", id="empty path"),
        pytest.param("security definer set search_path = 'pg_catalog, pg_temp'", id="one quoted name"),
    ],
)
def test_a_function_that_is_not_built_as_asked_is_refused(tx: Connection, how: str) -> None:
    _create(tx, how=how)

    _refused(tx, "app.charge")


@pytest.mark.parametrize(
    ("parameters", "returns", "body"),
    [
        pytest.param("", "returns jsonb", "select '{}'::jsonb", id="no parameter"),
        pytest.param("payload jsonb, more jsonb", "returns jsonb", ENVELOPE, id="two parameters"),
        pytest.param("payload jsonb, m int default 1", "returns jsonb", ENVELOPE, id="a default parameter"),
        pytest.param("payload json", "returns jsonb", "select '{}'::jsonb", id="json"),
        pytest.param("payload text", "returns jsonb", "select '{}'::jsonb", id="text"),
        pytest.param("variadic payload jsonb[]", "returns jsonb", "select '{}'::jsonb", id="variadic"),
        pytest.param("payload jsonb", "returns text", "select 'text'", id="returns text"),
        pytest.param("payload jsonb", "returns void", "select", id="returns nothing"),
        pytest.param("payload jsonb", "returns setof jsonb", ENVELOPE, id="returns a set"),
        pytest.param(
            "payload jsonb",
            "returns table (one jsonb)",
            "select '{}'::jsonb",
            id="returns a table",
        ),
    ],
)
def test_a_function_of_another_shape_is_refused(
    tx: Connection, parameters: str, returns: str, body: str
) -> None:
    _create(tx, parameters=parameters, returns=returns, body=body)

    _refused(tx, "app.charge")


def test_a_procedure_is_refused(tx: Connection) -> None:
    _create(tx, returns="", body="select 1", kind="procedure")

    _refused(tx, "app.charge")


def test_an_aggregate_is_refused(tx: Connection) -> None:
    tx.execute("create aggregate app.charge(jsonb) (sfunc = jsonb_concat, stype = jsonb)")
    tx.execute("grant execute on function app.charge(jsonb) to holdfast_caller")

    _refused(tx, "app.charge")


def test_a_name_that_two_functions_have_is_refused(tx: Connection) -> None:
    _create(tx)
    _create(tx, parameters="payload text", body="select '{}'::jsonb")

    _refused(tx, "app.charge")


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "charge",
        "app.",
        ".charge",
        "app..charge",
        "app.charge ",
        " app.charge",
        "app.charge\n",
        "app.charge.more",
        "App.charge",
        "app.Charge",
        '"app"."charge"',
        'app."charge"',
        "app.charge()",
        "app.charge(jsonb)",
        "app.charge; drop table queues.task",
        "app.charge'); drop table queues.task; --",
        "app.charge--",
        "app.charge/**/",
        "app.charge$1",
        "app.chårge",
        "app." + "c" * 64,
        "a" * 100_000,
        "pg_catalog.pg_sleep",
        "pg_catalog.jsonb_pretty",
        "pg_catalog.to_jsonb",
        "queues.finish",
        "queues.enqueue_many",
        "internal.run_function",
        "app.%I",
        "app.%s",
    ],
)
def test_a_name_that_is_not_plain_or_not_ours_to_run_is_refused(tx: Connection, name: str | None) -> None:
    _create(tx)

    _refused(tx, name)


def test_a_message_quotes_no_more_than_a_names_worth(tx: Connection) -> None:
    assert len(_refused(tx, "x" * 100_000)) < 250


def test_a_temporary_function_is_refused(tx: Connection) -> None:
    made = f"create function pg_temp.charge(payload jsonb) returns jsonb language sql {PINNED}"
    tx.execute(f"{made} as $$ select payload $$".encode())
    schema = value(tx, "select nspname from pg_namespace where oid = pg_my_temp_schema()")

    _refused(tx, f"{schema}.charge")
    _refused(tx, "pg_temp.charge")


def _plan(tx: Connection, body: str, *, how: str = PINNED) -> None:
    tx.execute(
        f"""create or replace function app.charge(payload jsonb) returns jsonb language plpgsql {how}
            as $$ begin {body}; return '{{"success": true}}'; end $$""".encode()
    )
    tx.execute("alter routine app.charge(jsonb) owner to runner_owner")
    tx.execute("revoke all on function app.charge(jsonb) from public")
    tx.execute("grant execute on function app.charge(jsonb) to holdfast_caller")


def test_what_its_owner_lets_run_with_the_rights_of_the_caller_has_none(tx: Connection) -> None:
    """As if its owner had replaced the function between the check and the call."""
    _create(tx, how="set search_path = pg_catalog, pg_temp", body=ENVELOPE)
    tx.execute("set local role holdfast_owner")

    answered = value(tx, "select internal.call_function('select app.charge($1)', '{}')")

    assert answered["ran_as"] == "holdfast_caller"


@pytest.mark.parametrize(
    "body",
    [
        "perform set_config('role', session_user, false)",
        "perform set_config('role', 'none', true)",
        "perform set_config('session_authorization', session_user, false)",
        "set role postgres",
        "reset role",
        "execute 'reset session authorization'",
    ],
)
@pytest.mark.parametrize("how", [PINNED, "set search_path = pg_catalog, pg_temp"])
def test_it_cannot_become_its_caller(tx: Connection, body: str, how: str) -> None:
    _plan(tx, body, how=how)
    refused = pytest.raises(psycopg.errors.InsufficientPrivilege, match="within security-definer function")

    with refused, tx.transaction():
        tx.execute("set local role holdfast_owner")
        value(tx, "select internal.call_function('select app.charge($1)', '{}')")


LEFT = {
    "a path": ("perform set_config('search_path', 'app', false)", "search_path"),
    "a path for later": (
        """perform set_config('search_path', 'app', false);
           perform set_config('search_path', 'pg_catalog, pg_temp', true)""",
        "search_path",
    ),
    "a path of an inner block": (
        "begin set search_path = app; exception when division_by_zero then null; end",
        "search_path",
    ),
    "the path of the session": ("reset search_path", "search_path"),
    "a prepared statement": ("execute 'prepare _pg3_0 as select 1'", "a prepared statement"),
    "a temporary table": ("create temporary table task (n integer)", "a temporary object"),
    "a temporary type": ("create domain pg_temp.text as pg_catalog.text", "a temporary object"),
    "a cursor": ("execute 'declare c cursor with hold for select 1'", "a cursor that outlives"),
    "another function": ("alter function app.charge(jsonb) security invoker", "was replaced"),
}


@pytest.mark.parametrize("left", LEFT)
def test_a_function_that_leaves_something_to_its_caller_is_undone(tx: Connection, left: str) -> None:
    body, told = LEFT[left]
    _plan(tx, body)
    tx.execute("set local search_path = public")

    with pytest.raises(psycopg.Error) as caught:
        _run(tx, "app.charge", {})

    assert caught.value.sqlstate == "QF412"
    assert told in str(caught.value)
    assert value(tx, "show search_path") == "public"
    assert value(tx, "select count(*) from pg_prepared_statements where from_sql") == 0


def test_what_it_prepared_before_it_failed_is_gone(tx: Connection) -> None:
    tx.execute("prepare mine as select 1")
    _plan(tx, "execute 'prepare yours as select 1'; raise exception 'no'")

    with pytest.raises(psycopg.Error, match="no"):
        _run(tx, "app.charge", {})

    assert value(tx, "select array_agg(name) from pg_prepared_statements where from_sql") == ["mine"]
    tx.execute("deallocate mine")


def test_the_path_of_the_caller_stays(tx: Connection) -> None:
    _plan(tx, "set local search_path = app; perform 1")
    tx.execute("set local search_path = public")

    _run(tx, "app.charge", {})

    assert value(tx, "show search_path") == "public"


def test_a_deferred_trigger_does_not_run_as_the_caller(tx: Connection) -> None:
    """At the commit: before PostgreSQL 18 with the rights of whoever commits, and always with its login."""
    tx.execute("set local role runner_owner")
    tx.execute("create table app.ledger (n integer)")
    tx.execute("create table app.seen (ran_as text)")
    tx.execute("grant insert on app.seen to public")
    tx.execute(
        """create function app.see() returns trigger language plpgsql
           as $$ begin insert into app.seen values (current_user); return null; end $$"""
    )
    tx.execute(
        """create constraint trigger see after insert on app.ledger deferrable initially deferred
           for each row execute function app.see()"""
    )
    tx.execute("reset role")
    _plan(tx, "insert into app.ledger values (1)")

    with pytest.raises(psycopg.Error, match="a deferrable trigger"):
        _run(tx, "app.charge", {})


@pytest.mark.parametrize(("kind", "refused"), [("integer", False), ("app.own", True)])
def test_a_deferred_foreign_key_on_a_type_of_its_own_does_not_run_as_the_caller(
    tx: Connection, kind: str, refused: bool
) -> None:
    """Its check at the commit calls the casts of the type."""
    tx.execute("set local role runner_owner")
    tx.execute("create domain app.own as integer")
    tx.execute("create table app.account (id integer primary key)")
    tx.execute("insert into app.account values (1)")
    tx.execute(
        f"create table app.ledger (n {kind} references app.account deferrable initially deferred)".encode()
    )
    tx.execute("reset role")
    _plan(tx, "insert into app.ledger values (1)")

    if refused:
        with pytest.raises(psycopg.Error, match="a deferrable trigger or constraint"):
            _run(tx, "app.charge", {})
    else:
        assert _run(tx, "app.charge", {}) == {"success": True}


def test_it_is_called_only_where_changes_of_its_owner_can_be_seen(db: Database) -> None:
    conn = db.connect(autocommit=False)
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.Error, match="must be called in a transaction that is read committed"):
        conn.execute("select internal.run_function('comms.repair_send_email', '{}')")
