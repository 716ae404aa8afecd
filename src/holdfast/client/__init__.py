"""Calls to the engine from an application: in the caller's transaction, or on connections of our own."""

import asyncio
import os
import re
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar
from uuid import UUID

import psycopg

from holdfast.client.batch import FEW_TASKS, batches
from holdfast.client.gather import Gatherer
from holdfast.client.trace import with_trace
from holdfast.client.wait import Portal, ResultListener, wait_for_end, wait_for_process
from holdfast.connections.pool import AsyncPool, Pool
from holdfast.connections.session import DatabaseAddress
from holdfast.connections.transaction import arun_in, run_in
from holdfast.engine import AsyncEngine, Engine, Statement
from holdfast.engine.enqueue import Enqueued, NewTask, enqueue_many, enqueue_one
from holdfast.engine.processes import ProcessStatus
from holdfast.engine.tasks import TaskSnapshot
from holdfast.errors import Refused, translate

__all__ = ["Address", "Client", "Progress", "Tasks", "with_trace"]

T = TypeVar("T")


class Tasks(Protocol):
    """Tasks to enqueue together. May make each when it is asked for, and again when it is asked again."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[NewTask]: ...


Progress = Callable[[int, int], object]
"""Told how many of how many were enqueued, after each round trip."""


class _Loop:
    """What belongs to one event loop."""

    def __init__(self, address: DatabaseAddress) -> None:
        self.link = AsyncPool(address)
        self.gatherer = Gatherer(self.link)
        self.listener = ResultListener(address)

    def close(self) -> None:
        self.listener.close()
        self.link.close()


class Client:
    """One per process: connections are made when they are first needed, and not shared with a fork."""

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._pool = Pool(address)
        self._portal = Portal()
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._finalizer = weakref.finalize(self, _close, os.getpid(), self._pool, self._portal, self._loops)

    def enqueue(self, task: NewTask, tx: Any) -> Enqueued:
        if tx is not None:
            return run_in(tx, enqueue_one(task), "enqueue")
        return self._pool.run(
            lambda engine: engine.run(enqueue_one(task)), repeatable=task.idempotency_key is not None
        )

    async def aenqueue(self, task: NewTask, tx: Any) -> Enqueued:
        if tx is not None:
            return await arun_in(tx, enqueue_one(task), "enqueue")
        if task.reuse is not None and task.idempotency_key is None:  # which a batch cannot do
            return await self._here().link.run(lambda engine: engine.run(enqueue_one(task)), repeatable=False)
        return await self._here().gatherer.enqueue(task)

    def enqueue_many(self, tasks: Tasks, tx: Any, progress: Progress | None) -> list[Enqueued]:
        """All or nothing, in as few round trips as their size allows."""
        if not len(tasks):
            return []
        tell = _Counter(len(tasks), progress)
        if tx is not None:
            return [
                e
                for batch in batches(list(tasks))  # none is sent before all are known to be in order
                for e in tell(run_in(tx, enqueue_many(batch), "enqueue_many"))
            ]

        def work(engine: Engine) -> list[Enqueued]:
            try:
                with engine.connection.transaction():
                    ahead = engine.run_pipelined(map(enqueue_many, batches(tasks, FEW_TASKS)))
                    return [e for answer in ahead for e in tell(answer)]
            except psycopg.Error as error:
                raise translate(error) from error
            except Refused as error:
                raise _placed(error, tell.done) from error

        return self._pool.run(work, repeatable=_repeatable(tasks))

    async def aenqueue_many(self, tasks: Tasks, tx: Any, progress: Progress | None) -> list[Enqueued]:
        if not len(tasks):
            return []
        tell = _Counter(len(tasks), progress)
        if tx is not None:
            return [
                e
                for batch in batches(list(tasks))
                for e in tell(await arun_in(tx, enqueue_many(batch), "enqueue_many"))
            ]

        async def work(engine: AsyncEngine) -> list[Enqueued]:
            try:
                async with engine.connection.transaction():
                    ahead = engine.run_pipelined(map(enqueue_many, batches(tasks, FEW_TASKS)))
                    return [e async for answer in ahead for e in tell(answer)]
            except psycopg.Error as error:
                raise translate(error) from error
            except Refused as error:
                raise _placed(error, tell.done) from error

        return await self._here().link.run(work, repeatable=_repeatable(tasks))

    def emit(self, event: Statement[UUID], tx: Any) -> UUID:
        if tx is not None:
            return run_in(tx, event, "emit")
        return self._pool.run(lambda engine: engine.run(event), repeatable=False)

    async def aemit(self, event: Statement[UUID], tx: Any) -> UUID:
        if tx is not None:
            return await arun_in(tx, event, "emit")
        return await self._here().link.run(lambda engine: engine.run(event), repeatable=False)

    def run(self, work: Callable[[Engine], T], *, repeatable: bool = True) -> T:
        """One call. Most may be repeated: reading, cancelling, rescheduling."""
        return self._pool.run(work, repeatable=repeatable)

    async def arun(self, work: Callable[[AsyncEngine], Awaitable[T]], *, repeatable: bool = True) -> T:
        return await self._here().link.run(work, repeatable=repeatable)

    async def await_end(self, task_id: UUID, timeout: float | None) -> TaskSnapshot:  # noqa: ASYNC109 - a result's own time limit
        here = self._here()
        return await wait_for_end(here.link, here.listener, task_id, timeout)

    async def await_process(self, process: str, process_id: int, timeout: float | None) -> ProcessStatus:  # noqa: ASYNC109 - as for a task's result
        here = self._here()
        return await wait_for_process(here.link, here.listener, process, process_id, timeout)

    def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """For those who have no event loop."""
        return self._portal.run(work)

    def close(self) -> None:
        self._finalizer()

    def _here(self) -> _Loop:
        running = asyncio.get_running_loop()
        here = self._loops.get(running)
        if here is None:
            self._forget_ended()
            here = self._loops[running] = _Loop(self._address)
        return here

    def _forget_ended(self) -> None:
        """asyncio.run leaves our connections behind, and nobody else knows of them."""
        for loop in [loop for loop in list(self._loops) if loop.is_closed()]:
            self._loops.pop(loop).close()


def _close(owner: int, pool: Pool, portal: Portal, loops: dict[asyncio.AbstractEventLoop, _Loop]) -> None:
    # A fork has the same sockets: to say goodbye there would end the connections of its parent.
    if os.getpid() != owner:
        return
    portal.close()
    pool.close()
    while loops:
        loops.popitem()[1].close()


def _repeatable(tasks: Tasks) -> bool:
    return all(task.idempotency_key is not None for task in tasks)


class _Counter:
    """Passes a batch's answers on and tells how many there were so far."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done = 0
        self._total = total
        self._progress = progress

    def __call__(self, answers: list[Enqueued]) -> list[Enqueued]:
        self.done += len(answers)
        if self._progress is not None:
            self._progress(self.done, self._total)
        return answers


def _placed(error: Refused, before: int) -> Refused:
    """A refusal counts within its own statement; the caller counts from the first task of all."""
    message = re.sub(r"\btasks\[(\d+)\]", lambda place: f"tasks[{int(place[1]) + before}]", error.message)
    return type(error)(message, hint=error.hint, sqlstate=error.sqlstate)
