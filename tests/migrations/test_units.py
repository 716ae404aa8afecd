"""Units of installation: what a database does without, how a unit is added, and that none is removed."""

import re
from collections.abc import Callable
from itertools import combinations
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from holdfast._install.schema import SCHEMA_VERSION, Choice, Migration, Sources, migrate, plan, script
from holdfast._install.schema.sources import Part
from holdfast.errors import ConfigurationError, MigrationRefused
from holdfast.sql.optional_units import CORE, NAMES
from support.database import Database
from support.fingerprint import fingerprint
from support.releases import Release, version_1

Psql = Callable[[str, str], str]
STATED = r"(?m)^create (?:or replace )?(?:unlogged )?(?:function|table|view|type|sequence) (\w+\.\w+)"
COMBINATIONS = [
    frozenset(left_out) for size in range(len(NAMES) + 1) for left_out in combinations(NAMES, size)
]
OBJECTS = """
  select n.nspname || '.' || o.name
  from (
    select p.pronamespace as schema, p.proname as name from pg_proc p
    union all select c.relnamespace, c.relname from pg_class c
    union all select t.typnamespace, t.typname from pg_type t) o
  join pg_namespace n on n.oid = o.schema
  where n.nspname in ('queues', 'internal', 'comms')
"""
BODIES = """
  select p.oid::regprocedure::text, p.prosrc from pg_proc p
  where p.pronamespace::regnamespace::text in ('queues', 'internal', 'comms')
  union all
  select c.oid::regclass::text, pg_get_viewdef(c.oid) from pg_class c
  where c.relkind = 'v' and c.relnamespace::regnamespace::text in ('queues', 'internal', 'comms')
"""
STATEMENTS = """
  select pg_get_functiondef(p.oid) from pg_proc p
  where p.pronamespace::regnamespace::text in ('queues', 'internal', 'comms')
"""


def without(*units: str) -> Choice:
    return Choice(unwanted=frozenset(units))


def adding(*units: str) -> Choice:
    return Choice(wanted=frozenset(units))


def objects(connection: psycopg.Connection[Any]) -> set[str]:
    return {name for (name,) in connection.execute(OBJECTS.encode()).fetchall()}


def installed(connection: psycopg.Connection[Any]) -> list[str]:
    row = connection.execute("select queues.installed_units()").fetchone()
    assert row
    return list(row[0])


def stated(part: Part) -> set[str]:
    return {
        name for pieces in part.pieces.values() for piece in pieces for name in re.findall(STATED, piece.sql)
    }


def names_in(body: str) -> set[str]:
    return set(re.findall(r"\b(?:queues|internal|comms)\.\w+[a-z0-9]\b(?!%)", re.sub(r"--.*", "", body)))


@pytest.mark.parametrize("left_out", COMBINATIONS, ids=lambda names: "-".join(sorted(names)) or "all")
def test_every_combination_is_whole_and_has_nothing_of_what_was_left_out(
    blank: Database, left_out: frozenset[str]
) -> None:
    migrate(blank.dsn, choice=without(*left_out))
    admin = blank.connect()
    here = objects(admin)

    assert installed(admin) == [CORE, *sorted(set(NAMES) - left_out)]
    for unit, absent in zip(Sources().units, Sources().absent, strict=True):
        if unit.name in left_out:
            assert stated(unit) - stated(absent) != set()
            assert here & (stated(unit) - stated(absent)) == set()
    assert ("messages" in left_out) == (
        admin.execute("select to_regnamespace('comms') is null").fetchone() == (True,)
    )
    bodies = admin.execute(BODIES.encode()).fetchall()
    assert {name: names_in(body) - here for name, body in bodies if names_in(body) - here} == {}
    admin.execute("set check_function_bodies = on")
    for (statement,) in admin.execute(STATEMENTS.encode()).fetchall():
        admin.execute(statement.encode())


def test_what_takes_the_place_of_a_unit_has_the_parameters_and_results_of_the_unit() -> None:
    header = r"(?s)create or replace function (\w+\.\w+)(\(.*?)\s+language\b"
    for unit, absent in zip(Sources().units, Sources().absent, strict=True):
        own = dict(found for piece in unit.of("functions") for found in re.findall(header, piece.sql))
        instead = dict(found for piece in absent.of("functions") for found in re.findall(header, piece.sql))
        assert instead != {}
        assert {name: own[name] for name in instead} == instead


def test_the_rest_of_the_engine_works_without_any_unit(blank: Database) -> None:
    migrate(blank.dsn, choice=without(*NAMES))
    client, worker = blank.connect("holdfast_client"), blank.connect("holdfast_worker")
    operator = blank.connect("holdfast_operator")
    for n in range(3):
        client.execute("select queues.enqueue('demo.echo', %s::jsonb)", (f'{{"n": {n}}}',))
    claimed = worker.execute(
        "select task_id, token from queues.claim('w', 10, queues => '{demo}')"
    ).fetchall()
    assert len(claimed) == 3
    (good, token), (bad, _), (cancelled, _) = claimed
    results = Jsonb(
        [
            {"task_id": str(good), "token": token, "status": "succeeded"},
            {
                "task_id": str(bad),
                "token": token,
                "status": "failed",
                "error": {"kind": "x", "message": "x"},
            },
        ]
    )
    worker.execute("select * from queues.finish('w', %s)", (results,))
    operator.execute("select queues.cancel(%s)", (cancelled,))
    statuses = client.execute("select task_id, status from queues.task_status").fetchall()
    assert dict(statuses) == {good: "succeeded", bad: "failed", cancelled: "cancelled"}

    for statement in (
        "select * from queues.sweep(100)",
        "select * from queues.recover_workers()",
        "select queues.take_sample()",
        "select queues.tidy_lanes()",
        "select queues.do_chores(kind) from unnest(array['wake', 'join', 'cancel', 'waiter']) k(kind)",
        "select queues.prune(status) from unnest('{succeeded,history,messages,steps}'::text[]) s(status)",
    ):
        worker.execute(statement.encode())
    for task_id in (good, bad, cancelled):
        assert operator.execute("select * from queues.explain(%s)", (task_id,)).fetchall() != []
        operator.execute("select * from queues.related_to(%s)", (task_id,))
    operator.execute("select queues.retry(%s)", (bad,))
    red = operator.execute("select * from queues.health() where level = 'red'").fetchall()
    assert red == []
    admin = blank.connect()
    admin.execute("delete from queues.outcome; truncate queues.ready; set holdfast.retention = on")
    admin.execute("delete from queues.task")
    admin.execute("select queues.take_shard_settings(queues.shard_settings())")


def test_a_later_migration_keeps_the_choice_and_says_what_is_missing(
    blank: Database, release: Release
) -> None:
    done = migrate(blank.dsn, choice=without("messages", "events"))
    assert str(done) == f"installed version {SCHEMA_VERSION} of the schema, without messages and events"
    again = migrate(blank.dsn)
    assert again == Migration("nothing", SCHEMA_VERSION, SCHEMA_VERSION, missing=("messages", "events"))
    assert str(again).endswith(", without messages and events")
    release.write("migrations/0099_nothing.sql", "")
    upgraded = migrate(blank.dsn, sources=release.sources)
    assert (upgraded.action, upgraded.missing) == ("upgrade", ("messages", "events"))
    assert installed(blank.connect()) == ["core", "web"]


@pytest.mark.parametrize("way", ["python", "psql"])
def test_an_added_unit_is_the_same_as_one_that_was_there_from_the_beginning(
    new_database: Callable[[], Database], psql: Psql, way: str
) -> None:
    whole, grown = new_database(), new_database()
    migrate(whole.dsn)
    migrate(grown.dsn, choice=without(*NAMES))
    if way == "python":
        found = plan(grown.dsn, choice=adding("events"))
        assert found.pending == (
            f"pending: add events to version {SCHEMA_VERSION} of the schema, without messages and web"
        )
        done = migrate(grown.dsn, choice=adding(*NAMES))
        assert (done.action, done.added, done.missing) == ("replay", NAMES, ())
        assert str(done) == f"added messages, events and web to version {SCHEMA_VERSION} of the schema"
    else:
        assert psql(grown.dsn, script(choice=adding(*NAMES))) == "done\n"
    assert fingerprint(grown.connect()) == fingerprint(whole.connect())
    assert migrate(grown.dsn).action == "nothing"


def test_psql_leaves_out_what_the_script_was_made_without(blank: Database, psql: Psql) -> None:
    printed = script(choice=without("messages"))
    assert "create table comms." not in printed
    assert psql(blank.dsn, printed) == "done\n"
    assert psql(blank.dsn, printed) == "nothing to do\n"
    assert psql(blank.dsn, script()) == "nothing to do\n"
    assert installed(blank.connect()) == ["core", "events", "web"]


def test_a_unit_that_is_installed_is_not_removed(blank: Database) -> None:
    migrate(blank.dsn)
    before = fingerprint(blank.connect())
    with pytest.raises(MigrationRefused, match="This database has events, and Holdfast removes no unit"):
        migrate(blank.dsn, choice=without("events"))
    assert fingerprint(blank.connect()) == before


def test_a_database_from_before_there_were_units_has_all_of_them(
    blank: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    migrate(blank.dsn, sources=version_1(tmp_path_factory.mktemp("version_1")))
    with pytest.raises(MigrationRefused, match="This database has messages"):
        plan(blank.dsn, choice=without("messages"))
    assert migrate(blank.dsn) == Migration("upgrade", 1, SCHEMA_VERSION)
    assert installed(blank.connect()) == ["core", "events", "messages", "web"]


def changed(connection: psycopg.Connection[Any], before: dict[str, Any]) -> set[str]:
    return {name for name, xmin in versions(connection).items() if before.get(name) != xmin}


def versions(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """The transaction that last wrote the body of each function."""
    found = connection.execute(
        "select p.oid::regproc::text, md5(p.prosrc || p.oid::text) from pg_proc p "
        "where p.pronamespace::regnamespace::text in ('queues', 'internal', 'comms')"
    )
    return dict(found.fetchall())


def test_a_changed_unit_replaces_only_its_own_functions(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    admin = blank.connect()
    admin.execute(
        "create or replace function queues.check_attribute(field text, value text) returns void "
        "language sql set search_path = pg_catalog, pg_temp as $$ select $$"
    )
    admin.execute(
        "create or replace function queues.total_bytes() returns bigint "
        "language sql set search_path = pg_catalog, pg_temp as $$ select 1::bigint $$"
    )
    before = versions(admin)
    release.append("units/events/events.sql", "-- changed\n")
    assert migrate(blank.dsn, sources=release.sources).action == "replay"

    assert changed(admin, before) == {"queues.check_attribute"}
    assert migrate(blank.dsn, sources=release.sources).action == "nothing"


def test_a_view_that_cannot_be_replaced_has_all_units_replaced(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    before = fingerprint(blank.connect())
    release.replace(
        "units/events.sql",
        "select d.dispatcher_id, d.hostname,",
        "select d.hostname as host, d.dispatcher_id, d.hostname,",
    )
    migrate(blank.dsn, sources=release.sources)
    migrate(blank.dsn, sources=Sources())

    assert fingerprint(blank.connect()) == before


def test_a_migration_of_a_unit_is_left_out_where_the_unit_is(
    new_database: Callable[[], Database], release: Release
) -> None:
    whole, small = new_database(), new_database()
    migrate(whole.dsn)
    migrate(small.dsn, choice=without("events"))
    release.write(
        "units/events/migrations/0099_more.sql", "alter table queues.dispatcher add column more text;"
    )
    assert migrate(whole.dsn, sources=release.sources).to_version == 99
    assert migrate(small.dsn, sources=release.sources).to_version == 99

    there = "select count(*) from pg_attribute where attname = 'more'"
    assert whole.connect().execute(there).fetchone() == (1,)
    assert small.connect().execute(there).fetchone() == (0,)


def test_a_schema_of_somebody_else_is_left_alone_where_its_unit_is_left_out(blank: Database) -> None:
    dba = blank.connect()
    dba.execute("create schema comms; create table comms.mine (); grant all on schema comms to public")
    with pytest.raises(MigrationRefused, match="schema comms, which belongs to postgres"):
        migrate(blank.dsn)
    rights = "select nspacl::text from pg_namespace where nspname = 'comms'"
    before = dba.execute(rights).fetchone()
    migrate(blank.dsn, choice=without("messages"))
    migrate(blank.dsn, force=True)
    assert dba.execute(rights).fetchone() == before
    with pytest.raises(MigrationRefused, match="schema comms, which belongs to postgres"):
        migrate(blank.dsn, choice=adding("messages"))


def test_a_login_that_may_not_create_a_schema_is_told_what_a_dba_has_to_run(blank: Database) -> None:
    migrate(blank.dsn, choice=without("messages"))
    dba = blank.connect()
    dba.execute("create role deployer login in role holdfast_owner")
    url = make_conninfo(blank.dsn, user="deployer")
    with pytest.raises(MigrationRefused, match=f"grant create on database {blank.name} to deployer;"):
        migrate(url, choice=adding("messages"))
    dba.execute(f"grant create on database {blank.name} to deployer".encode())
    assert migrate(url, choice=adding("messages")).added == ("messages",)


def test_a_single_login_may_do_without_units_too(blank: Database) -> None:
    dba = blank.connect()
    dba.execute(f"create role app login; alter database {blank.name} owner to app")
    url = make_conninfo(blank.dsn, user="app")
    done = migrate(url, single_login=True, choice=without("messages", "web"))
    assert str(done).endswith(", without messages and web, for a single login")
    assert migrate(url, choice=adding("web")).added == ("web",)
    assert installed(dba) == ["core", "events", "web"]


def test_a_choice_names_known_units_and_does_not_contradict_itself() -> None:
    with pytest.raises(ConfigurationError, match=r"'mesages'.*did you mean 'messages'"):
        without("mesages")
    with pytest.raises(ConfigurationError, match="'core'"):
        without("core")
    with pytest.raises(ConfigurationError, match="events cannot be both installed and left out"):
        Choice(frozenset({"events"}), frozenset({"events"}))
