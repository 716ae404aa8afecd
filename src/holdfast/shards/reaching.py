"""Asks the server of a front whether it can connect to a shard as the logins that use the front.

It has passwords of its own, such as those of `.pgpass`: that an administrator can connect does not show them.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql

from holdfast.errors import MigrationRefused, translate
from holdfast.shards.front import Shard, logins_of

MAX_NAMED = 20
"""If the host of a shard does not answer, the server of the front waits for a while, for each login."""
_PROBE = "holdfast_probe"


def require_reached(front: str, first: Shard, new: Shard) -> None:
    """Refuse a shard unless the front can connect to it as each login as which it connects to the first."""
    try:
        with psycopg.connect(front, client_encoding="utf-8", autocommit=True) as connection:
            refused = dict(_refused(connection, first, new))
    except psycopg.Error as error:
        raise translate(error) from error
    if refused:
        names, problem = ", ".join(refused), next(iter(refused.values()))
        raise MigrationRefused(
            f"the server of the front cannot connect to shard {new.name} as {names}: {problem}. It gets no "
            "tasks yet. Have a DBA let that server connect there as these logins (lines in its .pgpass, or "
            "certificates, and pg_hba.conf of the shard). Then run this command again."
        )


def _refused(connection: psycopg.Connection[Any], first: Shard, new: Shard) -> Iterator[tuple[str, str]]:
    """Not those that do not use the front: the first shard refuses them as well."""
    named = 0
    for login in logins_of(connection):
        problem = _problem(connection, new, login)
        if problem is not None and _problem(connection, first, login) is None:
            yield login, problem
            named += 1
            if named == MAX_NAMED:
                return


def _problem(connection: psycopg.Connection[Any], shard: Shard, login: str) -> str | None:
    """Why the server of the front cannot connect to this shard as this login. Leaves nothing behind."""
    options = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in shard.address.items()
    ]
    statements = (
        sql.SQL("create server {probe} foreign data wrapper postgres_fdw options ({options})"),
        sql.SQL(
            "create user mapping for current_user server {probe}"
            " options (user {login}, password_required 'false')"
        ),
        sql.SQL(
            "create foreign table holdfast_front.{probe} (datname name) server {probe}"
            " options (schema_name 'pg_catalog', table_name 'pg_database')"
        ),
    )
    names = {
        "probe": sql.Identifier(_PROBE),
        "login": sql.Literal(login),
        "options": sql.SQL(", ").join(options),
    }
    with connection.transaction(force_rollback=True):
        for statement in statements:
            connection.execute(statement.format(**names))
        try:
            with connection.transaction():
                connection.execute(sql.SQL("select from holdfast_front.{probe} limit 1").format(**names))
        except psycopg.Error as error:
            return (error.diag.message_detail or error.diag.message_primary or str(error)).strip()
    return None
