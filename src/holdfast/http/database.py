"""Connections. Each call has no more rights than its kind needs, and says for whom it acts."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar

import psycopg

from holdfast.connections.session import DatabaseAddress, is_lost, open_async
from holdfast.engine import AsyncEngine
from holdfast.errors import DatabaseUnavailable, HoldfastError, NotAllowed, TryAgain, translate

T = TypeVar("T")
Work = Callable[[AsyncEngine], Awaitable[T]]
Role = Literal["holdfast_client", "holdfast_reader", "holdfast_operator"]

POOL_SIZE = 5
TURN_SECONDS = 5.0
ANSWER_SECONDS = 20.0
_NOT_ALLOWED = "42501"

# For the transaction only: behind a pooler, a session's settings would go on to strangers.
_MANNERS = """
select set_config('role', %s, true), set_config('holdfast.acting_for', %s, true),
  set_config('statement_timeout', '15s', true), set_config('lock_timeout', '3s', true)
"""


class Database:
    """At most so many connections to one event loop, each with one transaction at a time."""

    def __init__(self, address: DatabaseAddress, size: int = POOL_SIZE) -> None:
        self._address = address
        self._turn = asyncio.Semaphore(size)
        self._idle: list[psycopg.AsyncConnection[Any]] = []

    async def run(self, role: Role, work: Work[T], *, actor: str = "", repeatable: bool = True) -> T:
        """In a transaction with the rights of the role; repeated if that may be and the connection broke."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise TryAgain("all connections of the server to the database are in use") from None
        try:
            try:
                return await self._attempt(role, work, actor)
            except DatabaseUnavailable:
                if not repeatable:
                    raise
            self._hang_up_all()
            return await self._attempt(role, work, actor)
        finally:
            self._turn.release()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _attempt(self, role: Role, work: Work[T], actor: str) -> T:
        connection = await self._take()
        # A half-open socket answers nothing and no setting of the server covers it.
        alarm = asyncio.get_running_loop().call_later(ANSWER_SECONDS, _hang_up, connection)
        usable = False
        try:
            async with connection.transaction():
                try:
                    await _take_on(connection, role, actor)
                    answer = await work(AsyncEngine(connection))
                except asyncio.CancelledError:
                    # Who asked has left. The server undoes the statement when the connection goes.
                    connection.pgconn.finish()
                    raise
            usable = True
        except HoldfastError as error:
            usable = not isinstance(error, DatabaseUnavailable)
            raise
        except psycopg.Error as error:
            found = translate(error)
            usable = not isinstance(found, DatabaseUnavailable)
            raise found from error
        finally:
            alarm.cancel()
            if usable and not connection.closed:
                self._idle.append(connection)
            else:
                connection.pgconn.finish()
        return answer

    async def _take(self) -> psycopg.AsyncConnection[Any]:
        while self._idle:
            connection = self._idle.pop()
            if not is_lost(connection):
                return connection
            connection.pgconn.finish()
        connection, _ = await open_async(self._address)
        return connection

    def _hang_up_all(self) -> None:
        """One broke: the others that lie idle did as well, or soon will."""
        while self._idle:
            self._idle.pop().pgconn.finish()


async def _take_on(connection: psycopg.AsyncConnection[Any], role: Role, actor: str) -> None:
    try:
        await connection.execute(_MANNERS, (role, actor))
    except psycopg.Error as error:
        if error.sqlstate != _NOT_ALLOWED:
            raise
        login = connection.info.user
        wanted = "holdfast_client" if role == "holdfast_client" else "holdfast_operator"
        raise NotAllowed(
            f"the login {login} of this server may not act as {role}",
            hint=f'Run, as a superuser or as an administrator of that role: grant {wanted} to "{login}";',
            sqlstate=_NOT_ALLOWED,
        ) from error


def _hang_up(connection: psycopg.AsyncConnection[Any]) -> None:
    """Whoever waits for an answer fails now."""
    if connection.closed:
        return
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as own,
    ):
        own.shutdown(socket.SHUT_RDWR)
