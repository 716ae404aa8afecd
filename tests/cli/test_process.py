"""The command as a process of its own: what a shell sees."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast._install.postgres.embedded_server import EmbeddedServer
from support.database import Database
from support.server import disposable_home

COMMAND = str(Path(sys.executable).with_name("holdfast"))


def shell(*arguments: str | bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return subprocess.run(
        [COMMAND, *arguments], env=inherited | environment, capture_output=True, check=False, timeout=60
    )


@pytest.fixture
def blank(server: EmbeddedServer) -> Iterator[str]:
    """The address of a database in which nothing is installed."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        admin.execute("create database blank")
        yield make_conninfo(server.url("postgres"), dbname="blank")
        admin.execute("drop database blank with (force)")


def test_a_database_without_the_schema_says_what_to_run(blank: str) -> None:
    for command in (["queues"], ["enqueue", "a.b"], ["list", "--json"]):
        refused = shell(*command, DATABASE_URL=blank)
        assert (refused.returncode, refused.stdout) == (6, b"")
        assert refused.stderr.endswith(b"Run holdfast migrate.\n")
        assert b"Traceback" not in refused.stderr


def test_a_server_that_is_not_there_exits_with_5() -> None:
    refused = shell("queues", DATABASE_URL="postgresql://localhost:1/nothing")
    assert (refused.returncode, refused.stdout) == (5, b"")
    assert refused.stderr.startswith(b"holdfast: the database cannot be reached: ")
    assert b"Traceback" not in refused.stderr


def test_an_address_that_is_none_exits_with_2() -> None:
    refused = shell("queues", "--database-url", "postgresql://[")
    assert refused.returncode == 2
    assert b"Traceback" not in refused.stderr


def test_bytes_that_are_not_utf_8_are_refused_without_a_traceback(db: Database) -> None:
    refused = shell("enqueue", b"caf\xe9", DATABASE_URL=db.dsn)
    assert refused.returncode == 2
    assert b"type holds '\\udce9' at position 3, which is not a character" in refused.stderr


def test_a_locale_without_the_characters_loses_none(db: Database) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "DATABASE_URL": db.dsn}
    task_id = shell("enqueue", "a.b", "--key", "snowman ☃", **ascii_only).stdout.strip()
    shown = shell("show", task_id, **ascii_only)
    assert shown.returncode == 0
    assert b"snowman \\u2603" in shown.stdout


def test_there_is_no_colour_without_a_terminal(db: Database) -> None:
    shell("enqueue", "a.b", DATABASE_URL=db.dsn)
    assert b"\x1b" not in shell("list", DATABASE_URL=db.dsn, TERM="xterm-256color").stdout


@pytest.mark.full
def test_without_an_address_the_embedded_server_is_used_and_named_by_what_starts_it_or_fails(
    tmp_path: Path,
) -> None:
    with disposable_home() as home:
        settings = {"HOLDFAST_HOME": str(home)}
        migrated = shell("migrate", **settings)
        listed = shell("list", "--json", **settings)
        missing = shell("show", "nothing", **settings)
    assert json.loads(listed.stdout) == {"tasks": [], "next_before": None}
    assert listed.stderr == b""
    for said in (migrated.stderr, missing.stderr):
        assert said.startswith(b"No DATABASE_URL: using the embedded PostgreSQL")
    assert (migrated.returncode, missing.returncode) == (0, 4)


@pytest.mark.full
def test_the_shell_completes_statuses_and_commands() -> None:
    def complete(words: str, word_index: int) -> str:
        return shell(
            _HOLDFAST_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(word_index)
        ).stdout.decode()

    assert set(complete("holdfast list --status ", 3).split()) >= {"scheduled", "dead_letter", "cancelled"}
    assert complete("holdfast list --status dead", 3).split() == ["dead_letter"]
    assert complete("holdfast enqueue a.b --executor db", 4).split() == ["db_function"]
    assert {"enqueue", "retry", "why"} <= set(complete("holdfast ", 1).split())


def test_help_says_what_the_exit_codes_mean() -> None:
    told = " ".join(shell("--help").stdout.decode().split())
    assert "Exit codes: 0 success" in told
