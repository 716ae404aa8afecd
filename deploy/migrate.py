"""Migrates the database and creates one login for each service. It may be repeated: passwords are set again.

The login of DATABASE_URL needs createrole and has to own the database; it need not be a superuser.
"""

# ruff: noqa: INP001 - a script, which is copied into the image of an application

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier, Literal

LOGINS = {"shop_worker": "worker", "shop_dispatcher": "dispatcher", "shop_web": "web"}
"""What each of them is for, as in holdfast grant."""


def _set_password(connection: psycopg.Connection[Any], login: str, password: str) -> None:
    """Encrypted here, so that no log of the server contains it."""
    known = connection.execute("select 1 from pg_catalog.pg_roles where rolname = %s", [login]).fetchone()
    encrypted = connection.pgconn.encrypt_password(password.encode(), login.encode()).decode()
    verb = SQL("alter") if known else SQL("create")
    statement = SQL("{} role {} login password {}")
    connection.execute(statement.format(verb, Identifier(login), Literal(encrypted)))


def _holdfast(*arguments: str) -> None:
    subprocess.run([Path(sys.executable).with_name("holdfast"), *arguments], check=True)


def main() -> None:
    _holdfast("migrate")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for login, purpose in LOGINS.items():
            _set_password(connection, login, os.environ[f"{purpose.upper()}_PASSWORD"])
    for login, purpose in LOGINS.items():
        _holdfast("grant", login, "--as", purpose)


if __name__ == "__main__":
    main()
