"""The transaction of one step: commits what the application wrote together with the memo, under the lease."""

import asyncio
import contextlib
import time
from typing import Any, Protocol

import psycopg

from holdfast.connections.session import with_defaults
from holdfast.engine import AsyncEngine, Engine, Statement, steps
from holdfast.executors.job_transaction import BEGIN, BUSY_SECONDS, aconnected, connected, judged


class StepTask(Protocol):
    """The task that the worker holds."""

    task_id: str
    token: int
    lease_ends: float


class StepTransaction:
    """Opened by `ctx.transaction(name)`. If the lease is lost by the commit, everything is rolled back."""

    def __init__(self, url: str, worker_id: str, job: StepTask) -> None:
        self._url = with_defaults(url, worker=True)
        self._worker_id = worker_id
        self._job = job
        self._connection: psycopg.Connection[Any] | None = None
        self._async_connection: psycopg.AsyncConnection[Any] | None = None

    def begin(self) -> psycopg.Connection[Any]:
        self._connection = connected(self._url)
        self._connection.execute(BEGIN)
        return self._connection

    async def abegin(self) -> psycopg.AsyncConnection[Any]:
        self._async_connection = await aconnected(self._url)
        await self._async_connection.execute(BEGIN)
        return self._async_connection

    def commit(self, written: str) -> str:
        """Record the step and commit, and return the verdict. Raises CommitUnknown."""
        connection = self._connection
        assert connection is not None  # noqa: S101 - it was begun
        verdict: str
        try:
            record = self._record(written)
            while (verdict := Engine(connection).run(record)[0][0]) == "busy" and self._is_held():
                time.sleep(BUSY_SECONDS)
            if verdict == "recorded":
                try:
                    connection.commit()
                except psycopg.Error as error:
                    raise judged(connection, error) from error
        finally:
            self.rollback()
        return verdict

    async def acommit(self, written: str) -> str:
        connection = self._async_connection
        assert connection is not None  # noqa: S101 - it was begun
        try:
            record = self._record(written)
            while True:
                [(verdict, _)] = await AsyncEngine(connection).run(record)
                if verdict != "busy" or not self._is_held():
                    break
                await asyncio.sleep(BUSY_SECONDS)
            if verdict == "recorded":
                try:
                    await connection.commit()
                except psycopg.Error as error:
                    raise judged(connection, error) from error
        finally:
            await self.arollback()
        return verdict

    def rollback(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            connection.close()

    async def arollback(self) -> None:
        connection, self._async_connection = self._async_connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.rollback()
            await connection.close()

    def _record(self, written: str) -> Statement[list[tuple[str, Any]]]:
        return steps.record_steps(
            self._worker_id, [steps.run_json(self._job.task_id, self._job.token, written)]
        )

    def _is_held(self) -> bool:
        return self._job.lease_ends > time.monotonic()
