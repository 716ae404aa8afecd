"""Grants logins their roles, and revokes them: in a database, or on a front and on all its shards."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from textwrap import indent
from typing import Any

import psycopg

from holdfast._engine import Engine
from holdfast._engine.roles import ROLES, memberships, missing_grants, role_facts
from holdfast.errors import ConfigurationError, NotAllowed, NotFound, NotInstalled, translate
from holdfast.shards.front import mappings_of
from holdfast.shards.migration import listed


class Purpose(StrEnum):
    """What a login is for."""

    CLIENT = "client"
    WORKER = "worker"
    WEB = "web"
    DISPATCHER = "dispatcher"
    OPERATOR = "operator"
    READER = "reader"
    PROCESS = "process"
    ALL = "all"


PURPOSES = {
    Purpose.CLIENT: ("client",),
    Purpose.WORKER: ("worker", "client"),  # handlers enqueue tasks, and a worker declares schedules
    Purpose.WEB: ("operator", "client"),
    Purpose.DISPATCHER: ("dispatcher",),
    Purpose.OPERATOR: ("operator",),
    Purpose.READER: ("reader",),
    Purpose.PROCESS: ("process",),
    Purpose.ALL: ("process", "worker", "dispatcher", "operator"),  # these include client and reader
}

_NOT_ALLOWED = "42501"
FRONT = "front"


@dataclass(frozen=True)
class Statements:
    """What one database needs. Its name is that of a shard or `front`; without shards there is none."""

    database: str | None
    statements: list[str]


@dataclass(frozen=True)
class Logins:
    """A database, or a front with its shards, in which logins are granted roles."""

    url: str
    shards: Mapping[str, str]

    def to_grant(self, login: str, purposes: Sequence[Purpose]) -> list[Statements]:
        """The statements that are missing, for each database."""
        roles = _roles_of(purposes)

        def missing(connection: psycopg.Connection[Any], database: str | None) -> list[str]:
            found = Engine(connection).run(missing_grants(roles, login=login))
            statements = [one.statement for one in found if one.statement]
            return statements + (
                mappings_of(connection, listed(self.shards), login) if database == FRONT else []
            )

        return self._each(login, missing)

    def to_revoke(self, login: str, purposes: Sequence[Purpose]) -> list[Statements]:
        """The statements that take the roles away, as far as they were granted to the login itself."""
        roles = _roles_of(purposes)
        return self._each(login, lambda connection, _: Engine(connection).run(memberships(login, roles)))

    def apply(self, planned: Sequence[Statements]) -> None:
        """Run them, in one transaction for each database."""
        urls = self._urls()
        for one in planned:
            try:
                with psycopg.connect(urls[one.database], client_encoding="utf-8") as connection:
                    for statement in one.statements:
                        connection.execute(statement.encode())
            except psycopg.Error as error:
                raise _explained(error, planned) from error

    def _urls(self) -> dict[str | None, str]:
        if not self.shards:
            return {None: self.url}
        found: dict[str | None, str] = {FRONT: self.url}
        return found | dict(self.shards)

    def _each(
        self, login: str, find: Callable[[psycopg.Connection[Any], str | None], list[str]]
    ) -> list[Statements]:
        planned = []
        absent: list[str] = []
        for database, url in self._urls().items():
            try:
                with psycopg.connect(url, client_encoding="utf-8") as connection:
                    if _check(connection, login):
                        planned.append(Statements(database, find(connection, database)))
                    else:
                        absent.append(f" on {database}" if database else "")
            except psycopg.Error as error:
                raise translate(error) from error
        if absent:
            name = psycopg.sql.Identifier(login).as_string(None)
            raise NotFound(
                f"the login {login!r} does not exist{','.join(absent)}",
                hint=f"Have a DBA create it: create role {name} login password '…';",
            )
        return planned


def _check(connection: psycopg.Connection[Any], login: str) -> bool:
    """Return whether the login exists. There must be roles that it could be granted."""
    facts = Engine(connection).run(role_facts(login))
    if facts.single_login is not None:
        raise ConfigurationError(
            f"this database was installed for the single login {facts.single_login}, so there are no roles"
        )
    if facts.roles < len(ROLES):
        raise NotInstalled("this server has no roles of Holdfast", hint="Run holdfast migrate.")
    return facts.login_exists


def _roles_of(purposes: Sequence[Purpose]) -> list[str]:
    return list(dict.fromkeys(role for purpose in purposes for role in PURPOSES[purpose]))


def _explained(error: psycopg.Error, planned: Sequence[Statements]) -> Exception:
    if error.sqlstate != _NOT_ALLOWED:
        return translate(error)
    return NotAllowed(
        f"this login may not do that ({error.diag.message_primary}). Have a DBA run this:\n\n"
        + indent(as_script(planned), "  "),
        sqlstate=error.sqlstate,
    )


def as_script(planned: Sequence[Statements]) -> str:
    """The statements for psql. Those of several databases are preceded by their names."""
    lines: list[str] = []
    for one in planned:
        if one.statements:
            lines += [f"-- {one.database}"] if one.database else []
            lines += [f"{statement};" for statement in one.statements]
    return "\n".join(lines)
