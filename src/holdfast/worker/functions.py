"""Business functions, called with the rights of a worker and nothing more.

Connections of their own, because a function may take its time; each call is one transaction.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import IsolationLevel

from holdfast.connections.session import SESSION_FACTS, WORKER_ROLE, is_pooled, with_defaults
from holdfast.engine import AsyncEngine, leases
from holdfast.engine.documents import RawJson
from holdfast.engine.leases import LastError
from holdfast.errors import HoldfastError, TaskNotFound, translate
from holdfast.executors.attempt import AttemptEnd
from holdfast.executors.envelope import Envelope, MalformedEnvelope, read_envelope
from holdfast.worker.job import Job
from holdfast.worker.job_transaction import finished, judged

MAX_IDLE = 10

_RUNNER = "internal.run_function(text,jsonb)"


class FunctionFailed(Exception):
    """A function raised, reported an error, or returned no envelope. The task is retried."""

    def __init__(self, function: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.function = function
        self.message = message
        self.detail = detail

    @property
    def told(self) -> str:
        return f"{self.function}: {self.message}"


class FunctionNotFound(FunctionFailed):
    """There is no such function, or this worker may not run it. Another attempt would not help."""


@dataclass(slots=True)
class _Session:
    connection: psycopg.AsyncConnection[Any]
    powerful: bool


class Functions:
    """What a worker's tasks may call in the database, so many at once."""

    def __init__(
        self, url: str, worker_id: str, connections: int, write: Callable[[Job, AttemptEnd], str]
    ) -> None:
        """`write` formats the report about an attempt."""
        self._url = with_defaults(url, worker=True)
        self._worker_id = worker_id
        self._write = write
        self._idle: list[_Session] = []
        self._room = asyncio.Semaphore(connections)

    async def call(self, function: str, payload: str, limit: float | None = None) -> Envelope:
        """In a transaction that ends with it."""
        async with self._transaction(limit) as connection:
            envelope = await _call(connection, function, payload)
            await _commit(connection, function)
            return envelope

    async def record(
        self, job: Job, function: str, payload: str, report: Callable[[Envelope], AttemptEnd]
    ) -> str:
        """Call it and record the outcome in the same transaction. Answers the verdict.

        Unless that is `accepted`, nothing has happened. CommitUnknown if nobody knows.
        """
        async with self._transaction(job.timeout) as connection:
            end = report(await _call(connection, function, payload))
            job.phase = "ending"
            verdict = await finished(connection, job, self._worker_id, self._write(job, end))
            if verdict == "accepted":
                await _commit(connection, function)
            return verdict

    async def last_error(self, job: Job) -> LastError | None:
        """How the attempt before this one ended."""
        async with self._transaction(None) as connection:
            asked = leases.last_error(self._worker_id, UUID(job.task_id), job.token)
            return await AsyncEngine(connection).run(asked)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().connection.close()

    @contextlib.asynccontextmanager
    async def _transaction(self, limit: float | None) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Rolled back at the end, if it was not committed before."""
        async with self._room:
            session = self._idle.pop() if self._idle else await self._open()
            connection = session.connection
            try:
                if manners := _manners(session, limit):
                    await connection.execute(manners.encode())
                yield connection
            except psycopg.Error as error:
                raise translate(error) from error
            finally:
                await self._give_back(session)

    async def _give_back(self, session: _Session) -> None:
        with contextlib.suppress(psycopg.Error):
            await session.connection.rollback()
            if len(self._idle) < MAX_IDLE:
                self._idle.append(session)
                return
        await session.connection.close()

    async def _open(self) -> _Session:
        try:
            connection = await psycopg.AsyncConnection.connect(self._url)
        except psycopg.Error as error:
            raise translate(error) from error
        try:
            # Facts that another transaction has just committed must be seen after a wait for it.
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            arrived = await connection.execute(SESSION_FACTS.format(role=WORKER_ROLE).encode())
            row = await arrived.fetchone()
            assert row is not None  # noqa: S101 - an aggregate has one row
            await connection.rollback()
        except BaseException as error:
            await connection.close()
            if isinstance(error, psycopg.Error):
                raise translate(error) from error
            raise
        if is_pooled(connection, row[0]):
            connection.prepare_threshold = None
        return _Session(connection, powerful=row[1])


def _manners(session: _Session, limit: float | None) -> str:
    """For one transaction, so that they also hold behind a pooler, and only for us."""
    wanted = {}
    if session.powerful:
        wanted["role"] = "holdfast_worker"
    if limit is not None:
        wanted["statement_timeout"] = f"{max(1, round(limit * 1000))}"
    settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in wanted.items())
    return f"select {settings}" if settings else ""


def function_envelope(function: str, returned: Any, payload: str | None) -> Envelope:
    """The envelope of a function that succeeded or declined. Raises FunctionFailed for anything else."""
    try:
        envelope = read_envelope(returned, payload)
    except MalformedEnvelope as error:
        message = f"returned {repr(returned)[:200]}, which is not an envelope: {error}"
        raise FunctionFailed(function, message) from None
    if envelope.error is not None:
        raise FunctionFailed(function, envelope.error)
    return envelope


async def _call(connection: psycopg.AsyncConnection[Any], function: str, payload: str) -> Envelope:
    try:
        answer, answered_payload = await AsyncEngine(connection).run(
            leases.run_function(function, RawJson(payload))
        )
    except HoldfastError as error:
        raise _explained(function, error) from error
    return function_envelope(function, answer, answered_payload)


async def _commit(connection: psycopg.AsyncConnection[Any], function: str) -> None:
    try:
        await connection.commit()
    except psycopg.Error as error:
        found = judged(connection, error)
        if isinstance(found, psycopg.Error):  # of a deferred constraint, say
            found = FunctionFailed(function, str(translate(found)), sqlstate=error.sqlstate)
        raise found from error


def _explained(function: str, error: HoldfastError) -> Exception:
    diag = error.__cause__.diag if isinstance(error.__cause__, psycopg.Error) else None
    context = (diag.context if diag else None) or ""
    # The runner's own refusal, and not one that the called function came upon.
    if isinstance(error, TaskNotFound) and _RUNNER in context and "\n" not in context:
        return FunctionNotFound(function, str(error))
    if context:  # the function was reached
        return FunctionFailed(function, str(error), sqlstate=error.sqlstate, context=context[:4000])
    return error
