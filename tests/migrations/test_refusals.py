import re
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast._install.schema import SCHEMA_VERSION, migrate, plan
from holdfast.errors import DatabaseUnavailable, MigrationRefused
from support.database import Database
from support.fingerprint import fingerprint
from support.releases import Release


def traces(connection: psycopg.Connection[Any]) -> list[Any]:
    """The roles, and everything in the schemas."""
    found = connection.execute("""
        select rolname::text from pg_roles where rolname like 'holdfast%'
        union all
        select pg_describe_object(d.classid, d.objid, 0)
        from pg_depend d join pg_namespace n on n.oid = d.refobjid
        where d.refclassid = 'pg_namespace'::regclass and n.nspname in ('queues', 'internal', 'comms')
        order by 1
    """)
    return found.fetchall()


@pytest.mark.parametrize(
    ("somebody", "named"),
    [
        ("create schema queues; create table queues.mine ()", "table queues.mine"),
        ("create schema internal; create function internal.mine() returns int language sql as 'select 1'",
         "function internal.mine()"),
        ("create schema queues; create type queues.mine as enum ('a')", "type queues.mine"),
        ("create schema queues", "schema queues, which belongs to postgres"),
        ("create schema comms; create table comms.mine ()", "table comms.mine"),
    ],
)  # fmt: skip
def test_schemas_that_are_somebody_elses_are_refused(blank: Database, somebody: str, named: str) -> None:
    connection = blank.connect()
    connection.execute(somebody.encode())
    before = traces(connection)
    with pytest.raises(MigrationRefused) as refused:
        migrate(blank.dsn)
    assert named in str(refused.value)
    assert traces(connection) == before


def test_a_schema_of_another_owner_is_refused_with_the_same_words_to_every_login(
    blank: Database,
) -> None:
    migrate(blank.dsn)
    admin = blank.connect()
    admin.execute("drop schema queues, internal, comms cascade")
    admin.execute("create schema comms; create role deployer login in role holdfast_owner")
    admin.execute(f"grant create on database {blank.name} to deployer".encode())

    with pytest.raises(MigrationRefused, match="schema comms, which belongs to postgres"):
        migrate(make_conninfo(blank.dsn, user="deployer"))


def test_a_foreign_object_among_ours_is_refused(blank: Database) -> None:
    migrate(blank.dsn)
    blank.connect().execute("create table queues.mine ()")
    with pytest.raises(MigrationRefused, match=r"table queues\.mine"):
        migrate(blank.dsn, force=True)


def test_objects_of_the_owner_without_a_recorded_version_are_refused(blank: Database) -> None:
    migrate(blank.dsn)
    connection = blank.connect()
    connection.execute("delete from queues.installation")
    with pytest.raises(MigrationRefused, match=r"queues\.installation is empty"):
        migrate(blank.dsn)
    connection.execute("drop table queues.installation")
    with pytest.raises(MigrationRefused, match=r"no queues\.installation"):
        migrate(blank.dsn)


def test_an_empty_schema_that_a_dba_made_for_the_owner_is_used(blank: Database) -> None:
    blank.connect().execute("create role holdfast_owner; create schema queues authorization holdfast_owner")
    assert migrate(blank.dsn).action == "install"


@pytest.mark.parametrize("force", [False, True])
def test_a_schema_newer_than_the_code_is_refused(blank: Database, release: Release, force: bool) -> None:
    release.write(f"migrations/{SCHEMA_VERSION + 1:04}_next.sql", "")
    migrate(blank.dsn, sources=release.sources)
    before = fingerprint(blank.connect())
    with pytest.raises(
        MigrationRefused, match=rf"version {SCHEMA_VERSION + 1} .* knows version {SCHEMA_VERSION}"
    ):
        migrate(blank.dsn, force=force)
    assert fingerprint(blank.connect()) == before


@pytest.mark.parametrize(
    ("installed", "refused"), [("0.0.9", False), ("0.1.0", False), ("0.10.0", True), ("1.0rc1", True)]
)
def test_functions_of_a_newer_release_are_only_replaced_on_purpose(
    blank: Database, installed: str, refused: bool
) -> None:
    migrate(blank.dsn)
    blank.connect().execute("update queues.installation set release = %s", [installed])
    blank.connect().execute("update queues.unit set digest = 'other' where unit = 'core'")
    if refused:
        with pytest.raises(MigrationRefused, match=f"those of Holdfast {installed}"):
            migrate(blank.dsn)
    assert migrate(blank.dsn, force=refused).action == "replay"


def test_a_server_that_is_too_old_is_refused(blank: Database, release: Release) -> None:
    release.replace("install.sql", "< 150000", "< 990000")
    with pytest.raises(MigrationRefused, match="PostgreSQL 15 or later is needed, and this is "):
        migrate(blank.dsn, sources=release.sources)
    assert traces(blank.connect()) == []


def test_a_database_whose_text_may_be_anything_is_refused(blank: Database) -> None:
    name = f"{blank.name}_ascii"
    blank.connect().execute(f"create database {name} encoding 'SQL_ASCII' template template0 locale 'C'")
    try:
        with pytest.raises(MigrationRefused, match="UTF8 is needed, and this one is in SQL_ASCII"):
            migrate(make_conninfo(blank.dsn, dbname=name))
    finally:
        blank.connect().execute(f"drop database {name}")


def test_a_server_that_is_not_there_is_not_a_refusal(blank: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        migrate(make_conninfo(blank.dsn, dbname="nowhere"))
    with pytest.raises(DatabaseUnavailable):
        migrate(make_conninfo(blank.dsn, host="/nowhere"))


def statements_for_dba(message: str) -> str:
    assert "Have a DBA run this, then migrate again:" in message
    return "".join(re.findall(r"^  (.*;)$", message, re.MULTILINE))


def test_a_login_without_rights_is_told_what_a_dba_has_to_run_and_then_migrates(blank: Database) -> None:
    dba = blank.connect()
    dba.execute('create role "Deploy-er" login')
    login = make_conninfo(blank.dsn, user="Deploy-er")
    with pytest.raises(MigrationRefused) as refused:
        migrate(login)
    assert traces(dba) == []

    dba.execute(statements_for_dba(str(refused.value)).encode())
    assert migrate(login).action == "install"
    assert migrate(login).action == "nothing"
    dba.execute(f'revoke create on database {blank.name} from "Deploy-er"'.encode())
    assert migrate(login, force=True).action == "replay"


def test_a_dba_is_asked_for_nothing_that_is_there_already(blank: Database) -> None:
    dba = blank.connect()
    dba.execute("create role deployer login")
    migrate(blank.dsn)
    with pytest.raises(MigrationRefused) as refused:
        plan(make_conninfo(blank.dsn, user="deployer"))
    assert statements_for_dba(str(refused.value)) == "grant holdfast_owner to deployer;"


def test_a_login_that_creates_roles_needs_only_a_place_for_its_schemas(blank: Database) -> None:
    dba = blank.connect()
    dba.execute("create role deployer login createrole")
    login = make_conninfo(blank.dsn, user="deployer")
    with pytest.raises(MigrationRefused) as refused:
        migrate(login)
    assert statements_for_dba(str(refused.value)) == f"grant create on database {blank.name} to deployer;"

    dba.execute(statements_for_dba(str(refused.value)).encode())
    assert migrate(login).action == "install"


def test_who_migrates_does_not_show_in_the_schema(blank: Database) -> None:
    migrate(blank.dsn)
    by_superuser = fingerprint(blank.connect())
    blank.connect().execute("drop schema queues, internal, comms cascade")
    blank.connect().execute("create role deployer login noinherit; grant holdfast_owner to deployer")
    blank.connect().execute(f"grant create on database {blank.name} to deployer".encode())
    migrate(make_conninfo(blank.dsn, user="deployer"))
    assert fingerprint(blank.connect()) == by_superuser
