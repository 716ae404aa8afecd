"""What logins that are members of one role each cannot do, however they try."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from support.attacks import UNKNOWN, error_of
from support.database import Database
from support.engine import (
    Row,
    call,
    claim_one,
    end,
    enqueue,
    enqueue_many,
    finish,
    heartbeat,
    held,
    release,
    rows,
    status,
    value,
)
from support.roles import ROLES

NEEDS_PROCESS = ["db_function", "email", "sms"]


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
            assert isinstance(error_of(attacker, attempt), InsufficientPrivilege), attempt


@pytest.mark.parametrize("role", ROLES)
def test_no_view_can_be_written_through(castle: Database, role: str) -> None:
    attacker = castle.connect(role)

    for view in ("task_status", "task_event", "task_error", "queue_status", "worker_status", "queue_act"):
        for attempt in (f"delete from queues.{view}", f"insert into queues.{view} default values"):
            error = error_of(attacker, attempt)
            assert isinstance(error, InsufficientPrivilege | psycopg.errors.ObjectNotInPrerequisiteState)


@pytest.mark.parametrize(
    "attempt",
    [
        "create function queues.mine() returns integer language sql as 'select 1'",
        "create table queues.mine (n integer)",
        "create or replace function queues.clock() returns timestamptz language sql as 'select null'",
        "alter function queues.clock() rename to watch2",
        "drop function queues.clock()",
        "alter function queues.finish(text, jsonb, boolean) set search_path = pg_temp",
        "alter function queues.finish(text, jsonb, boolean) owner to current_user",
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
    error = error_of(castle.connect(role), attempt)

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
        assert isinstance(error_of(attacker, f"set role {other}"), InsufficientPrivilege), other


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
        error_of(attacker, "update queues.test_clock set shifted_by = '1 day'"), psycopg.ProgrammingError
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
        "select queues.enqueue_unique('default.work', 'null', 'k', 'active')",
        "select queues.add_schedule('mine', 'default.work', cron => '* * * * *')",
        "select queues.declare_schedules('shop', '[]')",
        "select queues.run_schedule('theirs')",
        "select queues.replay(gen_random_uuid())",
    ):
        assert isinstance(error_of(worker, attempt), InsufficientPrivilege), attempt


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
        assert isinstance(error_of(attacker, attempt), InsufficientPrivilege), attempt


@pytest.mark.parametrize("role", sorted({*ROLES} - {"holdfast_operator"}))
@pytest.mark.parametrize("function", ["retry", "delete_task", "restore_task", "pause", "resume"])
def test_only_an_operator_redrives_deletes_and_pauses(castle: Database, role: str, function: str) -> None:
    given = "'default'" if function in {"pause", "resume"} else f"'{UNKNOWN}'"

    assert isinstance(
        error_of(castle.connect(role), f"select queues.{function}({given})"), InsufficientPrivilege
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
        assert isinstance(error_of(client, attempt), InsufficientPrivilege), attempt


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


def test_a_token_of_somebody_else_settles_nothing(castle: Database) -> None:
    enqueue(castle.connect(), "fence.work")
    victim, attacker = castle.connect("holdfast_worker"), castle.connect("holdfast_worker")
    task = claim_one(victim, "victim", queues=["fence"])
    guesses: list[Row] = [{**task, "token": token} for token in range(task["token"] + 5)]

    assert set(finish(attacker, held(*guesses, status="failed"), "attacker")) == {"lost"}
    assert set(heartbeat(attacker, held(*guesses), "attacker")) == {"lost"}
    assert set(release(attacker, held(*guesses), "attacker")) == {"lost"}
    assert end(victim, task, worker_id="victim") == "accepted"
