"""A function of a process acts for its task or instance, and with no role of the login that has it called."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.database import Database, cloned_database
from support.engine import Connection, rows, value

PINNED = "set search_path = pg_catalog, pg_temp"
LOGINS = {
    "heistlogin": "holdfast_process",
    "payer": "holdfast_client",
    "desk": "holdfast_operator, holdfast_client",
}
# Each act says what came of it. Alone, heistlogin could do none of them to a task of another namespace.
TRIES = """
declare
  _task constant uuid := (select v.task_id from heist.victim v);
  _told jsonb := jsonb_build_object('namespace', queues.namespace(), 'reads_all', queues.may_read_all());
  _made uuid;
  _act text;
begin
  foreach _act in array array[
    'select from queues.task_status where task_id = $1',
    'select from queues.task_event where task_id = $1',
    'select queues.cancel($1)', 'select queues.signal($1, ''go'')', 'select queues.reschedule($1, now())',
    'select queues.register_process(''heist'', ''root'', ''heist.act'', ''heist.act'', ''heist.ended'',
       ''heist.told'')']
  loop
    begin
      execute _act using _task;
      get diagnostics _act = row_count;
      _told := _told || jsonb_build_object('rows', (_told ->> 'rows')::integer + _act::integer);
    exception when others then
      _told := jsonb_set(_told, '{refused}', coalesce(_told -> 'refused', '[]') || to_jsonb(sqlstate));
    end;
  end loop;
  perform queues.enqueue('heist.simple');
  perform queues.enqueue('heist.more',
    jsonb_build_object('task_type', 'db_function', 'db_function', 'heist.act'));
  perform queues.emit('heist.done', '{}');
  return _told || jsonb_build_object('roles', (
    select jsonb_agg(r) from unnest(array['worker', 'operator', 'reader', 'dispatcher', 'owner', 'client']) r
    where queues.has_role(r)));
end
"""
FUNCTIONS = {
    "act(payload jsonb) returns jsonb": (
        "begin return jsonb_build_object('success', true, 'payload', heist.tries()); end"
    ),
    "begun(input jsonb) returns bigint": (
        "begin insert into heist.loot values (heist.tries()); return 1; end"
    ),
    "ended(id bigint, reason text) returns text": "begin return heist.tries()::text; end",
    "told(id bigint) returns table (at timestamptz, what text, reason text, task_id uuid)": (
        "begin return query select now(), 'tried', heist.tries()::text, null::uuid; end"
    ),
}


@pytest.fixture(scope="module")
def house(server: EmbeddedServer, template: str) -> Iterator[Database]:
    """With a process `heist` of `heistlogin`, an instance of it in `heistlogin`, and a task of `payer`."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        for login, role in LOGINS.items():
            if not admin.execute("select from pg_roles where rolname = %s", [login]).rowcount:
                admin.execute(f"create role {login} login in role {role}".encode())
    with cloned_database(server, template) as database:
        database.connect().execute("create schema heist authorization heistlogin")
        own = database.connect("heistlogin")
        own.execute("create table heist.root (id bigint primary key)")
        own.execute("create table heist.victim (task_id uuid)")
        own.execute("create table heist.loot (told jsonb)")
        own.execute(f"create function heist.tries() returns jsonb language plpgsql {PINNED} as $${TRIES}$$")
        for declared, body in FUNCTIONS.items():
            create(own, declared, body)
        own.execute("grant usage on schema heist to holdfast_caller")
        own.execute(
            """select queues.register_process('heist', root_table => 'root', supervisor => 'heist.act',
                 repair => 'heist.act', cancel => 'heist.ended', history => 'heist.told',
                 kickoff => 'heist.begun')"""
        )
        yield database


@pytest.fixture
def own(house: Database) -> Connection:
    return house.connect("heistlogin")


@pytest.fixture
def worker(house: Database) -> Connection:
    return house.connect("holdfast_worker")


@pytest.fixture
def desk(house: Database) -> Connection:
    """A login that acts for people, such as that of the dashboard."""
    return house.connect("desk")


@pytest.fixture
def victim(house: Database, own: Connection) -> UUID:
    """A task of another namespace."""
    task_id: UUID = value(house.connect("payer"), """select queues.enqueue('bank.pay', '{"card": "4111"}')""")
    own.execute("truncate heist.victim, heist.loot")
    own.execute("insert into heist.victim values (%s)", [task_id])
    return task_id


def create(own: Connection, declared: str, body: str, settings: str = "") -> None:
    own.execute(
        f"""create or replace function heist.{declared} language plpgsql security definer {PINNED} {settings}
            as $${body}$$""".encode()
    )
    name = declared.split("(", maxsplit=1)[0]
    own.execute(f"revoke execute on function heist.{name} from public".encode())
    own.execute(f"grant execute on function heist.{name} to holdfast_caller".encode())


def plan(own: Connection, body: str, settings: str = "") -> None:
    create(own, "planned(payload jsonb) returns jsonb", f"begin {body}; return payload; end", settings)


def supervised(own: Connection) -> UUID:
    """A task of the supervisor, in the namespace of its owner."""
    task_id: UUID = value(
        own,
        "select queues.enqueue('heist.run', %s)",
        [json.dumps({"task_type": "db_function", "db_function": "heist.act"})],
    )
    return task_id


def instance(own: Connection, number: int) -> UUID:
    """The wait key of a new instance."""
    own.execute("select queues.note_supervision('heist', %s, %s)", [number, supervised(own)])
    key: UUID = value(
        own,
        "select wait_key from queues.process_status where process = 'heist' and process_id = %s",
        [number],
    )
    return key


def called(way: str, house: Database, own: Connection) -> Any:
    """What its code says that it could do."""
    if way == "a worker, for a task":
        run = "select internal.run_function('heist.act', '{}', %s) -> 'payload'"
        return value(house.connect("holdfast_worker"), run, [supervised(own)])
    if way == "a worker, for an instance":
        run = "select internal.run_function('heist.act', '{}', %s) -> 'payload'"
        return value(house.connect("holdfast_worker"), run, [instance(own, 1)])
    if way == "its history":
        instance(own, 2)
        return json.loads(
            value(house.connect("desk"), "select reason from queues.process_history('heist', 2)")
        )
    if way == "its end":
        instance(own, 3)
        return json.loads(value(house.connect("desk"), "select queues.cancel_process('heist', 3)"))
    if way == "its end, by the administrator":
        instance(own, 4)
        return json.loads(value(house.connect(), "select queues.cancel_process('heist', 4)"))
    house.connect("desk").execute("select queues.start_process('heist', '{}')")
    return value(own, "select told from heist.loot")


@pytest.mark.parametrize(
    ("way", "namespace"),
    [
        ("a worker, for a task", "heistlogin"),
        ("a worker, for an instance", "heistlogin"),
        ("its history", "heistlogin"),
        ("its end", "heistlogin"),
        ("its end, by the administrator", "heistlogin"),
        ("its kickoff", "desk"),
    ],
)
def test_it_has_no_rights_of_whoever_has_it_called(
    house: Database, own: Connection, victim: UUID, way: str, namespace: str
) -> None:
    admin = house.connect()
    before = value(admin, "select queues.clock()")

    told = called(way, house, own)

    assert told == {
        "namespace": namespace,
        "reads_all": False,
        "rows": None,
        "refused": ["QF404", "QF404", "QF404", "QF403"],
        "roles": None,
    }
    assert value(admin, "select status from queues.task_status where task_id = %s", [victim]) == "pending"
    made = rows(
        admin,
        """select t.namespace from queues.task t
           where t.type in ('heist.simple', 'heist.more') and t.created_at >= %(at)s
           union select e.namespace from queues.outbox_event e
           where e.event_type = 'heist.done' and e.occurred_at >= %(at)s""",
        {"at": before},
    )
    assert [row["namespace"] for row in made] == ([] if way == "its history" else [namespace])


def test_a_worker_without_a_task_lends_its_namespace_and_no_role(
    worker: Connection, own: Connection, victim: UUID
) -> None:
    told = value(worker, "select internal.run_function('heist.act', '{}') -> 'payload'")

    assert (told["namespace"], told["roles"]) == ("holdfast_worker_login", None)
    assert told["refused"] == ["QF404", "QF404", "QF404", "QF403"]


def test_what_it_enqueues_belongs_to_the_namespace_of_its_task(
    house: Database, worker: Connection, own: Connection
) -> None:
    plan(
        own,
        """insert into heist.loot select to_jsonb(array[queues.enqueue('a.simple'),
             queues.enqueue('a.more', executor => 'db_function', idempotency_key => 'k')])""",
    )
    own.execute("truncate heist.loot")

    worker.execute("select internal.run_function('heist.planned', '{}', %s)", [supervised(own)])

    made = rows(
        house.connect(),
        """select namespace, enqueued_by from queues.task t
           where task_id::text in (select jsonb_array_elements_text(told) from heist.loot)""",
    )
    assert made == [{"namespace": "heistlogin", "enqueued_by": "holdfast_worker_login"}] * 2


def test_it_may_change_the_tasks_of_the_namespace_for_which_it_acts(
    house: Database, worker: Connection, own: Connection, victim: UUID
) -> None:
    """As the handlers of a process do, which an application has begun in its own namespace."""
    plan(own, "perform queues.cancel((select v.task_id from heist.victim v))")

    worker.execute("select internal.run_function('heist.planned', '{}', %s)", [victim])

    status = "select status from queues.task_status where task_id = %s"
    assert value(house.connect(), status, [victim]) == "cancelled"


def test_a_function_that_it_has_called_acts_for_the_same_namespace(
    house: Database, worker: Connection, own: Connection, victim: UUID
) -> None:
    plan(own, "perform queues.start_process('heist', '{}'); insert into heist.loot values (heist.tries())")
    worker.execute("select internal.run_function('heist.planned', '{}', %s)", [supervised(own)])

    for row in rows(own, "select told from heist.loot"):
        assert (row["told"]["namespace"], row["told"]["roles"]) == ("heistlogin", None)


@pytest.mark.parametrize("how", ["it returns", "it fails", "it is caught", "its history"])
def test_afterwards_the_session_acts_for_itself_again(
    house: Database, own: Connection, desk: Connection, victim: UUID, how: str
) -> None:
    instance(own, 10 + len(how))
    plan(own, "perform 1 / 0")
    desk.autocommit = False
    if how == "it returns":
        desk.execute("select queues.start_process('heist', '{}')")
    elif how == "its history":
        desk.execute("select queues.process_history('heist', %s)", [10 + len(how)])
    elif how == "it is caught":
        with pytest.raises(psycopg.Error), desk.transaction():
            desk.execute("select queues.start_process('heist', '{}'), 1 / 0")
    else:
        own.execute("drop function if exists heist.begun")
        create(own, "begun(input jsonb) returns bigint", "begin return 1 / 0; end")
        with pytest.raises(psycopg.Error), desk.transaction():
            desk.execute("select queues.start_process('heist', '{}')")
        create(own, "begun(input jsonb) returns bigint", FUNCTIONS["begun(input jsonb) returns bigint"])

    assert value(desk, "select queues.has_role('operator') and queues.may_read_all()")
    assert value(desk, "select queues.namespace()") == "desk"
    task = value(desk, "select queues.enqueue('a.b')")
    desk.commit()
    assert value(house.connect(), "select namespace from queues.task where task_id = %s", [task]) == "desk"
    assert value(house.connect(), "select count(*) from internal.call") == 0


@pytest.mark.parametrize(
    "body",
    [
        "delete from internal.call",
        "update internal.call set namespace = 'payer'",
        "perform internal.end_call()",
        "perform internal.begin_call('payer')",
    ],
)
def test_it_cannot_end_or_change_what_it_acts_for(worker: Connection, own: Connection, body: str) -> None:
    plan(own, body)

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        worker.execute("select internal.run_function('heist.planned', '{}')")


def test_its_acts_are_recorded_as_those_of_whoever_has_it_called(
    house: Database, own: Connection, desk: Connection, victim: UUID
) -> None:
    instance(own, 40)
    ended = "ended(id bigint, reason text) returns text"
    create(
        own,
        ended,
        """declare _told text;
           begin
             perform set_config('holdfast.acting_for', 'admin anna', true);
             _told := queues.actor();
             raise exception 'undo';
           exception when others then return _told;
           end""",
    )
    desk.autocommit = False
    desk.execute("set local holdfast.acting_for = 'bob'")
    told = value(desk, "select queues.cancel_process('heist', 40)")
    create(own, ended, FUNCTIONS[ended])

    assert told == "desk for bob"
    acting_for = "select current_setting('holdfast.acting_for', true)"
    assert value(desk, acting_for) == "bob"
    desk.commit()
    assert value(desk, acting_for) == ""


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("holdfast.acting_for", "admin anna"),
        ("holdfast.acting_for", ""),
        ("holdfast.quiet", "on"),
        ("statement_timeout", "1"),
        ("lock_timeout", "1"),
        ("default_transaction_read_only", "on"),
        ("standard_conforming_strings", "off"),
        ("TimeZone", "Asia/Tokyo"),
        ("transaction_read_only", "on"),
    ],
)
@pytest.mark.parametrize("local", [True, False], ids=["of the transaction", "of the session"])
def test_a_function_that_changes_a_setting_of_its_caller_is_undone(
    worker: Connection, own: Connection, name: str, given: str, local: bool
) -> None:
    plan(own, f"perform set_config('{name}', '{given}', {local})")
    before = value(worker, f"select current_setting('{name}', true)")

    with pytest.raises(psycopg.Error, match=f"changes {name} for the session") as caught:
        worker.execute("select internal.run_function('heist.planned', '{}')")

    assert caught.value.sqlstate == "QF412"
    assert value(worker, f"select coalesce(current_setting('{name}', true), '')") == (before or "")


def test_a_function_may_have_settings_of_its_own(worker: Connection, own: Connection) -> None:
    plan(own, "perform 1", "set statement_timeout = '5s' set timezone = 'UTC'")

    assert value(worker, "select internal.run_function('heist.planned', '{}')") == {}


def test_a_session_that_does_not_wait_for_the_disk_may_call_a_function_that_enqueues(
    worker: Connection, own: Connection
) -> None:
    plan(own, "perform queues.enqueue('heist.simple')")
    worker.execute("set synchronous_commit = off")

    assert value(worker, "select internal.run_function('heist.planned', '{}')") == {}


def test_a_missing_task_is_refused(worker: Connection, own: Connection) -> None:
    plan(own, "perform 1")

    with pytest.raises(psycopg.Error, match="there is no task 0000"):
        worker.execute("select internal.run_function('heist.planned', '{}', %s)", [UUID(int=1)])
