"""What logins that are members of one role each cannot do, however they try."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from support.clock import Clock
from support.database import Database
from support.engine import (
    Connection,
    Row,
    act,
    call,
    change_setting,
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
    rows,
    status,
    value,
)
from support.fleet import Fleet

ROLES = [
    *("holdfast_client", "holdfast_process", "holdfast_worker"),
    *("holdfast_dispatcher", "holdfast_operator", "holdfast_reader"),
]
CANARY = "canary-7f3a"
UNKNOWN = UUID("00000000-0000-7000-8000-000000000000")
NEEDS_PROCESS = ["db_function", "email", "sms"]


@pytest.fixture(scope="module")
def fortress(shipped: Database) -> Database:
    """A database as shipped, with a second client named mallory and a task whose payload is a secret."""
    admin = shipped.connect()
    if not rows(admin, "select from pg_roles where rolname = 'mallory'"):
        admin.execute("create role mallory login in role holdfast_client")
    admin.execute("create schema lair authorization mallory")
    client = shipped.connect("holdfast_client")
    enqueue(client, "vault.open", payload={"secret": CANARY}, idempotency_key="k", metadata={"m": CANARY})
    shipped.close()
    return shipped


@pytest.fixture
def castle(fortress: Database) -> Iterator[Database]:
    yield fortress
    fortress.close()


@pytest.fixture
def secret(castle: Database) -> UUID:
    task_id: UUID = value(castle.connect(), "select task_id from queues.task where type = 'vault.open'")
    return task_id


def _error(conn: Connection, query: str, parameters: Any = ()) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(query.encode(), parameters)
    return caught.value


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


@pytest.mark.parametrize("role", ROLES)
def test_no_table_and_no_sequence_can_be_read_or_written(castle: Database, role: str) -> None:
    relations = rows(
        castle.connect(),
        """select oid::regclass::text as name, relkind::text as kind from pg_class
           where relnamespace in ('queues'::regnamespace, 'comms'::regnamespace) and relkind in ('r', 'S')""",
    )
    attacker = castle.connect(role)

    assert len(relations) > 12
    for relation in relations:
        name = relation["name"]
        attempts = (
            [f"select nextval('{name}')", f"select setval('{name}', 1)", f"table {name}"]
            if relation["kind"] == "S"
            else [
                f"select from {name}",
                f"insert into {name} default values",
                f"delete from {name}",
                f"truncate {name}",
                f"copy {name} to stdout",
                f"drop table {name}",
                f"alter table {name} add column mine integer",
            ]
        )
        for attempt in attempts:
            assert isinstance(_error(attacker, attempt), InsufficientPrivilege), attempt


@pytest.mark.parametrize("role", ROLES)
def test_no_view_can_be_written_through(castle: Database, role: str) -> None:
    attacker = castle.connect(role)

    for view in ("task_status", "task_event", "task_error", "queue_status", "worker_status", "queue_act"):
        for attempt in (f"delete from queues.{view}", f"insert into queues.{view} default values"):
            error = _error(attacker, attempt)
            assert isinstance(error, InsufficientPrivilege | psycopg.errors.ObjectNotInPrerequisiteState)


@pytest.mark.parametrize(
    "attempt",
    [
        "create function queues.mine() returns integer language sql as 'select 1'",
        "create table queues.mine (n integer)",
        "create or replace function queues.clock() returns timestamptz language sql as 'select null'",
        "alter function queues.clock() rename to watch2",
        "drop function queues.clock()",
        "alter function queues.finish(text, jsonb) set search_path = pg_temp",
        "alter function queues.finish(text, jsonb) owner to current_user",
        "create trigger my after insert on queues.task execute function suppress_redundant_updates_trigger()",
        "create rule mine as on insert to queues.task do instead nothing",
        "alter default privileges for role holdfast_owner grant execute on functions to public",
        "set role holdfast_owner",
        "set session authorization holdfast_owner",
        "grant holdfast_owner to current_user",
        "alter role holdfast_owner login password 'x'",
        "reassign owned by holdfast_owner to current_user",
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_nothing_of_ours_can_be_changed_or_added_to(castle: Database, role: str, attempt: str) -> None:
    error = _error(castle.connect(role), attempt)

    assert error.sqlstate in {"42501", "0LP01", "22023"}, error


@pytest.mark.parametrize(("role", "function"), [("holdfast_worker", "claim"), ("holdfast_client", "cancel")])
def test_a_right_cannot_be_handed_on(castle: Database, role: str, function: str) -> None:
    castle.connect(role).execute(f"grant execute on function queues.{function} to public".encode())

    handed_on = "select has_function_privilege('public', %s::regproc, 'execute')"
    assert not value(castle.connect(), handed_on, [f"queues.{function}"])


@pytest.mark.parametrize("role", ROLES)
def test_no_other_role_of_ours_can_be_put_on(castle: Database, role: str) -> None:
    attacker = castle.connect(role)
    own = {"holdfast_process": {"holdfast_client"}, "holdfast_operator": {"holdfast_reader"}}.get(role, set())

    for other in {"holdfast_owner", *ROLES} - {role} - own:
        assert isinstance(_error(attacker, f"set role {other}"), InsufficientPrivilege), other


def test_who_puts_on_its_own_role_is_still_recorded_by_its_login(castle: Database) -> None:
    client = castle.connect("mallory")
    client.execute("set role holdfast_client")

    task_id = enqueue(client)

    assert status(client, task_id)["enqueued_by"] == "mallory"


@pytest.mark.parametrize("role", ROLES)
def test_the_time_cannot_be_set(castle: Database, role: str) -> None:
    attacker = castle.connect(role)
    attacker.execute("set holdfast.now = '2050-01-01'")
    attacker.execute("set queues.clock = '2050-01-01'")

    assert isinstance(
        _error(attacker, "update queues.test_clock set shifted_by = '1 day'"), psycopg.ProgrammingError
    )
    assert not value(castle.connect(), "select queues.clock() - clock_timestamp() > interval '1 hour'")


def test_a_worker_cannot_enqueue(castle: Database) -> None:
    worker = castle.connect("holdfast_worker")

    for attempt in (
        "select queues.enqueue('default.work')",
        "select queues.enqueue_many('[]')",
        "select queues.enqueue_for_client('[]')",
        "select queues.enqueue_for_process('[]')",
        "select queues.insert_tasks('[]', true)",
        "select queues.enqueue_for_token(null, '[]')",
        "select queues.enqueue_reusing('default.work')",
        "select queues.add_schedule('mine', 'default.work', cron => '* * * * *')",
        "select queues.declare_schedules('shop', '[]')",
        "select queues.run_schedule('theirs')",
        "select queues.replay(gen_random_uuid())",
    ):
        assert isinstance(_error(worker, attempt), InsufficientPrivilege), attempt


@pytest.mark.parametrize("role", sorted({*ROLES} - {"holdfast_worker"}))
def test_only_a_worker_claims_and_settles(castle: Database, role: str) -> None:
    attacker = castle.connect(role)

    for attempt in (
        "select queues.claim('w')",
        "select queues.dequeue_next_available_task()",
        "select queues.heartbeat('w', '[]')",
        "select queues.finish('w', '[]')",
        "select queues.release('w', '[]')",
        "select queues.lead('w')",
        "select queues.register_worker('w')",
        "select internal.run_function('a.b', '{}')",
    ):
        assert isinstance(_error(attacker, attempt), InsufficientPrivilege), attempt


@pytest.mark.parametrize("role", sorted({*ROLES} - {"holdfast_operator"}))
@pytest.mark.parametrize("function", ["retry", "delete_task", "restore_task", "pause", "resume"])
def test_only_an_operator_redrives_deletes_and_pauses(castle: Database, role: str, function: str) -> None:
    given = "'default'" if function in {"pause", "resume"} else f"'{UNKNOWN}'"

    assert isinstance(
        _error(castle.connect(role), f"select queues.{function}({given})"), InsufficientPrivilege
    )


@pytest.mark.parametrize("executor", NEEDS_PROCESS)
def test_a_client_cannot_enqueue_what_acts_with_the_rights_of_the_database(
    castle: Database, executor: str
) -> None:
    client = castle.connect("holdfast_client")
    fine = {"type": "default.work"}
    attempts: list[Callable[[], object]] = [
        lambda: enqueue(client, executor=executor),
        lambda: enqueue(client, payload={"task_type": executor, "function": "app.pay"}),
        lambda: enqueue_many(client, [fine, {**fine, "executor": executor}, fine]),
        lambda: enqueue_many(client, [fine, {**fine, "payload": {"task_type": executor}}]),
        lambda: call(client, "queues.enqueue_for_client", {"tasks": [{**fine, "executor": executor}]}),
    ]
    before = value(castle.connect(), "select count(*) from queues.task")

    for attempt in attempts:
        with pytest.raises(psycopg.Error) as caught:
            attempt()
        assert caught.value.sqlstate == "QF403"
        assert "executor" in (caught.value.diag.message_primary or "")
    assert value(castle.connect(), "select count(*) from queues.task") == before


def test_a_client_cannot_take_the_way_of_a_process(castle: Database) -> None:
    client = castle.connect("holdfast_client")
    task = """'[{"type": "a.b", "executor": "db_function"}]'"""

    for attempt in (
        f"select queues.enqueue_for_process({task})",
        f"select queues.insert_tasks({task}, true)",
    ):
        assert isinstance(_error(client, attempt), InsufficientPrivilege), attempt


@pytest.mark.parametrize("executor", NEEDS_PROCESS)
def test_a_process_can(castle: Database, executor: str) -> None:
    process = castle.connect("holdfast_process")

    assert status(process, enqueue(process, payload={"task_type": executor}))["executor"] == executor


def test_a_client_that_calls_a_function_of_a_process_has_its_authority_within(castle: Database) -> None:
    admin = castle.connect()
    admin.execute("create schema shop")
    admin.execute("grant usage on schema shop to holdfast_client")
    admin.execute(
        """create function shop.kickoff() returns uuid language sql security definer
           set search_path = pg_catalog, pg_temp
           as $$ select queues.enqueue('shop.mail', '{"task_type": "email"}') $$"""
    )
    admin.execute("alter function shop.kickoff() owner to holdfast_process")
    admin.execute("grant execute on function shop.kickoff() to holdfast_client")
    client = castle.connect("holdfast_client")

    task_id = value(client, "select shop.kickoff()")

    assert status(client, task_id)["executor"] == "email"
    with pytest.raises(psycopg.Error):
        enqueue(client, executor="email")


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

    errors = [_error(mallory, f"select queues.{function}(%s{more})", [tid]) for tid in (secret, UNKNOWN)]

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
        assert CANARY not in _told(_error(conn, attempt)), attempt


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
    assert _error(attacker, "select internal.run_function('pg_temp.x', '{}')").sqlstate == "QF404"


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


def test_a_token_of_somebody_else_settles_nothing(castle: Database) -> None:
    enqueue(castle.connect(), "fence.work")
    victim, attacker = castle.connect("holdfast_worker"), castle.connect("holdfast_worker")
    task = claim_one(victim, "victim", queues=["fence"])
    guesses: list[Row] = [{**task, "token": token} for token in range(task["token"] + 5)]

    assert set(finish(attacker, held(*guesses, status="failed"), "attacker")) == {"lost"}
    assert set(heartbeat(attacker, held(*guesses), "attacker")) == {"lost"}
    assert set(release(attacker, held(*guesses), "attacker")) == {"lost"}
    assert end(victim, task, worker_id="victim") == "accepted"


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


@pytest.fixture
def besieged(db: Database) -> Database:
    """A database with a client, and a login that has no role at all."""
    admin = db.connect()
    if not rows(admin, "select from pg_roles where rolname = 'stranger'"):
        admin.execute("create role stranger login")
    return db


def _take_every_advisory_lock(stranger: Connection) -> None:
    """All that an older release used, and any other: nothing waits for one."""
    for name in ("limit type:siege.work", "limit queue:siege", "door siege", "migrate"):
        stranger.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [f"holdfast {name}"])


def test_no_function_of_ours_takes_an_advisory_lock(castle: Database) -> None:
    found = rows(
        castle.connect(),
        """select p.oid::regprocedure::text as name from pg_proc p
           where p.pronamespace in ('queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and p.prosrc ~ 'advisory'""",
    )
    assert found == []


def test_a_login_without_a_role_cannot_stop_or_slow_limited_work(besieged: Database) -> None:
    _take_every_advisory_lock(besieged.connect("stranger"))
    operator, client = besieged.connect("holdfast_operator"), besieged.connect("holdfast_client")
    worker = besieged.connect("holdfast_worker")
    call(operator, "queues.set_limit", {"subject": "type", "name": "siege.work", "max_running": 2})
    enqueue_many(client, [{"type": "siege.work"}] * 3 + [{"type": "siege.keyed", "concurrency_key": "k"}] * 2)

    taken = claim(worker, max_tasks=10, queues=["siege"])

    assert sorted(task["type"] for task in taken) == ["siege.keyed", "siege.work", "siege.work"]
    assert call(operator, "queues.drop_limit", {"subject": "type", "name": "siege.work"}) == [
        {"drop_limit": True}
    ]


def test_a_login_without_a_role_cannot_keep_workers_from_being_woken(besieged: Database) -> None:
    _take_every_advisory_lock(besieged.connect("stranger"))
    fleet = Fleet(besieged)
    fleet.register(queues=["siege"])

    enqueue(besieged.connect("holdfast_client"), "siege.work")

    assert fleet.heard() == ["siege"]


@pytest.mark.parametrize("login", ["stranger", "holdfast_client", "holdfast_operator", "holdfast_reader"])
def test_nobody_locks_a_row_that_work_waits_for(besieged: Database, login: str) -> None:
    attacker = besieged.connect(login)
    for table in ("limit_lock", "wakeup_throttle", "task_limit", "lane", "installation"):
        for attempt in (
            f"select from queues.{table} for update",
            f"do $$ begin lock table queues.{table} in access share mode; end $$",
        ):
            assert isinstance(_error(attacker, attempt), InsufficientPrivilege)


def _lanes(admin: Connection) -> int:
    found: int = value(admin, "select count(*) from queues.lane")
    return found


def _tidy(db: Database) -> int:
    """As the leader does, some minutes later. Return how many lanes are left."""
    admin = db.connect()
    Clock(admin).advance(600)
    while value(db.connect("holdfast_worker"), "select queues.tidy_lanes()"):
        pass
    return _lanes(admin)


@pytest.mark.parametrize("field", ["type", "priority", "concurrency_key", "queue"])
def test_what_many_lanes_cost_ends_with_their_tasks(besieged: Database, field: str) -> None:
    mallory, worker = besieged.connect("holdfast_client"), besieged.connect("holdfast_worker")
    many: dict[str, list[Any]] = {
        "type": [f"siege.t{n}" for n in range(150)],
        "priority": list(range(-75, 75)),
        "concurrency_key": [f"k{n}" for n in range(150)],
        "queue": [f"siege{n}" for n in range(150)],
    }
    enqueue_many(mallory, [{"type": "siege.work", field: each} for each in many[field]])
    taken = claim(worker, max_tasks=1000, type_prefixes=["siege."])
    # Types beyond a few share a lane, and so do all keys.
    lanes = {"type": 33, "concurrency_key": 1}.get(field, 150)
    assert (len(taken), _lanes(besieged.connect())) == (150, lanes)
    finish(worker, held(*taken, status="succeeded"))

    assert _tidy(besieged) == 0
    enqueue(mallory, "siege.work")
    assert len(claim(worker, max_tasks=5, queues=["siege"])) == 1


@pytest.mark.parametrize("many", [True, False])
def test_a_login_cannot_make_lanes_without_bound(besieged: Database, many: bool) -> None:
    admin, mallory = besieged.connect(), besieged.connect("holdfast_client")
    change_setting(admin, "max_lanes", 200)
    later = "2090-01-01T00:00:00+00:00"

    def ask(n: int) -> None:
        given = {"type": "siege.work", "queue": f"siege{n}", "run_at": later}
        if many:
            enqueue_many(mallory, [{**given, "queue": f"siege{n}x{m}"} for m in range(70)])
        else:
            enqueue(mallory, **given)

    def ask_on() -> None:
        for n in range(20 if many else 2000):
            ask(n)

    with pytest.raises(psycopg.Error) as caught:
        ask_on()
    assert caught.value.sqlstate == "QF429"
    assert "max_lanes" in str(caught.value.diag.message_hint)
    assert _lanes(admin) < 200 + 70 * 64
    other = besieged.connect("holdfast_process")
    enqueue(other, "siege.other", concurrency_key="mine")  # bounds are each login's own
    enqueue(mallory, "siege.work", queue="siege0x0" if many else "siege0")
    admin.execute("delete from queues.ready where run_at > queues.clock() + interval '1 day'")
    _tidy(besieged)
    ask(20_000)


def test_a_claim_looks_at_no_lane_of_another_queue(besieged: Database) -> None:
    """Neither by queues nor by prefixes, but for one probe of the lane that many types share."""
    mallory, worker = besieged.connect("holdfast_client"), besieged.connect("holdfast_worker")
    enqueue(mallory, "calm.work")
    admin = besieged.connect()

    def pages(query: str) -> int:
        plan = value(admin, f"explain (analyze, buffers, costs off, format json) {query}")[0]["Plan"]
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    queries = [
        "select * from queues.claim('w', 1, array['calm'])",
        "select * from queues.claim('w', 1, null, array['calm.'])",
        "select * from queues.next_due(array['calm'], array['calm.'])",
    ]
    claim(worker, queues=["calm"])
    before = [pages(query) for query in queries for _ in range(2)][1::2]
    enqueue_many(mallory, [{"type": f"siege.t{n}", "run_at": "2090-01-01T00:00:00Z"} for n in range(1500)])
    admin.execute("analyze queues.lane")
    after = [pages(query) for query in queries for _ in range(2)][1::2]
    assert [now < once + 30 for once, now in zip(before, after, strict=True)] == [True] * 3, (before, after)
