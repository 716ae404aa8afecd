"""A connection of a worker or a dispatcher to its database, reopened when it is lost."""

import asyncio
import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.waiting import Ready, Wait

from holdfast._connections.session import (
    WORKER_ROLE,
    AnyConnection,
    configure_async_session,
    keeps_session,
    with_defaults,
)
from holdfast._connections.watched_socket import WatchedSocket
from holdfast._engine import AsyncPreparedEngine, Statement
from holdfast._engine.roles import advice, missing_grants
from holdfast._telemetry.logs import Log
from holdfast.errors import DatabaseUnavailable, NotAllowed, translate

T = TypeVar("T")

DEADLINE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 5.0
FORGET_SECONDS = 60.0
"""A connection that has not failed for so long is not needed any more: a wait for an answer is shorter."""


class Outage:
    """Begins with the first connection that fails, and ends when all that have failed work again.

    Two lines say so; what each connection meets meanwhile is for debugging. Any thread may call it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._failing: dict[str, float] = {}
        """The connections that have failed, and when they did last."""
        self._since: float | None = None
        self._latest = 0.0
        self._ended = float("-inf")
        self._opened: dict[str, float] = {}

    def opened(self, connection: str) -> None:
        with self._lock:
            self._opened[connection] = time.monotonic()

    def failed(self, connection: str, error: BaseException, **fields: Any) -> None:
        now = time.monotonic()
        with self._lock:
            begins = self._since is None or not self._still_failing(now)
            if begins and self._opened.pop(connection, now) < self._ended:
                begins = False  # it was idle in the last outage, and notices only now that it was cut
            else:
                self._fails(connection, now, begins=begins)
        write = self._log.warning if begins else self._log.debug
        write("database_unavailable", connection=connection, error=_text(error), **fields)

    def works(self, connection: str) -> None:
        """The database has answered. Cheap while there is no outage."""
        if self._since is None:
            return
        now = time.monotonic()
        with self._lock:
            since = self._since
            if since is None:
                return
            known = self._failing.pop(connection, None) is not None
            if known:
                self._latest = now
            ended = not self._still_failing(now)
            if ended:
                self._since = None
                self._ended = now
                self._failing.clear()
            seconds = round(self._latest - since, 1)
        if ended:
            self._log.info("database_back", connection=connection, after_seconds=seconds)
        elif known:
            self._log.debug("database_back", connection=connection, after_seconds=seconds)

    def forget(self, connection: str) -> None:
        """It is not needed any more, whether it works or not."""
        with self._lock:
            self._failing.pop(connection, None)

    def _fails(self, connection: str, now: float, *, begins: bool) -> None:
        if begins:
            self._since = now
            self._failing.clear()
        self._failing[connection] = self._latest = now

    def _still_failing(self, now: float) -> bool:
        return any(now - failed < FORGET_SECONDS for failed in self._failing.values())


def _text(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


def hang_up(connection: AnyConnection) -> None:
    """Make a statement that waits for the server fail now. Safe to call from any thread.

    A half-open connection never answers, no server setting limits that, and cancelling the statement would
    wait for the server as well. The caller that waits closes the connection.
    """
    if connection.closed:
        return
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.pgconn.socket)) as own,
    ):
        own.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def deadline(connection: AnyConnection, seconds: float) -> Iterator[None]:
    """Hang up if the statement inside takes longer. For use in an event loop."""
    timer = asyncio.get_running_loop().call_later(seconds, hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


class SendingEngine(AsyncPreparedEngine):
    """Also sends a statement without a task that waits for its answer."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection)
        self._talk: Generator[Any, Any, list[Any]] | None = None
        self._decode: Callable[[list[Any]], Any] = list
        self._done: Callable[[Any], None] = lambda _: None
        self._watched: WatchedSocket | None = None

    async def run(self, statement: Statement[T]) -> T:
        self.stop_watching()
        return await super().run(statement)

    def start(self, statement: Statement[T], done: Callable[[T | None], None]) -> bool:
        """Send it. The event loop calls `done` with its value, or None if it failed.

        Returns False if it is sent for the first time, and therefore not prepared.
        """
        if not self.prepared.include(statement.sql):
            return False
        self._decode, self._done = statement.decode, done
        self._talk = self.prepared.run(statement.sql, statement.params)
        self._proceed(None)
        return True

    def stop_watching(self) -> None:
        """Before others wait for the socket, and before it is closed."""
        if self._watched is not None:
            self._watched.close()
            self._watched = None

    def _proceed(self, ready: Any) -> None:
        if self._talk is None:  # no statement is under way: the server has hung up
            self.stop_watching()
            return
        value = None
        try:
            value = self._answer(ready)
        except Exception:  # noqa: BLE001 - `run` repeats the statement, and raises it
            self.stop_watching()
            self._talk = None
        if self._talk is None:
            self._done(value)

    def _answer(self, ready: Any) -> Any:
        """The value of the statement, or None if more has to come."""
        assert self._talk is not None  # noqa: S101 - a statement is under way
        try:
            self._watch(self._talk.send(ready))
        except StopIteration as end:
            self._talk = None
            return self._decode(end.value)
        return None

    def _watch(self, wait: Wait) -> None:
        """The socket stays watched after the answer: to begin and end that takes as long as to send."""
        if self._watched is None:
            self._watched = WatchedSocket(self.connection.pgconn, self._proceed, Ready.R)
        # A statement may be larger than the buffer of the socket.
        self._watched.write_with(self._proceed if wait & Wait.W else None, Ready.W)


class WorkerConnection:
    """Runs statements one at a time. After a loss, the next statement opens another connection."""

    def __init__(
        self,
        url: str,
        outage: Outage,
        name: str,
        reconnected: Callable[[], None],
        stopping: asyncio.Event,
        *,
        role: str = WORKER_ROLE,
        lazy_commit: bool = False,
    ) -> None:
        """With `lazy_commit`, a crash of the server may undo what it has acknowledged."""
        self.url = with_defaults(url, worker=True)
        self.name = name
        self.pooled = False
        """Whether the last connection went through a pooler such as PgBouncer."""
        self._role = role
        self._lazy_commit = lazy_commit
        self._outage = outage
        self._reconnected = reconnected
        self._stopping = stopping
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._engine: SendingEngine | None = None
        self._was_open = False
        self._failures = 0
        self._turn = asyncio.Lock()
        self._asked: float | None = None
        self._done: Callable[[Any], None] | None = None
        self._watchdog: asyncio.TimerHandle | None = None

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed and the next has not been made yet."""
        return self._failures > 0

    async def run(self, build: Callable[[], Statement[T]], seconds: float = DEADLINE_SECONDS) -> T:
        """Run a statement. Raises DatabaseUnavailable if the connection is lost; it may then be repeated."""
        async with self._turn:
            connection = await self.connection()
            if self._engine is None:
                self._engine = SendingEngine(connection)
            timer = asyncio.get_running_loop().call_later(seconds, hang_up, connection)
            try:
                result = await self._engine.run(build())
            except DatabaseUnavailable:
                # Even if it is still open: the server may have become read-only, and another one primary.
                await self.close()
                raise
            finally:
                timer.cancel()
        self.mark_working()
        return result

    def run_now(self, statement: Statement[T], done: Callable[[T | None], None]) -> bool:
        """Send a statement at once and call `done` with its value, without a task that waits for it.

        Returns False if another statement is under way, or this one is not prepared yet. `done` gets None if
        it failed: `run` then says why.
        """
        connection, engine = self._connection, self._engine
        if connection is None or connection.closed or engine is None or not self._take_turn():
            return False
        loop = asyncio.get_running_loop()
        self._asked, self._done = loop.time(), done
        if not engine.start(statement, self._answered):
            self._asked = None
            self._turn.release()
            return False
        if self._watchdog is None:
            self._watchdog = loop.call_later(DEADLINE_SECONDS, self._end_late_statement)
        return True

    def _answered(self, value: Any) -> None:
        done, self._done, self._asked = self._done, None, None
        self._turn.release()
        assert done is not None  # noqa: S101 - it was given with the statement
        done(value)

    def _end_late_statement(self) -> None:
        """One timer for all statements that were sent at once, which are thousands a second."""
        self._watchdog = None
        if self._asked is None or self._connection is None:
            return
        loop = asyncio.get_running_loop()
        left = self._asked + DEADLINE_SECONDS - loop.time()
        if left > 0:
            self._watchdog = loop.call_later(left, self._end_late_statement)
        else:
            hang_up(self._connection)

    def _take_turn(self) -> bool:
        """Take the lock without waiting: its coroutine ends at once if it is free."""
        taking = self._turn.acquire()
        try:
            taking.send(None)
        except StopIteration:
            return True
        taking.close()
        return False

    async def explain(self, error: NotAllowed, role: str) -> None:
        """Put the statement that grants the role into the error, if the login lacks it."""
        missing = await self.run(lambda: missing_grants((role,)))
        if missing:
            error.message, error.hint = f"the login of this {role} lacks a role", advice(missing)

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._engine = None
            self._connection = await self._open()
        return self._connection

    def mark_working(self) -> None:
        """Forget earlier failures: the server has replied."""
        self._failures = 0
        self._outage.works(self.name)

    async def pause(self, error: BaseException) -> None:
        """Wait after a failure: 200 ms, doubled each time up to 5 s, of which at least half at random."""
        self._failures += 1
        longest = min(LONGEST_PAUSE_SECONDS, 0.1 * 2 ** min(self._failures, 10))
        delay = longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads reconnects, guards nothing
        self._outage.failed(self.name, error, retry_in=round(delay, 2))
        if self._stopping.is_set():  # the event would end this pause and all later ones at once
            await asyncio.sleep(min(delay, 0.5))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stopping.wait()

    async def give_up(self) -> None:
        """Make a statement that waits for the server fail now. Cancelling it could take seconds."""
        if self._turn.locked() and self._connection is not None:
            hang_up(self._connection)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1), self._turn:
                    pass

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop_watching()
        if connection is not None:
            await connection.close()

    async def leave(self) -> None:
        """Close a connection that is not needed now. Opening it again does not count as a reconnect."""
        await self.close()
        self._was_open = False

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        try:
            connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        except psycopg.Error as error:
            raise _unavailable(error) from error
        try:
            with deadline(connection, DEADLINE_SECONDS):
                await configure_async_session(connection, self._role, lazy_commit=self._lazy_commit)
        except BaseException as error:
            await connection.close()
            if isinstance(error, psycopg.Error):
                raise _unavailable(error) from error
            raise
        self.pooled = not keeps_session(connection)
        self._outage.opened(self.name)
        if self._was_open:
            self._reconnected()
        self._was_open = True
        return connection


def _unavailable(error: psycopg.Error) -> DatabaseUnavailable:
    """Whatever prevents a connection may be temporary: a restart, a limit, a new password."""
    found = translate(error)
    return found if isinstance(found, DatabaseUnavailable) else DatabaseUnavailable(str(found))
