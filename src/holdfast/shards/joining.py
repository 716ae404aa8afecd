"""What a new shard needs before it gets tasks: the grants and the settings of the first one.

Tasks without a key go to any shard of a front. A shard that lacks a grant would refuse some of them, and one
without the limits would run too many.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from holdfast._install.schema import Sources
from holdfast._install.schema.migration import become_owner, in_transaction
from holdfast.errors import MigrationRefused
from holdfast.shards.front import Shard, grants_query

Grant = tuple[str, str]
"""A login and a role."""


def make_alike(first: Shard, new: Shard, sources: Sources) -> None:
    """Give a shard without tasks the grants and settings of the first. Refuse if a login is missing there."""

    def read(connection: psycopg.Connection[Any]) -> tuple[list[Grant], Any]:
        grants = grants_of(connection, sources)
        become_owner(connection)
        row = connection.execute("select queues.shard_settings()").fetchone()
        return grants, row[0] if row else {}

    wanted, settings = in_transaction(first.url, read)

    def write(connection: psycopg.Connection[Any]) -> None:
        has = grants_of(connection, sources)
        missing = [grant for grant in wanted if grant not in has]
        _require_logins(connection, [login for login, _ in missing])
        for login, role in missing:
            name = psycopg.sql.Identifier(login).as_string(None)
            connection.execute(f"grant {role} to {name}".encode())
        become_owner(connection)
        connection.execute("select queues.take_shard_settings(%s)", (Jsonb(settings),))

    in_transaction(new.url, write)


def has_tasks(shard: Shard) -> bool:
    """Whether a shard is in use: then its settings are changed by the commands for them, and not copied."""

    def work(connection: psycopg.Connection[Any]) -> bool:
        become_owner(connection)
        return connection.execute("select exists (select from queues.task)").fetchone() == (True,)

    return in_transaction(shard.url, work)


def grants_of(connection: psycopg.Connection[Any], sources: Sources) -> list[Grant]:
    return [(login, role) for login, role in connection.execute(grants_query(sources).encode()).fetchall()]


def _require_logins(connection: psycopg.Connection[Any], logins: Sequence[str]) -> None:
    found = connection.execute(
        "select l from unnest(%s::text[]) l where not exists (select from pg_roles r where r.rolname = l)",
        (sorted(set(logins)),),
    )
    if absent := [name for (name,) in found.fetchall()]:
        statements = " ".join(
            f"create role {psycopg.sql.Identifier(name).as_string(None)} login password '…';"
            for name in absent
        )
        raise MigrationRefused(
            f"the logins {', '.join(absent)} of the other shards do not exist on its server. It gets no "
            f"tasks yet. Have a DBA create them there, and let the front's server connect as them: "
            f"{statements} Then run this command again."
        )
