"""What the pages print for people to copy runs as printed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast._install.postgres.installation import binaries
from holdfast._install.schema import migrate
from holdfast.errors import MigrationRefused
from holdfast.shards.logins import Logins, Purpose
from support.documents import DOCS, blocks, code
from support.server import disposable_home, disposable_server

MARK = "-- next block --"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A machine without earlier use of Holdfast: no DATABASE_URL, an empty home."""
    with disposable_home() as home:
        path = f"{Path(sys.executable).parent}:{binaries()}:{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        inherited.pop("DATABASE_URL", None)
        yield inherited | {"HOLDFAST_HOME": str(home), "PATH": path, "PGOPTIONS": ""}


def _run(command: list[str], environment: dict[str, str], cwd: Path) -> str:
    ran = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.full
def test_the_page_about_psql_runs_as_printed(environment: dict[str, str], tmp_path: Path) -> None:
    found = blocks((DOCS / "howto" / "work-from-psql.md").read_text())
    commands = [text for language, text in found if language == "sh"]
    script = f"\necho '{MARK}'\n".join(["set -eu", *commands])
    printed = _run(["bash", "-c", script], environment, tmp_path).split(f"{MARK}\n")[1:]
    expected = _expected(found)
    assert len(printed) == len(expected) == len(commands)
    for answer, wanted in zip(printed, expected, strict=True):
        if wanted is not None:
            assert answer == wanted


def test_the_page_for_a_dba_prepares_a_server_for_a_login_without_rights_of_its_own() -> None:
    preparation, logins = code((DOCS / "howto" / "install-as-a-dba.md").read_text(), "sql")
    with disposable_server() as server:
        with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
            admin.execute("create database app")
            admin.execute("create role app_deploy login")
            deploy = make_conninfo(server.url("app"), user="app_deploy")
            with pytest.raises(MigrationRefused) as refused:
                migrate(deploy)
            printed = re.findall(r"^  (.*;)$", str(refused.value), re.MULTILINE)
            assert printed == preparation.strip().splitlines()
            admin.execute(preparation.encode())
            assert migrate(deploy).action == "install"
            admin.execute(logins.encode())
        granting = Logins(server.url("app"), {})
        granting.apply(granting.to_grant("shop", [Purpose.CLIENT]))
        granting.apply(granting.to_grant("shop_worker", [Purpose.WORKER]))
        with psycopg.connect(make_conninfo(server.url("app"), user="shop")) as client:
            client.execute("select queues.enqueue('mail.welcome')")
        with psycopg.connect(make_conninfo(server.url("app"), user="shop_worker")) as worker:
            claimed = worker.execute("select type from queues.claim('w1', 1, array['mail'])").fetchall()
            assert claimed == [("mail.welcome",)]
            for forbidden in ("select from queues.task", "select queues.pause('mail')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege), worker.transaction():
                    worker.execute(forbidden.encode())


def _expected(found: list[tuple[str, str]]) -> list[str | None]:
    """What the page says that each command prints: the text block right after it, if there is one."""
    following = [*found[1:], ("", "")]
    return [
        answer if kind == "text" else None
        for (language, _), (kind, answer) in zip(found, following, strict=True)
        if language == "sh"
    ]
