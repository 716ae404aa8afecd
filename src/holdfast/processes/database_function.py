"""The executor `db_function`: business functions in the database, which run with the rights of their owners.

They have connections of their own, because a function may take long. The effects of a function and the
outcome of its task are one transaction.
"""

import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from psycopg import IsolationLevel

from holdfast._connections.pool import AsyncPool
from holdfast._connections.session import (
    WORKER_ROLE,
    DatabaseAddress,
    is_pooled,
    session_facts,
    with_defaults,
)
from holdfast._engine import AsyncEngine, leases
from holdfast._engine.leases import LastError
from holdfast._serialization.text import RawJson
from holdfast._worker.envelope import Envelope, FunctionFailed, function_envelope
from holdfast._worker.executor import Executor, ExecutorTask, ExecutorWorker
from holdfast._worker.handler import Handler
from holdfast._worker.report import (
    AttemptEnd,
    CommitUnknown,
    NotEncoded,
    check_answer,
    end_of_not_encoded,
    end_of_unknown_commit,
)
from holdfast._worker.transactions import finished, judged
from holdfast.errors import HoldfastError, NotFound, translate

T = TypeVar("T")
AsyncConnection = psycopg.AsyncConnection[Any]

MAX_IDLE = 10
MAX_CONNECTIONS = 50

_QUERY_CANCELED = "57014"
_RUNNER = "internal.run_function(text,jsonb,uuid)"


class FunctionNotFound(FunctionFailed):
    """There is no such function, or this worker may not run it. Another attempt would not help."""


class FunctionFailure(NamedTuple):
    """A failed call as it is reported."""

    kind: str
    message: str
    detail: Mapping[str, Any]


def describe_failure(function: str, error: FunctionFailed | HoldfastError) -> FunctionFailure:
    if not isinstance(error, FunctionFailed):
        return FunctionFailure("database_error", f"{function} could not be called: {error}", {})
    kind = "timeout" if error.detail.get("sqlstate") == _QUERY_CANCELED else "function_failed"
    return FunctionFailure(kind, f"{error.function}: {error.message}", error.detail)


class DatabaseFunctions:
    """Calls business functions for the tasks of a worker, each in a transaction of its own."""

    def __init__(self, worker: ExecutorWorker) -> None:
        settings, url = worker.settings, worker.url
        self._worker_id = worker.worker_id
        self._write = worker.write
        self._powerful = False
        self._pool = AsyncPool(
            DatabaseAddress(lambda: url),
            settings.function_connections or min(settings.worker_concurrency, MAX_CONNECTIONS),
            max_idle=MAX_IDLE,
            connect=self._connect,
        )

    async def call(self, job: ExecutorTask, function: str) -> Envelope:
        """Call the function with the payload of the task, in a transaction that ends with it."""

        async def work(connection: AsyncConnection) -> Envelope:
            envelope = await _call(connection, job, function, job.payload)
            await _commit(connection, function)
            return envelope

        return await self._transaction(work, job.timeout)

    async def record(
        self, job: ExecutorTask, function: str, payload: str, report: Callable[[Envelope], AttemptEnd]
    ) -> str:
        """Call the function and record the outcome in the same transaction. Return the verdict.

        The transaction is rolled back unless the verdict is `accepted`. Raises CommitUnknown if the
        connection was lost during the commit.
        """

        async def work(connection: AsyncConnection) -> str:
            end = report(await _call(connection, job, function, payload))
            job.phase = "ending"
            verdict = await finished(connection, job, self._worker_id, self._write(job, end))
            if verdict == "accepted":
                await _commit(connection, function)
            return verdict

        return await self._transaction(work, job.timeout)

    async def last_error(self, job: ExecutorTask) -> LastError | None:
        """Return how the previous attempt ended."""
        statement = leases.last_error(self._worker_id, UUID(job.task_id), job.token)
        return await self._transaction(lambda connection: AsyncEngine(connection).run(statement), None)

    async def close(self) -> None:
        self._pool.close()

    async def _transaction(self, work: Callable[[AsyncConnection], Awaitable[T]], limit: float | None) -> T:
        """Run the work in a transaction, which is rolled back at the end unless the work has committed it."""

        async def inside(engine: AsyncEngine) -> T:
            try:
                await engine.connection.execute(self._settings(limit).encode())
                return await work(engine.connection)
            finally:
                with contextlib.suppress(psycopg.Error):
                    await engine.connection.rollback()

        return await self._pool.run(inside, repeatable=False)

    def _settings(self, limit: float | None) -> str:
        """Return what sets up one transaction, so that it also works behind a pooler.

        What the functions of others have set for the session does not outlive their transaction.
        """
        wanted = {}
        if self._powerful:
            wanted["role"] = WORKER_ROLE
        if limit is not None:
            wanted["statement_timeout"] = f"{max(1, round(limit * 1000))}"
        settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in wanted.items())
        return f"reset all; select {settings}" if settings else "reset all"

    async def _connect(self, address: DatabaseAddress) -> AsyncConnection:
        try:
            connection = await psycopg.AsyncConnection.connect(with_defaults(address.get(), worker=True))
        except psycopg.Error as error:
            raise translate(error) from error
        try:
            # A function that waited for another transaction must see what that one has committed.
            await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
            server_pid, self._powerful = await session_facts(connection, WORKER_ROLE)
            await connection.rollback()
        except BaseException as error:
            connection.pgconn.finish()
            if isinstance(error, psycopg.Error):
                raise translate(error) from error
            raise
        if is_pooled(connection, server_pid):
            connection.prepare_threshold = None
        return connection


class DbFunctionExecutor(Executor):
    """Calls the function that the payload names as `db_function`, with the whole payload."""

    needs_handler = False

    def __init__(self, worker: ExecutorWorker) -> None:
        self._functions = DatabaseFunctions(worker)
        self._settled = worker.settled
        self._log = worker.log

    async def run(self, job: ExecutorTask, handler: Handler | None) -> AttemptEnd | None:
        function = text_member(job.payload, "db_function")
        if function is None:
            return AttemptEnd.failed("invalid_payload", 'the payload names no "db_function"')
        try:
            report = partial(_end_of, function, handler)
            verdict = await self._functions.record(job, function, job.payload, report)
        except CommitUnknown:
            return end_of_unknown_commit(job.attempt)
        except NotEncoded as error:
            return end_of_not_encoded(error)
        except FunctionNotFound as error:
            return AttemptEnd.failed("function_not_found", error.message)
        except (FunctionFailed, HoldfastError) as error:
            self._log.warning("attempt_failed", **job.log_fields, error=str(error))
            failure = describe_failure(function, error)
            return AttemptEnd.retry(job.attempt, failure.kind, failure.message, **failure.detail)
        self._settled(job, verdict)
        return None

    async def close(self) -> None:
        await self._functions.close()


async def _call(connection: AsyncConnection, job: ExecutorTask, function: str, payload: str) -> Envelope:
    try:
        answer, answered_payload = await AsyncEngine(connection).run(
            leases.run_function(function, RawJson(payload), UUID(job.task_id))
        )
    except HoldfastError as error:
        raise _explained(function, error) from error
    return function_envelope(function, answer, answered_payload)


async def _commit(connection: AsyncConnection, function: str) -> None:
    try:
        await connection.commit()
    except psycopg.Error as error:
        found = judged(connection, error)
        if isinstance(found, psycopg.Error):  # such as from a deferred constraint
            found = FunctionFailed(function, str(translate(found)), sqlstate=error.sqlstate)
        raise found from error


def _explained(function: str, error: HoldfastError) -> Exception:
    diag = error.__cause__.diag if isinstance(error.__cause__, psycopg.Error) else None
    context = (diag.context if diag else None) or ""
    # Raised by the runner itself, not by a function that the called function has called.
    if isinstance(error, NotFound) and _RUNNER in context and "\n" not in context:
        return FunctionNotFound(function, str(error))
    if context:  # the function was called
        return FunctionFailed(function, str(error), sqlstate=error.sqlstate, context=context[:4000])
    return error


def _end_of(function: str, handler: Handler | None, envelope: Envelope) -> AttemptEnd:
    """Raises NotEncoded: then the effects of the function are rolled back."""
    if envelope.validation_failure is not None:
        return AttemptEnd.failed("validation_failure", f"{function}: {envelope.validation_failure}")
    check_answer(handler, envelope.payload or "null")
    return AttemptEnd.succeeded(envelope.payload or "null")


def text_member(payload: str, name: str) -> str | None:
    """Return a member of the payload if it is a text that is not empty, else None."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):  # JSON that PostgreSQL stores and Python cannot read
        return None
    member = found.get(name) if isinstance(found, dict) else None
    return member if isinstance(member, str) and member else None
