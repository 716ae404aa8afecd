"""Waiting until a task has ended: by a notification, or by a look every two seconds where none comes."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from holdfast.connections.listener import TASK_DONE, Listener, NotificationsUnavailable
from holdfast.connections.pool import AsyncPool
from holdfast.connections.session import DatabaseAddress, open_async_connection
from holdfast.engine import AsyncEngine, processes, tasks
from holdfast.engine.processes import ProcessStatus, wait_key
from holdfast.engine.tasks import ENDED, Status, TaskSnapshot
from holdfast.errors import HoldfastError, TaskNotFound

T = TypeVar("T")

POLL_SECONDS = 2.0

_INTEREST = timedelta(seconds=30)


class ResultListener:
    """Listens for the ends of tasks and processes in one event loop, while any is waited for."""

    def __init__(self, address: DatabaseAddress) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._tried = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._unavailable = False
        self._listener = Listener(
            lambda: open_async_connection(address),
            TASK_DONE,
            notified=self._tell,
            connected=self._tell_all,
            lost=self._pause,
            needed=lambda: bool(self._waiting),
        )

    @asynccontextmanager
    async def told_of(self, task_id: UUID) -> AsyncIterator[asyncio.Event]:
        """Yield an event that is set when the task has ended, or when its end may have been missed.

        A process is identified by its wait_key.
        """
        told = asyncio.Event()
        self._waiting.setdefault(str(task_id), set()).add(told)
        try:
            await self._start()
            yield told
        finally:
            others = self._waiting[str(task_id)]
            others.discard(told)
            if not others:
                del self._waiting[str(task_id)]

    def close(self) -> None:
        """Works from any thread, and after the event loop has ended."""
        if self._task is None or self._task.done() or self._loop.is_closed():
            self._listener.close()
        else:
            self._loop.call_soon_threadsafe(self._task.cancel)

    async def _start(self) -> None:
        if self._unavailable:
            return
        if self._task is None or self._task.done():
            self._tried.clear()
            self._task = asyncio.create_task(self._listen())
        await self._tried.wait()

    async def _listen(self) -> None:
        try:
            await self._listener.run()
        except NotificationsUnavailable:
            self._unavailable = True
        finally:
            self._tried.set()

    def _tell(self, task_id: str) -> None:
        for told in self._waiting.get(task_id, ()):
            told.set()

    def _tell_all(self) -> None:
        """Make everything that waits look again: notifications may have been missed."""
        for events in self._waiting.values():
            for told in events:
                told.set()
        self._tried.set()

    async def _pause(self, _: HoldfastError) -> None:
        self._tried.set()
        await asyncio.sleep(POLL_SECONDS * random.uniform(0.5, 1))  # noqa: S311 - spreads load


async def wait_for_end(
    link: AsyncPool,
    listener: ResultListener,
    task_id: UUID,
    timeout: float | None,  # noqa: ASYNC109 - a result's own time limit
) -> TaskSnapshot:
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout

    async def watch(engine: AsyncEngine) -> Status:
        return await engine.run(tasks.watch(task_id, _INTEREST))

    async with listener.told_of(task_id) as told:
        while True:
            told.clear()
            try:
                status = await link.run(watch, repeatable=True)
            except TaskNotFound as error:
                raise _not_found(task_id) from error
            if status in ENDED:
                break
            await _wait(told, f"task {task_id}", status, deadline)
    end = await link.run(lambda engine: engine.run(tasks.task_snapshot(task_id)), repeatable=True)
    if end is None:
        raise _not_found(task_id)
    return end


async def wait_for_process(
    link: AsyncPool,
    listener: ResultListener,
    process: str,
    process_id: int,
    timeout: float | None,  # noqa: ASYNC109 - as for a task's result
) -> ProcessStatus:
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    key = wait_key(process, process_id)

    async def watch(engine: AsyncEngine) -> ProcessStatus | None:
        await engine.run(processes.watch_processes([key], _INTEREST))
        return await engine.run(processes.process_status(process, process_id))

    async with listener.told_of(key) as told:
        while True:
            told.clear()
            found = await link.run(watch, repeatable=True)
            if found is None:
                raise process_not_found(process, process_id)
            if found.ended:
                return found
            await _wait(told, f"{process} {process_id}", found.status, deadline)


def process_not_found(process: str, process_id: int) -> TaskNotFound:
    return TaskNotFound(
        f"there is no {process} {process_id}",
        hint="If it was kicked off in a transaction, commit that first.",
    )


async def _wait(told: asyncio.Event, name: str, status: str, deadline: float | None) -> None:
    now = asyncio.get_running_loop().time()
    look = now + POLL_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load
    try:
        async with asyncio.timeout_at(look if deadline is None else min(look, deadline)):
            await told.wait()
    except TimeoutError:
        if deadline is not None and deadline <= look:
            raise TimeoutError(f"{name} has not ended in time: it is {status}") from None


def _not_found(task_id: UUID) -> TaskNotFound:
    return TaskNotFound(
        f"there is no task {task_id}", hint="If it was enqueued in a transaction, commit that first."
    )


class Portal:
    """An event loop in a thread of its own, for those who wait without one."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="holdfast-wait", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run until stopped, then end what still waits, as asyncio.run would."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
