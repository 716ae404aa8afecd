"""The server's connections to the database. Each call runs with the rights of a role and names the actor."""

import asyncio
from typing import Literal, TypeVar

import psycopg
from psycopg import sql

from holdfast._connections.pool import AsyncPool, AsyncWork
from holdfast._connections.session import PLAIN, DatabaseAddress, DatabaseFacts
from holdfast._engine import AsyncEngine
from holdfast.errors import NotAllowed

T = TypeVar("T")
Role = Literal["holdfast_client", "holdfast_reader", "holdfast_operator"]

POOL_SIZE = 5
SLOT_SECONDS = 5.0
STATEMENT_SECONDS = 15
REPLY_SECONDS = 20.0
_NOT_ALLOWED = "42501"

# For the transaction only: a pooler would pass settings of the session on to other clients.
# A front reads its shards as the login, and passes the role on to them. A single login has no role to set.
_TRANSACTION_SETTINGS = """
select set_config('{role}', %s, true), set_config('holdfast.partial', 'on', true),
  set_config('holdfast.acting_for', %s, true),
  set_config('statement_timeout', '{timeout}', true), set_config('lock_timeout', '3s', true), {may}
"""


class RolePool:
    """The server's connections in one event loop. Each call is a transaction with the rights of a role."""

    def __init__(self, address: DatabaseAddress, size: int = POOL_SIZE) -> None:
        self._address = address
        self._pool = AsyncPool(address, size, slot_seconds=SLOT_SECONDS, reply_seconds=REPLY_SECONDS)

    async def run(
        self,
        role: Role,
        work: AsyncWork[T],
        *,
        actor: str = "",
        repeatable: bool = True,
        statement_seconds: int = STATEMENT_SECONDS,
    ) -> T:
        """Run the work in a transaction. Repeat it if that is allowed and the connection was lost."""

        async def transaction(engine: AsyncEngine) -> T:
            async with engine.connection.transaction():
                try:
                    await _assume(engine, self._address.facts or PLAIN, role, actor, statement_seconds)
                    return await work(engine)
                except asyncio.CancelledError:
                    # The client has left. The server rolls back when the connection is gone.
                    engine.connection.pgconn.finish()
                    raise

        return await self._pool.run(transaction, repeatable=repeatable)

    def close(self) -> None:
        self._pool.close()


async def _assume(
    engine: AsyncEngine, facts: DatabaseFacts, role: Role, actor: str, statement_seconds: int
) -> None:
    front, has_roles, _ = facts
    settings = _TRANSACTION_SETTINGS.format(
        role="role" if has_roles and not front else "holdfast.role",
        timeout="0" if front else f"{statement_seconds}s",  # see _LIMIT of _connections/pool.py
        may=f"pg_has_role('{role}', 'member')" if front else "true",
    )
    try:
        # If psycopg prepared it, a rollback would make psycopg deallocate the statements of the engine too.
        reply = await engine.connection.execute(settings.encode(), (role, actor), prepare=False)
        row = await reply.fetchone()
    except psycopg.Error as error:
        if error.sqlstate != _NOT_ALLOWED:
            raise
        raise _refusal(engine.connection.info.user, front) from error
    if row and not row[-1]:
        raise _refusal(engine.connection.info.user, front)


def _refusal(login: str, front: bool) -> NotAllowed:
    """The same words for each role: the log reports them once."""
    return NotAllowed(
        f"the login {login} of this server lacks a role",
        hint=f"Have a DBA run: grant holdfast_operator, holdfast_client to {_quoted(login)};"
        + (f" on the front and on every shard, or: holdfast grant {login} --as web" if front else ""),
        sqlstate=_NOT_ALLOWED,
    )


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)
