"""Waiting for the end of a task: for a notification, or polling every two seconds where none arrives."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from holdfast._connections.listener import REPLY_SECONDS, TASK_DONE, Listener, NotificationsUnavailable
from holdfast._connections.pool import AsyncPool
from holdfast._connections.session import DatabaseAddress, open_async_connection
from holdfast._connections.shard_addresses import ShardAddresses, read_shard_addresses
from holdfast._connections.wait_ticket import WAIT_TTL, issue, wait_url
from holdfast._engine import AsyncEngine, Statement, processes, tasks
from holdfast._engine.processes import ProcessStatus, wait_key
from holdfast._engine.tasks import ENDED, TaskSnapshot
from holdfast.errors import HoldfastError, NotFound
from holdfast.options import check_duration

if TYPE_CHECKING:
    from holdfast._connections.client import Client
    from holdfast.settings import Settings

T = TypeVar("T")

POLL_SECONDS = 2.0
LOOK_SECONDS = 3.0
"""How long a wait with a shorter timeout may take to look once: one of 0 asks whether the task has ended."""
SPARE_SECONDS = 0.5
"""For the wait to say the status, before it is given up because the database does not answer."""

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
            lambda: open_async_connection(address, REPLY_SECONDS),
            TASK_DONE,
            notified=self._notify,
            connected=self._notify_all,
            lost=self._pause,
            needed=lambda: bool(self._waiting),
        )

    @asynccontextmanager
    async def notified_of(self, task_id: UUID) -> AsyncIterator[asyncio.Event]:
        """Yield an event that is set when the task has ended, or when its end may have been missed.

        A process is identified by its wait_key.
        """
        notified = asyncio.Event()
        self._waiting.setdefault(str(task_id), set()).add(notified)
        try:
            await self._start()
            yield notified
        finally:
            others = self._waiting[str(task_id)]
            others.discard(notified)
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

    def _notify(self, task_id: str) -> None:
        for notified in self._waiting.get(task_id, ()):
            notified.set()

    def _notify_all(self) -> None:
        """Make everything that waits look again: notifications may have been missed."""
        for events in self._waiting.values():
            for notified in events:
                notified.set()
        self._tried.set()

    async def _pause(self, _: HoldfastError) -> None:
        self._tried.set()
        await asyncio.sleep(POLL_SECONDS * random.uniform(0.5, 1))  # noqa: S311 - spreads load


class ResultListeners:
    """The listeners of one event loop: one for each shard that has a task that is waited for."""

    def __init__(self, address: DatabaseAddress, pool: AsyncPool) -> None:
        self._address = address
        self._pool = pool
        self._shards: ShardAddresses | None = None
        self._listeners: dict[int, ResultListener] = {}

    async def of_task(self, task_id: UUID) -> ResultListener:
        shards = await self._find()
        return self._listener(shards, shards.of_task(task_id))

    async def first(self) -> ResultListener:
        """Processes are on the first shard."""
        return self._listener(await self._find(), 0)

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()

    def _listener(self, shards: ShardAddresses, number: int) -> ResultListener:
        if number not in self._listeners:
            self._listeners[number] = ResultListener(shards.addresses[number])
        return self._listeners[number]

    async def _find(self) -> ShardAddresses:
        if self._shards is None:
            self._shards = await self._pool.run(
                lambda engine: read_shard_addresses(engine, self._address), repeatable=True
            )
        return self._shards


async def wait_for_end(
    pool: AsyncPool,
    listener: ResultListener,
    task_id: UUID,
    timeout: float | None,  # noqa: ASYNC109 - part of the API
) -> TaskSnapshot:
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    watch = tasks.watch(task_id, _INTEREST)
    async with listener.notified_of(task_id) as notified:
        while True:
            notified.clear()
            try:
                status = await pool.run(lambda engine: engine.run(watch), repeatable=True)
            except NotFound as error:
                raise task_not_found(task_id) from error
            if status in ENDED:
                break
            await _wait(notified, f"task {task_id}", status, deadline)
    end = await pool.run(lambda engine: engine.run(tasks.task_snapshot(task_id)), repeatable=True)
    if end is None:
        raise task_not_found(task_id)
    return end


async def wait_for_process(
    pool: AsyncPool,
    listener: ResultListener,
    process: str,
    process_id: int,
    timeout: float | None,  # noqa: ASYNC109 - part of the API
) -> ProcessStatus:
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    key = wait_key(process, process_id)

    async def watch(engine: AsyncEngine) -> ProcessStatus | None:
        await engine.run(processes.watch_processes([key], _INTEREST))
        return await engine.run(processes.process_status(process, process_id))

    async with listener.notified_of(key) as notified:
        while True:
            notified.clear()
            found = await pool.run(watch, repeatable=True)
            if found is None:
                raise process_not_found(process, process_id)
            if found.ended:
                return found
            await _wait(notified, f"{process} {process_id}", found.status, deadline)


def process_not_found(process: str, process_id: int) -> NotFound:
    return NotFound(
        f"there is no {process} {process_id}",
        hint="If it was kicked off in a transaction, commit that transaction first.",
    )


@asynccontextmanager
async def in_time(name: str, timeout: float | None) -> AsyncIterator[None]:  # noqa: ASYNC109 - part of the API
    """Raise TimeoutError in time also if the database does not answer."""
    longest = None if timeout is None else max(timeout + SPARE_SECONDS, LOOK_SECONDS)
    scope = asyncio.timeout(longest)
    try:
        async with scope:
            yield
    except TimeoutError:
        if scope.expired():
            raise TimeoutError(
                f"{name} did not end in time; its status is not known, because the database did not answer"
            ) from None
        raise


async def _wait(notified: asyncio.Event, name: str, status: str, deadline: float | None) -> None:
    now = asyncio.get_running_loop().time()
    poll_at = now + POLL_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load
    try:
        async with asyncio.timeout_at(poll_at if deadline is None else min(poll_at, deadline)):
            await notified.wait()
    except TimeoutError:
        if deadline is not None and deadline <= poll_at:
            raise TimeoutError(f"{name} did not end in time; its status is {status}") from None


def task_not_found(task_id: UUID) -> NotFound:
    return NotFound(
        f"there is no task {task_id}",
        hint="If it was enqueued in a transaction, commit that transaction first.",
    )


class ProcessHome(Protocol):
    """What the handle of a business process needs of its app."""

    @property
    def settings(self) -> "Settings": ...
    def connect(self) -> "Client": ...


class ProcessHandle:
    """A business process that was kicked off. It holds no connection; `app.process` makes it again."""

    __slots__ = ("_home", "process", "process_id")

    def __init__(self, process: str, process_id: int, home: ProcessHome) -> None:
        self.process = process
        self.process_id = process_id
        self._home = home

    def __repr__(self) -> str:
        return f"<ProcessHandle of {self.process} {self.process_id}>"

    def status(self) -> ProcessStatus:
        return self._found(self._home.connect().run(self._status(), "status"))

    async def astatus(self) -> ProcessStatus:
        return self._found(await self._home.connect().arun(self._status()))

    def wait_end(self, timeout: float | None = None) -> ProcessStatus:
        """Wait for the end of the process. Raises TimeoutError after that many seconds."""
        return self._home.connect().run_async(self.await_end(timeout), "wait", "await_end")

    async def await_end(self, timeout: float | None = None) -> ProcessStatus:  # noqa: ASYNC109 - part of the API
        return await self._home.connect().await_process(self.process, self.process_id, timeout)

    def cancel(self, reason: str | None = None) -> str:
        """Cancel the process unless it has ended. Returns the decision that it ended with."""
        statement = processes.cancel_process(self.process, self.process_id, reason)
        return self._home.connect().run(statement, "cancel")

    async def acancel(self, reason: str | None = None) -> str:
        statement = processes.cancel_process(self.process, self.process_id, reason)
        return await self._home.connect().arun(statement)

    def wait_url(self, ttl: float | timedelta = WAIT_TTL) -> str:
        """A URL at which a front end can wait for this process and no other, until the ttl is over."""
        settings, subject = self._home.settings, (self.process, self.process_id)
        ticket = issue(settings.web_secrets, subject, check_duration("ttl", ttl), time.time())
        return wait_url(settings.web_url, subject, ticket)

    def _status(self) -> Statement[ProcessStatus | None]:
        return processes.process_status(self.process, self.process_id)

    def _found(self, status: ProcessStatus | None) -> ProcessStatus:
        if status is None:
            raise process_not_found(self.process, self.process_id)
        return status


class Portal:
    """An event loop in its own thread, for callers that have none."""

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
    """Run until stopped, then cancel the remaining tasks, as asyncio.run does."""
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
