"""Calls to the engine from an application: in the caller's transaction, or on connections of its own."""

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from holdfast._connections.enqueueing import (
    LOCK_MILLISECONDS,
    EnqueueBatcher,
    EnqueueCounter,
    Progress,
    Tasks,
    asend_checked,
    is_repeatable,
    may_wait,
    one_or_many,
    send_checked,
    statements,
)
from holdfast._connections.pool import POOL_SIZE, AsyncPool, AsyncWork, Pool
from holdfast._connections.portal import Portal
from holdfast._connections.session import DatabaseAddress, facts_of
from holdfast._connections.transaction import arun_in, run_in
from holdfast._connections.waiting import Waits
from holdfast._engine import AsyncEngine, Engine, Statement
from holdfast._engine.enqueue import Enqueued, NewTask, enqueue_one
from holdfast._engine.processes import ProcessStatus
from holdfast._engine.statement import with_lock_limit
from holdfast._engine.tasks import TaskSnapshot
from holdfast.errors import EventLoopRunning, RequestRefused, translate

__all__ = ["Client", "Progress"]

T = TypeVar("T")

RunStatement = Callable[[Statement[Any]], Any]
ARunStatement = Callable[[Statement[Any]], Awaitable[Any]]

WAITING_SIZE = 3
"""How many tasks of an event loop wait at a time for the transactions that hold their keys."""


class _LoopConnections:
    """What belongs to one event loop."""

    def __init__(self, address: DatabaseAddress, reply_seconds: float) -> None:
        self.pool = AsyncPool(address, POOL_SIZE, slot_seconds=reply_seconds, reply_seconds=reply_seconds)
        # Of its own, so that tasks whose keys others hold take no connection from other calls.
        self._waiting_pool = AsyncPool(
            address, WAITING_SIZE, max_idle=0, slot_seconds=reply_seconds, reply_seconds=reply_seconds
        )
        self._batcher = EnqueueBatcher(self._send)
        self._keyed_batcher = EnqueueBatcher(self._send_briefly, self._send_alone)
        self.waits: Waits[None] = Waits(address, self._read)

    async def enqueue(self, task: NewTask) -> Enqueued:
        batcher = self._keyed_batcher if may_wait(task) else self._batcher
        return await batcher.enqueue(task)

    def close(self) -> None:
        self.waits.close()
        self.pool.close()
        self._waiting_pool.close()

    async def _read(self, work: AsyncWork[T]) -> T:
        return await self.pool.run(work, repeatable=True)

    async def _send(self, tasks: list[NewTask]) -> list[Enqueued]:
        return await _sent(self.pool, one_or_many(tasks), tasks)

    async def _send_briefly(self, tasks: list[NewTask]) -> list[Enqueued]:
        return await _sent(self.pool, with_lock_limit(one_or_many(tasks), LOCK_MILLISECONDS), tasks)

    async def _send_alone(self, tasks: list[NewTask]) -> list[Enqueued]:
        return await _sent(self._waiting_pool, one_or_many(tasks), tasks)


async def _sent(
    pool: AsyncPool, statement: Statement[list[Enqueued]], tasks: list[NewTask]
) -> list[Enqueued]:
    return await pool.run(lambda engine: engine.run(statement), repeatable=is_repeatable(tasks))


class Client:
    """One per process. Connections are opened when they are first needed, and not shared with a fork."""

    def __init__(self, address: DatabaseAddress, reply_seconds: float) -> None:
        """`reply_seconds` limits how long a call waits for a free connection, and for each answer."""
        self._address = address
        self._reply_seconds = reply_seconds
        self._pool = Pool(address, reply_seconds=reply_seconds)
        self._portal = Portal()
        self._loops: dict[asyncio.AbstractEventLoop, _LoopConnections] = {}
        self._finalizer = weakref.finalize(self, _close, os.getpid(), self._pool, self._portal, self._loops)

    def enqueue(self, task: NewTask, tx: Any) -> Enqueued:
        return self.run_in(tx, enqueue_one(task), "enqueue", repeatable=task.idempotency_key is not None)

    async def aenqueue(self, task: NewTask, tx: Any) -> Enqueued:
        if tx is None and (task.reuse is None or task.idempotency_key is not None):
            return await self._here().enqueue(task)
        # Batches do not reuse runs.
        return await self.arun_in(tx, enqueue_one(task), "enqueue")

    def enqueue_many(self, tasks: Tasks, tx: Any, progress: Progress | None) -> list[Enqueued]:
        """All or nothing, in as few round trips as their size allows."""
        if not len(tasks):
            return []
        count = EnqueueCounter(len(tasks), progress)
        if tx is not None:
            return send_checked(tasks, lambda statement: run_in(tx, statement, "enqueue_many"), count)
        refuse_in_event_loop("enqueue_many", "aenqueue_many")

        def work(engine: Engine) -> list[Enqueued]:
            if facts_of(engine.connection).is_front:
                return send_checked(tasks, engine.run, count, on_front=True)
            try:
                with engine.connection.transaction():
                    return [one for rows in engine.run_pipelined(statements(tasks)) for one in count(rows)]
            except psycopg.Error as error:
                raise translate(error) from error
            except RequestRefused as error:
                raise count.placed(error) from error

        return self._pool.run(work, repeatable=is_repeatable(tasks))

    async def aenqueue_many(self, tasks: Tasks, tx: Any, progress: Progress | None) -> list[Enqueued]:
        if not len(tasks):
            return []
        count = EnqueueCounter(len(tasks), progress)
        if tx is not None:
            return await asend_checked(tasks, lambda statement: arun_in(tx, statement, "enqueue_many"), count)

        async def work(engine: AsyncEngine) -> list[Enqueued]:
            if facts_of(engine.connection).is_front:
                return await asend_checked(tasks, engine.run, count, on_front=True)
            try:
                async with engine.connection.transaction():
                    return [
                        one async for rows in engine.run_pipelined(statements(tasks)) for one in count(rows)
                    ]
            except psycopg.Error as error:
                raise translate(error) from error
            except RequestRefused as error:
                raise count.placed(error) from error

        return await self._here().pool.run(work, repeatable=is_repeatable(tasks))

    def run_together(
        self, tx: Any, work: Callable[[RunStatement, bool], T], method: str, *, repeatable: bool = False
    ) -> T:
        """Run several statements in the caller's transaction, or in one of their own.

        `work` is told whether this is a front, on which every statement commits by itself.
        """
        if tx is not None:
            return work(lambda statement: run_in(tx, statement, method), False)
        refuse_in_event_loop(method, f"a{method}")

        def in_transaction(engine: Engine) -> T:
            try:
                with engine.connection.transaction():
                    return work(engine.run, facts_of(engine.connection).is_front)
            except psycopg.Error as error:
                raise translate(error) from error

        return self._pool.run(in_transaction, repeatable=repeatable)

    async def arun_together(
        self,
        tx: Any,
        work: Callable[[ARunStatement, bool], Awaitable[T]],
        method: str,
        *,
        repeatable: bool = False,
    ) -> T:
        if tx is not None:
            return await work(lambda statement: arun_in(tx, statement, method), False)

        async def in_transaction(engine: AsyncEngine) -> T:
            try:
                async with engine.connection.transaction():
                    return await work(engine.run, facts_of(engine.connection).is_front)
            except psycopg.Error as error:
                raise translate(error) from error

        return await self._here().pool.run(in_transaction, repeatable=repeatable)

    def run(self, statement: Statement[T], method: str, *, repeatable: bool = True) -> T:
        """Run one statement. `method` is what the caller called, for errors."""
        refuse_in_event_loop(method, f"a{method}")
        return self._pool.run(lambda engine: engine.run(statement), repeatable=repeatable)

    async def arun(self, statement: Statement[T], *, repeatable: bool = True) -> T:
        return await self._here().pool.run(lambda engine: engine.run(statement), repeatable=repeatable)

    def run_in(self, tx: Any, statement: Statement[T], method: str, *, repeatable: bool = False) -> T:
        """Run one statement in the caller's transaction, if there is one."""
        if tx is not None:
            return run_in(tx, statement, method)
        return self.run(statement, method, repeatable=repeatable)

    async def arun_in(self, tx: Any, statement: Statement[T], method: str, *, repeatable: bool = False) -> T:
        if tx is not None:
            return await arun_in(tx, statement, method)
        return await self.arun(statement, repeatable=repeatable)

    async def await_end(self, task_id: UUID, timeout: float | timedelta | None) -> TaskSnapshot:  # noqa: ASYNC109 - part of the API
        end = await self._here().waits.end_of(task_id, timeout)
        assert isinstance(end, TaskSnapshot)  # noqa: S101 - it was asked for by its id
        return end

    async def await_process(
        self,
        process: str,
        process_id: int,
        timeout: float | timedelta | None,  # noqa: ASYNC109 - part of the API
    ) -> ProcessStatus:
        end = await self._here().waits.end_of((process, process_id), timeout)
        assert isinstance(end, ProcessStatus)  # noqa: S101 - it was asked for by its name
        return end

    def run_async(self, work: Coroutine[Any, Any, T], method: str, twin: str) -> T:
        """Run a coroutine for a caller without an event loop."""
        try:
            refuse_in_event_loop(method, twin)
        except EventLoopRunning:
            work.close()
            raise
        return self._portal.run(work)

    def close(self) -> None:
        self._finalizer()

    def _here(self) -> _LoopConnections:
        running = asyncio.get_running_loop()
        here = self._loops.get(running)
        if here is None:
            self._forget_ended()
            here = self._loops[running] = _LoopConnections(self._address, self._reply_seconds)
        return here

    def _forget_ended(self) -> None:
        """Close the connections of event loops that have ended: asyncio.run does not."""
        for loop in [loop for loop in list(self._loops) if loop.is_closed()]:
            self._loops.pop(loop).close()


def refuse_in_event_loop(method: str, twin: str) -> None:
    """A call that waits would stop everything else that the running event loop does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise EventLoopRunning(
        f"{method}() would block the running event loop", hint=f"Use its asynchronous twin: await {twin}(…)."
    )


def _close(
    owner: int, pool: Pool, portal: Portal, loops: dict[asyncio.AbstractEventLoop, _LoopConnections]
) -> None:
    # A fork has the same sockets: closing them there would end the connections of its parent.
    if os.getpid() != owner:
        return
    portal.close()
    pool.close()
    while loops:
        loops.popitem()[1].close()
