"""Installed for a single login: it owns everything, no other login gets anything, and it stays that way."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast._install.schema import install_test_clock, migrate, plan, script
from holdfast.errors import MigrationRefused
from support.database import Database
from support.fingerprint import fingerprint
from support.releases import Release

Psql = Callable[[str, str], str]
LOGIN = "App-Owner"


@pytest.fixture
def owned(blank: Database) -> Database:
    """A database whose owner may log in and nothing else, with a neighbour who may connect."""
    dba = blank.connect()
    dba.execute(f'create role "{LOGIN}" login; create role neighbour login')
    dba.execute(f'alter database {blank.name} owner to "{LOGIN}"')
    return blank


@pytest.fixture
def url(owned: Database) -> str:
    return make_conninfo(owned.dsn, user=LOGIN)


def rights_of_others(connection: psycopg.Connection[Any]) -> list[Any]:
    """Every object of the engine on which anybody but its owner has a right."""
    found = connection.execute(
        """
        with acl as (
          select 'schema' as name, n.oid as schema, n.nspowner as owner, n.nspacl as held, 'n'::"char" as kind
          from pg_namespace n
          union all
          select p.oid::regprocedure::text, p.pronamespace, p.proowner, p.proacl, 'f' from pg_proc p
          union all
          select c.oid::regclass::text, c.relnamespace, c.relowner, c.relacl,
            (case c.relkind when 'S' then 's' else 'r' end)::"char"
          from pg_class c where c.relkind in ('r', 'p', 'v', 'S')
          union all
          select c.oid::regclass || '.' || t.attname, c.relnamespace, c.relowner, t.attacl, 'c'
          from pg_attribute t join pg_class c on c.oid = t.attrelid)
        select a.name, h.grantee::regrole::text
        from acl a cross join lateral aclexplode(coalesce(a.held, acldefault(a.kind, a.owner))) h
        where a.schema::regnamespace::text in ('queues', 'internal', 'comms') and h.grantee <> a.owner
        """
    )
    return found.fetchall()


def test_no_roles_are_created_and_the_login_owns_everything(owned: Database, url: str) -> None:
    assert migrate(url, single_login=True).single_login
    roles = "select rolname from pg_roles where rolname like 'holdfast%'"
    assert owned.connect().execute(roles).fetchall() == []
    owners = {facts["owner"] for facts in fingerprint(owned.connect()).values() if "owner" in facts}
    assert owners == {f'"{LOGIN}"'}


def test_another_login_has_no_right_at_all_whatever_the_defaults_of_the_owner_are(
    owned: Database, url: str
) -> None:
    with psycopg.connect(url) as login:
        login.execute("alter default privileges grant all on tables to neighbour, public")
        login.execute("alter default privileges grant all on sequences to neighbour with grant option")
        login.execute("alter default privileges grant all on functions to neighbour")
        login.execute("alter default privileges grant all on schemas to neighbour, public")
    migrate(url, single_login=True)
    assert rights_of_others(owned.connect()) == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        owned.connect("neighbour").execute("select queues.enqueue('demo.echo')")


def test_what_was_granted_by_hand_is_revoked_by_the_next_replacement(owned: Database, url: str) -> None:
    migrate(url, single_login=True)
    with psycopg.connect(url) as login:
        login.execute("grant usage on schema queues to public; grant select on queues.task to neighbour")
        login.execute("grant select (token_hash) on queues.access_token to neighbour")
    migrate(url, force=True)
    assert rights_of_others(owned.connect()) == []


def test_the_defaults_of_the_login_for_its_own_schemas_stay_as_they_are(owned: Database, url: str) -> None:
    migrate(url, single_login=True)
    assert owned.connect().execute("select from pg_default_acl").fetchall() == []


def test_it_stays_that_way_without_being_asked_for_it(url: str, release: Release) -> None:
    migrate(url, single_login=True)
    assert plan(url).single_login
    assert migrate(url).action == "nothing"
    release.append("functions/checks.sql", "-- changed")
    assert (migrate(url, sources=release.sources).action, migrate(url).single_login) == ("replay", True)
    release.write("migrations/0099_nothing.sql", "")
    assert migrate(url, sources=release.sources).action == "upgrade"


def test_psql_applies_the_script_and_gets_the_same_schema(owned: Database, url: str, psql: Psql) -> None:
    migrate(url, single_login=True)
    by_python = fingerprint(owned.connect())
    with psycopg.connect(url) as login:
        login.execute("drop schema queues, internal, comms cascade")
    assert psql(url, script(single_login=True)) == "done\n"
    assert fingerprint(owned.connect()) == by_python
    assert psql(url, script(single_login=True)) == "nothing to do\n"


@pytest.mark.parametrize("single_login", [False, True])
def test_no_other_login_migrates_it(owned: Database, url: str, single_login: bool) -> None:
    migrate(url, single_login=True)
    for other in (owned.dsn, make_conninfo(owned.dsn, user="neighbour")):
        with pytest.raises(MigrationRefused, match='installed for the single login "App-Owner"'):
            migrate(other, single_login=single_login)


def test_a_database_with_roles_keeps_them(owned: Database, url: str) -> None:
    migrate(owned.dsn)
    with pytest.raises(MigrationRefused, match="installed with roles, and keeps them"):
        migrate(url, single_login=True)


def test_a_superuser_is_refused_because_its_functions_could_do_anything(owned: Database) -> None:
    with pytest.raises(MigrationRefused, match="The login postgres is a superuser"):
        migrate(owned.dsn, single_login=True)


def test_a_login_without_a_place_for_its_schemas_is_told_the_one_statement_that_it_needs(
    owned: Database,
) -> None:
    login = make_conninfo(owned.dsn, user="neighbour")
    with pytest.raises(MigrationRefused) as refused:
        migrate(login, single_login=True)
    statement = f"grant create on database {owned.name} to neighbour;"
    assert str(refused.value).endswith(f"\n\n  {statement}")
    owned.connect().execute(statement.encode())
    assert migrate(login, single_login=True).action == "install"


def test_schemas_that_a_neighbour_has_put_there_are_refused(owned: Database, url: str) -> None:
    dba = owned.connect()
    dba.execute(f"grant create on database {owned.name} to neighbour")
    owned.connect("neighbour").execute("create schema queues; create table queues.installation ()")
    with pytest.raises(MigrationRefused, match="single login neighbour"):
        migrate(url, single_login=True)
    with pytest.raises(MigrationRefused, match="single login neighbour"):
        migrate(owned.dsn)


def test_roles_of_another_database_of_the_server_do_not_matter(
    owned: Database, url: str, new_database: Callable[[], Database]
) -> None:
    migrate(new_database().dsn)
    dba = owned.connect()
    dba.execute(f'grant holdfast_owner to "{LOGIN}"; grant holdfast_operator, holdfast_worker to neighbour')
    migrate(url, single_login=True)
    assert rights_of_others(dba) == []
    with psycopg.connect(url, autocommit=True) as login:
        assert login.execute("select queues.may_read_all(), queues.has_role('owner')").fetchone() == (
            True,
            True,
        )


def test_the_clock_of_tests_can_be_installed(url: str) -> None:
    migrate(url, single_login=True)
    install_test_clock(url)
    with psycopg.connect(url) as login:
        assert login.execute("select queues.clock() is not null").fetchone() == (True,)


def test_only_functions_that_belong_to_the_login_are_called(owned: Database, url: str) -> None:
    """There is no role without rights that could call those of others."""
    migrate(url, single_login=True)
    made = """create function {}.run(payload jsonb) returns jsonb language sql security definer
        set search_path = pg_catalog, pg_temp as $$ select to_jsonb(current_user::text) $$;
        revoke all on function {}.run(jsonb) from public"""
    with psycopg.connect(url, autocommit=True) as login:
        login.execute(
            "create schema mine; create schema yours; grant create, usage on schema yours to neighbour"
        )
        login.execute(made.replace("{}", "mine").encode())
        with psycopg.connect(make_conninfo(url, user="neighbour"), autocommit=True) as neighbour:
            neighbour.execute(made.replace("{}", "yours").encode())
            neighbour.execute(f'grant execute on function yours.run(jsonb) to "{LOGIN}"'.encode())

        run = "select internal.run_function(%s, '{}')"
        assert login.execute(run, ["mine.run"]).fetchone() == (LOGIN,)
        with pytest.raises(psycopg.Error, match="there is no function") as caught:
            login.execute(run, ["yours.run"])
        assert caught.value.sqlstate == "QF404"
