"""holdfast grant and revoke, and what health says about a login that lacks a role."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from holdfast.shards.logins import PURPOSES, Purpose
from support.command import holdfast
from support.commands import run
from support.database import Database

LOGIN = "Grant-ed"


@pytest.fixture
def login(db: Database) -> Iterator[str]:
    """A login without any role. Logins belong to the whole server."""
    admin = db.connect()
    admin.execute(f'create role "{LOGIN}" login')
    yield make_conninfo(db.dsn, user=LOGIN)
    admin.execute(f'drop owned by "{LOGIN}"; drop role "{LOGIN}"')


def roles_of(db: Database) -> set[str]:
    found = db.connect().execute(
        """select r.rolname from pg_roles r
           where r.rolname like 'holdfast\\_%%' and not r.rolcanlogin and pg_has_role(%s, r.oid, 'usage')""",
        [LOGIN],
    )
    return {name.removeprefix("holdfast_") for (name,) in found.fetchall()}


@pytest.mark.parametrize(
    ("purpose", "expected"),
    [
        ("client", {"client"}),
        ("worker", {"worker", "client"}),
        ("web", {"operator", "reader", "client"}),
        ("dispatcher", {"dispatcher"}),
        ("operator", {"operator", "reader"}),
        ("reader", {"reader"}),
        ("process", {"process", "client"}),
        ("all", {"client", "process", "worker", "dispatcher", "operator", "reader"}),
    ],
)
@pytest.mark.usefixtures("login")
def test_a_login_gets_the_roles_of_its_purpose_and_loses_them_again(
    db: Database, purpose: str, expected: set[str]
) -> None:
    assert run("grant", LOGIN, "--as", purpose, url=db.dsn).exit_code == 0
    assert roles_of(db) == expected
    again = run("grant", LOGIN, "--as", purpose, url=db.dsn)
    assert again.stdout.startswith(f"{LOGIN} already has holdfast_{PURPOSES[Purpose(purpose)][0]}")
    assert run("revoke", LOGIN, "--as", purpose, url=db.dsn).exit_code == 0
    assert roles_of(db) == set()


@pytest.mark.usefixtures("login")
def test_the_printed_statements_do_the_same(db: Database) -> None:
    printed = run("grant", LOGIN, "--as", "web", "--as", "worker", "--print", url=db.dsn)
    assert printed.stdout == f'grant holdfast_operator, holdfast_client, holdfast_worker to "{LOGIN}";\n'
    assert roles_of(db) == set()
    db.connect().execute(printed.stdout.encode())
    assert roles_of(db) == {"client", "worker", "operator", "reader"}
    assert (
        run("grant", LOGIN, "--as", "web", "--print", url=db.dsn).stdout == f"-- nothing to do for {LOGIN}\n"
    )


@pytest.mark.usefixtures("login")
def test_a_login_that_does_not_inherit_gets_the_rights_all_the_same(db: Database) -> None:
    db.connect().execute(f'alter role "{LOGIN}" noinherit')
    assert run("grant", LOGIN, "--as", "reader", url=db.dsn).exit_code == 0
    assert roles_of(db) == {"reader"}


@pytest.mark.usefixtures("login")
def test_programs_get_a_document(db: Database) -> None:
    done = json.loads(run("grant", LOGIN, "--as", "reader", "--json", url=db.dsn).stdout)
    statements = [f'grant holdfast_reader to "{LOGIN}"']
    assert done == {"login": LOGIN, "done": True, "databases": [{"database": None, "statements": statements}]}


def test_a_login_that_does_not_exist_is_named_with_the_statement_that_creates_it(db: Database) -> None:
    refused = run("grant", "no body", "--as", "client", url=db.dsn)
    assert refused.exit_code == 4
    assert 'create role "no body" login' in refused.stderr


def test_an_unknown_purpose_is_refused(db: Database) -> None:
    assert run("grant", LOGIN, "--as", "worked", url=db.dsn).exit_code == 2


def test_whoever_may_not_grant_is_told_what_a_dba_has_to_run(db: Database, login: str) -> None:
    refused = run("grant", LOGIN, "--as", "client", url=login)
    assert refused.exit_code == 7
    assert f'grant holdfast_client to "{LOGIN}";' in refused.stderr
    assert roles_of(db) == set()


@pytest.mark.usefixtures("login")
def test_a_database_without_roles_has_none_to_grant(db: Database) -> None:
    # As if it was installed for this login alone.
    db.connect().execute(f'alter table queues.installation owner to "{LOGIN}"')
    refused = run("grant", LOGIN, "--as", "client", url=db.dsn)
    assert refused.exit_code == 2
    assert f'installed for the single login "{LOGIN}"' in refused.stderr


@pytest.mark.parametrize(("command", "role"), [("worker", "worker"), ("dispatch", "dispatcher")])
def test_a_process_without_its_role_ends_with_the_statement(
    login: str, tmp_path: Path, command: str, role: str
) -> None:
    with holdfast(command, cwd=tmp_path, DATABASE_URL=login) as process:
        assert process.ended() == 7
        statement = f'Have a DBA run: grant holdfast_{role} to "{LOGIN}";'
        assert "".join(process.read).count(statement) == 1


def test_a_role_that_lacks_another_makes_health_red(db: Database) -> None:
    admin = db.connect(autocommit=False)
    admin.execute("revoke holdfast_operator from holdfast_owner")
    found = admin.execute(
        "select level, subject, facts from queues.health() where check_name = 'missing_grant'"
    )
    assert found.fetchall() == [("red", "holdfast_owner", {"role": "holdfast_operator"})]
    admin.rollback()


def test_health_is_red_until_the_login_may_read_it(db: Database, login: str) -> None:
    assert run("health", url=login).exit_code == 2
    run("grant", LOGIN, "--as", "reader", url=db.dsn)
    assert "missing_grant" not in run("health", "--all", url=login).stdout
