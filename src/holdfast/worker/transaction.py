"""A handler's own transaction, whose commit also records how the task ended."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Literal

import psycopg

from holdfast.engine import AsyncEngine, Engine
from holdfast.engine import lease as statements
from holdfast.worker.job import Job

Ending = Literal["accepted", "refused", "unknown"]
Finish = tuple[str, str]
"""The worker's id and the result, written."""


class JobTransaction:
    """Opened by the handler, left open when its block ends, and committed by the worker with the outcome."""

    def __init__(self, url: str, job: Job) -> None:
        self._url = url
        self._job = job
        self.connection: psycopg.Connection[Any] | None = None
        self.async_connection: psycopg.AsyncConnection[Any] | None = None

    def __enter__(self) -> psycopg.Connection[Any]:
        self._claim()
        self.connection = psycopg.connect(self._url)
        return self.connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.rollback()

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        self._claim()
        self.async_connection = await psycopg.AsyncConnection.connect(self._url)
        return self.async_connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.arollback()

    def commit(self, worker_id: str, written: str) -> Ending:
        """Commit with the outcome; roll back if the lease is no longer ours."""
        assert self.connection is not None  # noqa: S101 - the runner asks for the kind that was opened
        try:
            verdict = Engine(self.connection).run(
                statements.settle_work("finish", worker_id, f"[{written}]")
            )[0][1]
            if verdict != "accepted":
                self.rollback()
                return "refused"
        except Exception:
            self.rollback()
            raise
        try:
            self.connection.commit()
        except psycopg.Error:
            return "unknown"
        finally:
            self.connection.close()
        return "accepted"

    async def acommit(self, worker_id: str, written: str) -> Ending:
        if self.connection is not None:  # of a sync handler behind middleware
            return await asyncio.to_thread(self.commit, worker_id, written)
        assert self.async_connection is not None  # noqa: S101 - the runner asks for the kind that was opened
        try:
            run = AsyncEngine(self.async_connection).run
            verdict = (await run(statements.settle_work("finish", worker_id, f"[{written}]")))[0][1]
            if verdict != "accepted":
                await self.arollback()
                return "refused"
        except Exception:
            await self.arollback()
            raise
        try:
            await self.async_connection.commit()
        except psycopg.Error:
            return "unknown"
        finally:
            await self.async_connection.close()
        return "accepted"

    def rollback(self) -> None:
        self._job.transaction = None
        if self.connection is not None:
            with contextlib.suppress(psycopg.Error):
                self.connection.rollback()
            self.connection.close()

    async def arollback(self) -> None:
        self.rollback()
        if self.async_connection is not None:
            with contextlib.suppress(psycopg.Error):
                await self.async_connection.rollback()
            await self.async_connection.close()

    def _claim(self) -> None:
        if self._job.transaction is not None:
            raise RuntimeError("a handler has one transaction: it ends with the task")
        self._job.transaction = self
