"""A transaction of a handler, whose commit also records the outcome of the task."""

import asyncio
import contextlib
import time
from types import TracebackType
from typing import Any, Protocol, TypeVar

import psycopg

from holdfast.connections.session import with_defaults
from holdfast.engine import AsyncEngine, Engine, leases
from holdfast.executors.attempt import AttemptEnd
from holdfast.workflows.calls import CallSite, EnteredCall

T = TypeVar("T")

BUSY_SECONDS = 0.02
BEGIN = "select 1"
"""Begins the transaction, so that `connection.transaction()` in the handler makes a savepoint."""


def connected(url: str) -> psycopg.Connection[Any]:
    """Connect for one transaction of a handler.

    READ COMMITTED, whatever the default of the database is: under a stricter isolation, the end of the task
    would fail whenever a heartbeat has renewed the lease since the transaction began.
    """
    # Prepared statements would stay on a pooler's connection, and do not pay off in one transaction.
    connection = psycopg.connect(url, prepare_threshold=None)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


async def aconnected(url: str) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(url, prepare_threshold=None)
    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    return connection


class CommitUnknown(Exception):
    """The connection was lost between the commit and its confirmation."""


class LeasedTask(Protocol):
    lease_ends: float


class TransactionTask(LeasedTask, Protocol):
    """What a transaction needs of the task that the worker holds."""

    transaction: "JobTransaction | None"


class JobTransaction:
    """Opened by the handler, kept open when its block ends, and committed by the worker with the outcome."""

    def __init__(self, url: str, job: TransactionTask) -> None:
        self._url = with_defaults(url, worker=True)
        self._job = job
        self._connection: psycopg.Connection[Any] | None = None
        self._async_connection: psycopg.AsyncConnection[Any] | None = None
        self.site: CallSite | None = None
        self._check_first()
        job.transaction = self

    def __enter__(self) -> psycopg.Connection[Any]:
        if _is_in_event_loop():
            raise RuntimeError("this handler is async: write async with ctx.transaction()")
        self._check_first()
        self._connection = connected(self._url)
        self._job.transaction = self
        self._connection.execute(BEGIN)
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.rollback()

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        self._check_first()
        self._async_connection = await aconnected(self._url)
        self._job.transaction = self
        await self._async_connection.execute(BEGIN)
        return self._async_connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.arollback()

    def commit(self, worker_id: str, written: str) -> str:
        """Commit with the outcome, or roll back if the lease is no longer ours. Returns the verdict."""
        connection = self._entered(self._connection)
        try:
            finish = leases.finish(worker_id, [written])
            while (verdict := Engine(connection).run(finish)[0]) == "busy" and _is_held(self._job):
                time.sleep(BUSY_SECONDS)
            if verdict == "accepted":
                try:
                    connection.commit()
                except psycopg.Error as error:
                    raise judged(connection, error) from error
        finally:
            self.rollback()
        return verdict

    async def acommit(self, worker_id: str, written: str) -> str:
        if self._connection is not None:  # a sync handler behind middleware opened it
            return await asyncio.to_thread(self.commit, worker_id, written)
        connection = self._entered(self._async_connection)
        try:
            verdict = await finished(connection, self._job, worker_id, written)
            if verdict == "accepted":
                try:
                    await connection.commit()
                except psycopg.Error as error:
                    raise judged(connection, error) from error
        finally:
            await self.arollback()
        return verdict

    def rollback(self) -> None:
        self._job.transaction = None
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            connection.close()

    async def arollback(self) -> None:
        self.rollback()
        connection, self._async_connection = self._async_connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.rollback()
            await connection.close()

    def _entered(self, connection: T | None) -> T:
        if connection is None:
            raise EnteredCall.forgotten(self.site or CallSite("ctx.transaction"))
        return connection

    def _check_first(self) -> None:
        is_open = self._connection is not None or self._async_connection is not None
        if is_open or self._job.transaction not in (None, self):
            raise RuntimeError(
                "ctx.transaction() was called twice: a handler has one transaction, which ends with the task"
            )


async def finished(
    connection: psycopg.AsyncConnection[Any], job: LeasedTask, worker_id: str, written: str
) -> str:
    """Record the outcome of a task in the transaction of this connection, and return the verdict.

    The row is busy while the heartbeat renews it, or while an application cancels it.
    """
    finish = leases.finish(worker_id, [written])
    while True:
        verdict = (await AsyncEngine(connection).run(finish))[0]
        if verdict != "busy" or not _is_held(job):
            return verdict
        await asyncio.sleep(BUSY_SECONDS)


def _is_held(job: LeasedTask) -> bool:
    return bool(job.lease_ends > time.monotonic())


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def judged(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: psycopg.Error
) -> Exception:
    """Return CommitUnknown, or the error itself if the server refused the commit and so rolled back."""
    told = error.sqlstate is not None and error.sqlstate[:2] not in ("08", "57")
    return error if told and not connection.broken else CommitUnknown(str(error))


def end_of_unknown_commit(attempt: int) -> AttemptEnd:
    """Accepted only if the commit did not happen; then the task is retried."""
    return AttemptEnd.retry(attempt, "commit_unknown", "the connection was lost at the commit", delay=0)
