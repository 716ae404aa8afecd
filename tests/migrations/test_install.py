from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast import __version__
from holdfast._install.schema import SCHEMA_VERSION, Migration, Sources, migrate, plan, script
from support.database import Database
from support.fingerprint import fingerprint
from support.releases import Release

Psql = Callable[[str, str], str]


def installation(connection: psycopg.Connection[Any]) -> list[Any]:
    return connection.execute("select version, release, digest from queues.installation").fetchall()


def test_a_fresh_install_says_so_and_records_what_it_installed(blank: Database) -> None:
    lines: list[str] = []
    assert migrate(blank.dsn, echo=lines.append) == Migration("install", 0, SCHEMA_VERSION)
    assert lines == ["creating tables", "replacing functions and views"]
    assert installation(blank.connect()) == [(SCHEMA_VERSION, __version__, Sources().digest)]


def test_what_is_installed_works(blank: Database) -> None:
    migrate(blank.dsn)
    client, worker = blank.connect("holdfast_client"), blank.connect("holdfast_worker")
    enqueued = client.execute("select queues.enqueue('demo.echo')").fetchone()
    claimed = worker.execute("select task_id from queues.claim('w', queues => '{demo}')").fetchone()
    assert enqueued == claimed
    assert client.execute("select task_id from queues.list_tasks()").fetchone() == enqueued


def test_every_object_belongs_to_the_owner_but_the_one_that_calls_functions_of_others(
    blank: Database,
) -> None:
    migrate(blank.dsn)
    found = fingerprint(blank.connect())
    others = {
        name for name, facts in found.items() if facts.get("owner", "holdfast_owner") != "holdfast_owner"
    }
    assert [name for name in others if "internal.call_function" not in name] == []
    assert {found[name]["owner"] for name in others} == {"holdfast_caller"}


def test_a_second_run_has_nothing_to_do_and_writes_nothing(blank: Database) -> None:
    migrate(blank.dsn)
    connection = blank.connect()
    rows = "select xmin, oid, proname from pg_proc where pronamespace = 'queues'::regnamespace order by oid"
    before = connection.execute(rows).fetchall()

    assert migrate(blank.dsn) == Migration("nothing", SCHEMA_VERSION, SCHEMA_VERSION)
    assert connection.execute(rows).fetchall() == before


def test_a_plan_says_what_is_to_do_and_changes_nothing(blank: Database, release: Release) -> None:
    roles = "select count(*) from pg_roles where rolname like 'holdfast%'"
    assert plan(blank.dsn).action == "install"
    assert blank.connect().execute(roles).fetchone() == (0,)

    migrate(blank.dsn)
    assert plan(blank.dsn).action == "nothing"
    release.append("functions/checks.sql", "-- changed")
    assert plan(blank.dsn, sources=release.sources).action == "replay"
    release.write("migrations/0099_nothing.sql", "")
    assert plan(blank.dsn, sources=release.sources) == Migration("upgrade", SCHEMA_VERSION, 99)
    assert plan(blank.dsn).action == "nothing"


def test_psql_applies_the_script_and_gets_the_same_schema(
    new_database: Callable[[], Database], psql: Psql
) -> None:
    by_python, by_psql = new_database(), new_database()
    migrate(by_python.dsn)
    assert psql(by_psql.dsn, script()) == "done\n"

    assert fingerprint(by_psql.connect()) == fingerprint(by_python.connect())
    assert installation(by_psql.connect()) == installation(by_python.connect())
    assert migrate(by_psql.dsn).action == "nothing"


def test_the_defaults_of_a_database_do_not_matter(new_database: Callable[[], Database], psql: Psql) -> None:
    by_python, by_psql = new_database(), new_database()
    for database in (by_python, by_psql):
        for setting in ("isolation = 'serializable'", "deferrable = on", "read_only = on"):
            command = f"alter database {database.name} set default_transaction_{setting}"
            database.connect().execute(command.encode())
    migrate(by_python.dsn)
    psql(by_psql.dsn, script())
    assert fingerprint(by_psql.connect()) == fingerprint(by_python.connect())


def test_psql_applies_the_script_twice_and_the_second_time_does_nothing(blank: Database, psql: Psql) -> None:
    psql(blank.dsn, script())
    before = installation(blank.connect())
    assert psql(blank.dsn, script()) == "nothing to do\n"
    assert installation(blank.connect()) == before


def test_a_failing_install_leaves_nothing_behind(blank: Database, release: Release) -> None:
    release.append("rights.sql", "select 1/0;")
    with pytest.raises(Exception, match=r"rights\.sql: grants: division by zero"):
        migrate(blank.dsn, sources=release.sources)
    found = blank.connect().execute("""
        select nspname::text from pg_namespace where nspname in ('queues', 'internal', 'comms')
        union all select rolname from pg_roles where rolname like 'holdfast%'
    """)
    assert found.fetchall() == []


def test_a_function_that_is_stated_twice_is_refused(release: Release) -> None:
    release.append("functions/tasks.sql", release.function("clock"))
    with pytest.raises(ValueError, match=r"functions/tasks\.sql states queues\.clock a second time"):
        _ = release.sources.function_headers


def test_a_function_that_nothing_describes_is_refused(release: Release) -> None:
    release.append(
        "functions/tasks.sql",
        "-- ???\ncreate or replace function queues.x() returns void language sql as $$ select $$;\n",
    )
    with pytest.raises(ValueError, match=r"functions/tasks\.sql: what stands above queues\.x"):
        _ = release.sources.core.functions


def test_documents_are_compressed_with_lz4_where_the_server_has_it(blank: Database) -> None:
    migrate(blank.dsn)
    connection = blank.connect()

    offered = connection.execute(
        "select enumvals from pg_settings where name = 'default_toast_compression'"
    ).fetchone()
    methods = connection.execute(
        """select distinct a.attcompression::text from pg_attribute a
           where (a.attrelid, a.attname) in (('queues.task'::regclass, 'payload'),
             ('queues.outcome'::regclass, 'result'), ('queues.error'::regclass, 'message'),
             ('queues.error'::regclass, 'detail'))"""
    ).fetchall()

    assert offered is not None
    assert methods == [("l" if "lz4" in offered[0] else "",)]
