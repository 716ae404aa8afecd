import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from holdfast._install.schema import SCHEMA_VERSION, Migration, migrate, script
from holdfast.errors import MigrationRefused
from support.database import Database
from support.fingerprint import fingerprint
from support.releases import Release

Psql = Callable[[str, str], str]

NEXT = SCHEMA_VERSION + 1
MIGRATION = f"migrations/{NEXT:04}_next.sql"

# Rows that come with the schema. A release may add to them; what people have changed stays.
SEEDS = """
  select to_jsonb(e) from queues.executor e union all select to_jsonb(s) from queues.setting s
  union all select to_jsonb(c) from comms.send_cap c order by 1
"""


def snapshot(database: Database) -> dict[str, Any]:
    connection = database.connect()
    return fingerprint(connection) | {"seeds": connection.execute(SEEDS).fetchall()}


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """By object, because the difference of two whole schemas is unreadable."""
    names = sorted(one.keys() | other.keys())
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}


@pytest.fixture
def next_release(release: Release) -> Release:
    """Whatever a release may do to tables, functions, views and grants, all at once."""
    release.replace("schema/20_fleet.sql", "  term bigint not null,", "  term bigint not null,\n  note text,")
    release.replace("schema/20_fleet.sql", "  leader_until timestamptz not null\n", "  leader_until date\n")
    release.write(
        MIGRATION,
        """
        drop view queues.worker_status;
        drop table queues.leadership;
        create table queues.leadership (
          only_one boolean constraint one_leader primary key default true
            constraint only_true check (only_one),
          worker_id text not null,
          term bigint not null,
          note text,
          leader_since timestamptz not null,
          leader_until date
        ) with (fillfactor = 50);
        comment on table queues.leadership is 'The worker that is the leader, and until when.';
        """,
    )
    release.change_function("may_read_all", "returns boolean", "returns text")
    release.change_function("may_read_all", "select queues.has_role", "select 'x' where queues.has_role")
    readers = sorted(
        str(path.relative_to(release.root))
        for path in [release.root / "views.sql", *release.root.glob("units/*.sql")]
        if "(select queues.may_read_all())" in path.read_text()
    )
    assert len(readers) > 1
    for name in readers:
        release.replace(name, "(select queues.may_read_all())", "(select queues.may_read_all() is not null)")
    release.change_function("queue_act", "select a.act_id, a.queue,", "select a.queue, a.act_id,")
    release.remove_function("mark_idle")
    release.replace("rights.sql", "queues.mark_idle, ", "")
    release.replace("rights.sql", "grant execute on function internal.run_function to", "-- ")
    release.write(
        "functions/busy.sql",
        """-- Marks a worker as busy.
        create or replace function queues.mark_busy(worker_id text, busy boolean default true)
        returns void
        language sql volatile
        as $$ select $$;
        """,
    )
    return release


@pytest.mark.parametrize("how", ["python", "psql"])
def test_an_upgrade_to_a_release_that_changes_everything_is_identical_to_its_fresh_install(
    new_database: Callable[[], Database], psql: Psql, next_release: Release, how: str
) -> None:
    fresh, upgraded = new_database(), new_database()
    migrate(fresh.dsn, sources=next_release.sources)
    migrate(upgraded.dsn)
    assert snapshot(upgraded) != snapshot(fresh)

    if how == "psql":
        assert psql(upgraded.dsn, script(next_release.sources)) == "done\n"
    else:
        assert migrate(upgraded.dsn, sources=next_release.sources) == Migration(
            "upgrade", SCHEMA_VERSION, NEXT
        )
    assert differences(snapshot(upgraded), snapshot(fresh)) == {}
    assert migrate(upgraded.dsn, sources=next_release.sources).action == "nothing"


def test_a_migration_is_applied_once(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    release.write(MIGRATION, "create table queues.extra ();")
    migrate(blank.dsn, sources=release.sources)
    release.write(f"migrations/{NEXT + 1:04}_more.sql", "create table queues.more ();")
    lines: list[str] = []
    assert migrate(blank.dsn, sources=release.sources, echo=lines.append) == Migration(
        "upgrade", NEXT, NEXT + 1
    )
    assert [line for line in lines if "applying" in line] == [f"applying migrations/{NEXT + 1:04}_more.sql"]


def test_a_failing_migration_changes_nothing(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    before = snapshot(blank)
    release.write(MIGRATION, "drop table queues.leadership cascade; select 1/0;")
    with pytest.raises(MigrationRefused, match=rf"^{MIGRATION}: division by zero. Nothing was changed.$"):
        migrate(blank.dsn, sources=release.sources)
    assert differences(snapshot(blank), before) == {}


@pytest.mark.full
@pytest.mark.parametrize(
    "change",
    [
        "drop function queues.clock cascade",
        "alter function queues.claim security invoker",
        "alter function queues.finish reset all",
        "grant execute on function queues.claim to public",
        "grant select on queues.task to holdfast_reader",
        "revoke execute on function queues.claim from holdfast_worker",
        "create function queues.left_over() returns void language sql as ''",
        "create function queues.claim(text) returns void language sql as ''",
        "create view queues.left_over as select 1 as one",
        "comment on function queues.claim is 'hm'",
        "alter default privileges for role holdfast_owner grant execute on functions to public",
        "alter view queues.task_status reset (security_barrier)",
    ],
)
def test_a_forced_replay_puts_back_what_was_changed_by_hand(blank: Database, change: str) -> None:
    migrate(blank.dsn)
    before = snapshot(blank)
    hand = blank.connect()
    hand.execute(f"set role holdfast_owner; {change}".encode())
    assert snapshot(blank) != before

    assert migrate(blank.dsn).action == "nothing"
    assert migrate(blank.dsn, force=True).action == "replay"
    assert differences(snapshot(blank), before) == {}


def test_a_database_of_a_release_without_the_role_that_calls_functions_gets_it(blank: Database) -> None:
    migrate(blank.dsn)
    before = snapshot(blank)
    admin = blank.connect()
    admin.execute("drop function internal.call_function")
    admin.execute("drop owned by holdfast_caller")
    admin.execute("drop role holdfast_caller")

    assert migrate(blank.dsn, force=True).action == "replay"
    assert differences(snapshot(blank), before) == {}
    admin.execute("select internal.run_function('comms.repair_send_email', '{}')")
    assert migrate(blank.dsn, force=True).action == "replay"
    assert differences(snapshot(blank), before) == {}


def test_functions_are_replayed_when_the_release_has_others(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    before = snapshot(blank)
    release.replace("functions/checks.sql", "Returns the current time", "Returns the present time")
    assert migrate(blank.dsn, sources=release.sources).action == "replay"
    assert snapshot(blank) != before
    assert migrate(blank.dsn).action == "replay"
    assert differences(snapshot(blank), before) == {}


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(worker_id text, idle boolean)", "(worker_id text, idle boolean, since interval)"),
        ("(worker_id text, idle boolean)", "(worker_id text, is_idle boolean)"),
        ("(worker_id text, idle boolean)", "(worker_id text, idle text)"),
        ("(worker_id text, idle boolean)", "(worker_id text, idle boolean default true)"),
        ("returns boolean", "returns text"),
        ("returns boolean", "returns setof boolean"),
        ("returns boolean", "returns table (idle_now boolean)"),
    ],
)
def test_a_new_signature_takes_the_place_of_the_old_one(
    blank: Database, release: Release, old: str, new: str
) -> None:
    release.change_function("mark_idle", old, new)
    migrate(blank.dsn)
    before = snapshot(blank)
    for sources, expected in [(release.sources, 1), (None, 1)]:  # there and back again
        migrate(blank.dsn, sources=sources)
        found = blank.connect().execute("select count(*) from pg_proc where proname = 'mark_idle'").fetchone()
        assert found == (expected,)
    assert differences(snapshot(blank), before) == {}


def test_an_unchanged_function_stays_the_same_object(blank: Database) -> None:
    """A session that has just looked a function up would not find it if it were dropped and created again."""
    migrate(blank.dsn)
    oids = """
        select oid, oid::regprocedure::text from pg_proc where pronamespace = 'queues'::regnamespace
        union all select oid, oid::regclass::text from pg_class where relnamespace = 'queues'::regnamespace
        order by 1
    """
    before = blank.connect().execute(oids).fetchall()
    migrate(blank.dsn, force=True)
    assert blank.connect().execute(oids).fetchall() == before


def test_a_view_that_gains_a_column_keeps_what_is_built_on_it(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    blank.connect().execute("create view public.mine as select queue from queues.queue_act")
    release.change_function("queue_act", "a.reason\n", "a.reason, a.data\n")
    migrate(blank.dsn, sources=release.sources)
    assert blank.connect().execute("select data from queues.queue_act").fetchall() == []


def test_a_view_that_must_go_is_not_taken_from_under_what_is_built_on_it(
    blank: Database, release: Release
) -> None:
    migrate(blank.dsn)
    blank.connect().execute("create view public.mine as select queue from queues.queue_act")
    before = snapshot(blank)
    release.change_function("queue_act", "a.act_id, ", "")
    with pytest.raises(MigrationRefused, match=r"view (public\.)?mine depends on view queues.queue_act"):
        migrate(blank.dsn, sources=release.sources)
    assert differences(snapshot(blank), before) == {}


def test_a_worker_in_the_middle_of_a_transaction_goes_on(blank: Database) -> None:
    migrate(blank.dsn)
    blank.connect().execute("select queues.enqueue('demo.echo')")
    worker = blank.connect("holdfast_worker", autocommit=False)
    claimed = worker.execute("select task_id, token from queues.claim('w', queues => '{demo}')").fetchone()
    assert claimed

    lines: list[str] = []
    migrate(blank.dsn, force=True, echo=lines.append)
    assert lines == ["replacing functions and views"]

    result = f'[{{"task_id": "{claimed[0]}", "token": {claimed[1]}, "status": "succeeded"}}]'
    verdict = worker.execute("select verdict from queues.finish('w', %s::jsonb)", [result]).fetchone()
    worker.commit()
    assert verdict == ("accepted",)


@contextmanager
def claiming(connection: psycopg.Connection[Any]) -> Iterator[list[int]]:
    """Claims one task after the other meanwhile; an error is raised at the end."""
    claims: list[int] = [0]
    problems: list[psycopg.Error] = []
    stop = Event()

    def claim() -> None:
        try:
            while not stop.is_set():
                connection.execute("select task_id from queues.claim('w', queues => '{demo}')")
                claims[0] += 1
        except psycopg.Error as error:
            problems.append(error)

    thread = Thread(target=claim)
    thread.start()
    try:
        yield claims
    finally:
        stop.set()
        thread.join()
    assert problems == []


def test_a_worker_that_claims_meanwhile_never_sees_an_error(blank: Database) -> None:
    migrate(blank.dsn)
    tasks = json.dumps([{"type": "demo.echo"}] * 500)
    blank.connect().execute("select queues.enqueue_many(%s::jsonb)", [tasks])
    with claiming(blank.connect("holdfast_worker")) as claims:
        for _ in range(3):
            before = claims[0]
            migrate(blank.dsn, force=True)
            assert claims[0] > before
