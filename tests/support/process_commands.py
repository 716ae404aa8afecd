"""The commands `holdfast process`, run in this process, and one row of what they leave in the database."""

from collections.abc import Callable
from typing import Any

import psycopg
from typer.testing import CliRunner

from support.commands import app
from support.database import Database

ProcessCommand = Callable[..., Any]


def process_commands(db: Database) -> ProcessCommand:
    """Takes the words after `holdfast process` and the exit code that they must have; returns the output."""

    def call(*words: str, code: int = 0) -> str:
        answer = CliRunner().invoke(app, ["process", *words, "--database-url", db.dsn])
        assert answer.exit_code == code, answer.output
        return answer.output

    return call


def value_of(conn: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = conn.execute(query.encode()).fetchone()
    assert row
    return tuple(row)
