"""Logins of a front: with the same roles on every shard, which each front reads as that login."""

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql

from holdfast.errors import InvalidArgument, TaskNotFound, did_you_mean, translate
from holdfast.shards.front import ROLES, map_logins
from holdfast.shards.migration import listed

ROLE_NAMES = tuple(role.removeprefix("holdfast_") for role in ROLES)


def admit(front: str, shards: Mapping[str, str], login: str, roles: Sequence[str]) -> None:
    """Grant the roles everywhere. The login must exist on every server: its password is not ours to know."""
    for role in roles:
        if role not in ROLE_NAMES:
            raise InvalidArgument(f"unknown role {role!r}{did_you_mean(role, ROLE_NAMES)}")
    places = {"front": front, **shards}
    try:
        missing = [name for name, url in places.items() if not _exists(url, login)]
        if missing:
            raise TaskNotFound(
                f"the login {login!r} does not exist on {', '.join(missing)}",
                hint=f'Create it there, with the same name: create role "{login}" login',
            )
        for url in places.values():
            _grant(url, login, roles)
        with psycopg.connect(front, client_encoding="utf-8") as connection:
            map_logins(connection, listed(shards))
    except psycopg.Error as error:
        raise translate(error) from error


def _exists(url: str, login: str) -> bool:
    with psycopg.connect(url, client_encoding="utf-8") as connection:
        row = connection.execute(
            "select exists (select from pg_catalog.pg_roles where rolname = %s and rolcanlogin)", (login,)
        ).fetchone()
    return bool(row and row[0])


def _grant(url: str, login: str, roles: Sequence[str]) -> None:
    with psycopg.connect(url, client_encoding="utf-8") as connection:
        for role in roles:
            connection.execute(
                sql.SQL("grant {} to {}").format(sql.Identifier(f"holdfast_{role}"), sql.Identifier(login))
            )
