from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast._install.schema import SCHEMA_VERSION, Migration, Sources, migrate
from holdfast.errors import TransactionConflict
from support.database import Database
from support.fingerprint import fingerprint
from support.releases import Release


@contextmanager
def migrating_behind(
    holder: psycopg.Connection[Any],
    database: Database,
    dsn: str,
    lines: list[str],
    waited: timedelta = timedelta(0),
) -> Iterator[Future[Migration]]:
    """A migration that has waited so long for a session, which ends its transaction in the block."""
    observer = database.connect()
    blocked = """
        select from pg_locks l
        where not l.granted and %s = any (pg_blocking_pids(l.pid)) and clock_timestamp() - l.waitstart > %s
    """
    with ThreadPoolExecutor(1) as pool:
        migration = pool.submit(migrate, dsn, echo=lines.append)
        try:
            while not observer.execute(blocked, [holder.info.backend_pid, waited]).fetchall():
                assert not migration.done(), migration.result()
            yield migration
        finally:
            holder.rollback()


def test_ten_at_once_install_once_and_the_others_find_it_done(blank: Database) -> None:
    # With a snapshot from before the wait, the second would not see what the first has installed.
    isolation = f"alter database {blank.name} set default_transaction_isolation = 'repeatable read'"
    blank.connect().execute(isolation.encode())
    together = Barrier(10)
    lines: list[str] = []

    def run(_: int) -> str:
        together.wait()
        return migrate(blank.dsn, echo=lines.append).action

    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(run, range(10)))
    assert sorted(done) == ["install", *["nothing"] * 9]
    assert lines.count("replacing functions and views") == 1


def test_two_databases_of_one_server_at_once_share_their_roles(new_database: Callable[[], Database]) -> None:
    first, second = new_database(), new_database()
    lines: list[str] = []
    # The first has created the roles and not committed yet when the second finds that there are none.
    migrating = first.connect(autocommit=False)
    migrating.execute(Sources().section("rights.sql", "roles").sql.encode())

    with migrating_behind(migrating, first, second.dsn, lines) as migration:
        migrating.commit()
        assert migration.result().action == "install"
    assert "trying again (1 of" in lines[0]
    migrate(first.dsn)
    assert fingerprint(first.connect()) == fingerprint(second.connect())


def test_a_lock_on_a_table_is_not_waited_for_but_tried_again(blank: Database, release: Release) -> None:
    migrate(blank.dsn)
    reader = blank.connect(autocommit=False)
    reader.execute("lock table queues.task in access share mode")
    release.write(
        f"migrations/{SCHEMA_VERSION + 1:04}_next.sql", "alter table queues.task add column extra text;"
    )
    lines: list[str] = []

    def let_go(line: str) -> None:
        lines.append(line)
        if "trying again" in line:
            reader.rollback()

    assert migrate(blank.dsn, sources=release.sources, echo=let_go).action == "upgrade"
    tried_again = [line for line in lines if "trying again" in line]
    holder = f"session {reader.info.backend_pid} of login {reader.info.user} holds queues.task"
    assert tried_again == [f"a table is in use ({holder}): trying again (1 of 20)"]


def test_of_two_who_wait_for_each_other_it_is_the_migration_that_gives_way(
    blank: Database, release: Release
) -> None:
    migrate(blank.dsn)
    client = blank.connect(autocommit=False)
    client.execute("lock table queues.outcome in access share mode")
    release.write(
        f"migrations/{SCHEMA_VERSION + 1:04}_next.sql", "alter table queues.task add column extra text;"
    )
    lines: list[str] = []
    observer = blank.connect()
    with ThreadPoolExecutor(1) as pool:
        migration = pool.submit(migrate, blank.dsn, sources=release.sources, echo=lines.append)
        waits = "select from pg_locks where not granted and %s = any (pg_blocking_pids(pid))"
        while not observer.execute(waits, [client.info.backend_pid]).fetchall():
            assert not migration.done(), migration.result()
        client.execute("select from queues.lane")  # the migration has it, and waits for us
        while not lines:
            assert not migration.done(), migration.result()
        client.commit()
        assert migration.result().action == "upgrade"
    holder = f"session {client.info.backend_pid} of login {client.info.user} holds queues."
    assert any(line.startswith(f"a table is in use ({holder}") for line in lines), lines


def test_a_lock_that_is_never_had_is_given_up(
    blank: Database, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(blank.dsn)
    before = fingerprint(blank.connect())
    reader = blank.connect(autocommit=False)
    reader.execute("lock table queues.task in access share mode")
    release.write(
        f"migrations/{SCHEMA_VERSION + 1:04}_next.sql", "alter table queues.task add column extra text;"
    )
    monkeypatch.setattr("holdfast._install.schema.migration._MAX_ATTEMPTS", 1)
    holder = rf"session {reader.info.backend_pid} of login {reader.info.user} holds queues\.task"
    with pytest.raises(
        TransactionConflict, match=rf"a table is in use \({holder}\), 1 times\. Nothing was changed"
    ):
        migrate(blank.dsn, sources=release.sources)
    assert fingerprint(blank.connect()) == before


@pytest.mark.full
def test_another_migration_is_waited_for_and_named(blank: Database) -> None:
    migrate(blank.dsn)
    admin = blank.connect()
    admin.execute("create role hasty superuser login")
    admin.execute("alter role hasty set lock_timeout = '100ms'")
    admin.execute("alter role hasty set statement_timeout = '500ms'")
    other = blank.connect(autocommit=False)
    other.execute("set holdfast.owner = 'holdfast_owner'")
    other.execute(Sources().section("install.sql", "wait_for_others").sql.encode())

    lines: list[str] = []
    hasty, longer = make_conninfo(blank.dsn, user="hasty"), timedelta(seconds=0.6)
    with migrating_behind(other, blank, hasty, lines, longer) as migration:
        while not lines:
            assert not migration.done(), migration.result()
        other.commit()
        assert migration.result().action == "nothing"
    holder = f"session {other.info.backend_pid} of login {other.info.user}"
    assert lines[0] == f"another migration of this database is running ({holder}): trying again (1 of 20)"


@pytest.mark.full
def test_a_migration_that_never_ends_is_given_up(blank: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(blank.dsn)
    other = blank.connect(autocommit=False)
    other.execute("set holdfast.owner = 'holdfast_owner'")
    other.execute(Sources().section("install.sql", "wait_for_others").sql.encode())
    monkeypatch.setattr("holdfast._install.schema.migration._MAX_ATTEMPTS", 1)
    with pytest.raises(
        TransactionConflict, match=r"another migration of this database is running \(session \d+ of"
    ):
        migrate(blank.dsn, force=True)


def test_a_login_without_any_role_cannot_hold_up_a_migration(blank: Database) -> None:
    migrate(blank.dsn)
    blank.connect().execute("create role stranger login")
    stranger = blank.connect("stranger", autocommit=False)
    for mode in ("access share", "share update exclusive"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(f"lock table queues.installation in {mode} mode".encode())
        stranger.rollback()
    stranger.execute("select pg_advisory_lock(hashtextextended('holdfast migrate', 0))")

    lines: list[str] = []
    assert migrate(blank.dsn, force=True, echo=lines.append).action == "replay"
    assert lines == ["replacing functions and views"]
