"""Transactions of a handler, whose commit also records the outcome of the task, or a step of its run.

What they do is written once. Each `yield` is a call of psycopg: an async connection has it awaited.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar

import psycopg

from holdfast._connections.session import with_defaults
from holdfast._engine import AsyncEngine, Engine, Statement, leases, steps
from holdfast._worker.attempt import Work, awaiting, blocking
from holdfast._worker.report import CommitUnknown
from holdfast._workflows.calls import CallSite, EnteredCall

T = TypeVar("T")
Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

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


class LeasedTask(Protocol):
    """The task that the worker holds."""

    task_id: str
    token: int
    lease_ends: float


class LeasedTransaction:
    """Commits only while the worker holds the task; otherwise everything is rolled back."""

    accepted: str
    """The verdict with which it commits."""

    def __init__(self, url: str, job: LeasedTask) -> None:
        self._url = with_defaults(url, worker=True)
        self._job = job
        self._connection: psycopg.Connection[Any] | None = None
        self._async_connection: psycopg.AsyncConnection[Any] | None = None

    def statement(self, worker_id: str, written: str) -> Statement[Any] | None:
        """What records the end in the transaction, and returns a verdict first. None records nothing."""
        raise NotImplementedError

    def begin(self) -> psycopg.Connection[Any]:
        self._connection = connected(self._url)
        self._connection.execute(BEGIN)
        return self._connection

    async def abegin(self) -> psycopg.AsyncConnection[Any]:
        self._async_connection = await aconnected(self._url)
        await self._async_connection.execute(BEGIN)
        return self._async_connection

    def rollback(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            blocking(_closing(connection))

    async def arollback(self) -> None:
        self.rollback()
        connection, self._async_connection = self._async_connection, None
        if connection is not None:
            await awaiting(_closing(connection))

    def _commit(self, connection: psycopg.Connection[Any], worker_id: str, written: str) -> str:
        """Return the verdict. Raises CommitUnknown."""
        try:
            return blocking(
                self._committing(connection, Engine(connection).run, time.sleep, worker_id, written)
            )
        finally:
            self.rollback()

    async def _acommit(self, connection: psycopg.AsyncConnection[Any], worker_id: str, written: str) -> str:
        try:
            run = AsyncEngine(connection).run
            return await awaiting(self._committing(connection, run, asyncio.sleep, worker_id, written))
        finally:
            await self.arollback()

    def _committing(
        self,
        connection: Connection,
        run: Callable[[Statement[Any]], Any],
        sleep: Callable[[float], Any],
        worker_id: str,
        written: str,
    ) -> Work[str]:
        statement = self.statement(worker_id, written)
        verdict = self.accepted
        if statement is not None:
            verdict = yield from _settling(run, sleep, self._job, statement)
        if verdict == self.accepted:
            try:
                yield connection.commit()
            except psycopg.Error as error:
                raise judged(connection, error) from error
        return verdict


class RecordedTransaction(LeasedTransaction):
    """Opened by `ctx.step_transaction(name)`, and committed when its block ends, together with the step."""

    accepted = "recorded"

    def __init__(self, url: str, worker_id: str, job: LeasedTask) -> None:
        super().__init__(url, job)
        self._worker_id = worker_id

    def statement(self, worker_id: str, written: str) -> Statement[Any] | None:
        return steps.record_steps(worker_id, [steps.run_json(self._job.task_id, self._job.token, written)])

    def commit(self, written: str) -> str:
        assert self._connection is not None  # noqa: S101 - it was begun
        return self._commit(self._connection, self._worker_id, written)

    async def acommit(self, written: str) -> str:
        assert self._async_connection is not None  # noqa: S101 - it was begun
        return await self._acommit(self._async_connection, self._worker_id, written)


class TransactionTask(LeasedTask, Protocol):
    """What a transaction needs of the task whose outcome it commits."""

    transaction: "JobTransaction | None"


class JobTransaction(LeasedTransaction):
    """Opened by the handler, kept open when its block ends, and committed by the worker with the outcome."""

    accepted = "accepted"
    _job: TransactionTask

    def __init__(self, url: str, job: TransactionTask) -> None:
        super().__init__(url, job)
        self.site: CallSite | None = None
        self._check_first()
        job.transaction = self

    def statement(self, worker_id: str, written: str) -> Statement[Any] | None:
        return leases.finish(worker_id, [written])

    def __enter__(self) -> psycopg.Connection[Any]:
        if _is_in_event_loop():
            raise RuntimeError("this handler is async: write async with ctx.transaction()")
        self._check_first()
        connection = self.begin()
        self._job.transaction = self
        return connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.rollback()

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        self._check_first()
        connection = await self.abegin()
        self._job.transaction = self
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.arollback()

    def commit(self, worker_id: str, written: str) -> str:
        """Commit with the outcome, or roll back if the lease is no longer ours. Returns the verdict."""
        return self._commit(self._entered(self._connection), worker_id, written)

    async def acommit(self, worker_id: str, written: str) -> str:
        if self._connection is not None:  # a sync handler behind middleware opened it
            return await asyncio.to_thread(self.commit, worker_id, written)
        return await self._acommit(self._entered(self._async_connection), worker_id, written)

    def rollback(self) -> None:
        self._job.transaction = None
        super().rollback()

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
    settling = _settling(AsyncEngine(connection).run, asyncio.sleep, job, leases.finish(worker_id, [written]))
    return await awaiting(settling)


def _settling(
    run: Callable[[Statement[Any]], Any],
    sleep: Callable[[float], Any],
    job: LeasedTask,
    statement: Statement[Any],
) -> Work[str]:
    """Record an end until the row is free, as long as the lease is ours. Returns the verdict."""
    while True:
        [answer] = yield run(statement)
        verdict = answer if isinstance(answer, str) else answer[0]
        if verdict != "busy" or job.lease_ends <= time.monotonic():
            return str(verdict)
        yield sleep(BUSY_SECONDS)


def _closing(connection: Connection) -> Work[None]:
    with contextlib.suppress(psycopg.Error):
        yield connection.rollback()
    yield connection.close()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def judged(connection: Connection, error: psycopg.Error) -> Exception:
    """Return CommitUnknown, or the error itself if the server refused the commit and so rolled back."""
    told = error.sqlstate is not None and error.sqlstate[:2] not in ("08", "57")
    return error if told and not connection.broken else CommitUnknown(str(error))
