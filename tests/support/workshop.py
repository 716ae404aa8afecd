"""Workers in the event loop of a test, on a database of its own, and what such a test waits for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from holdfast import App
from holdfast._engine.tasks import ENDED
from holdfast._worker.worker import Worker
from holdfast.handle import Handle
from holdfast.settings import Settings
from support.database import Database

PATIENCE_SECONDS = 60.0

Row = dict[str, Any]
Line = dict[str, Any]
TaskId = UUID | Handle[Any]


class Workshop:
    """Its workers serve the queue `work`, and look by themselves too seldom to pass a test by that."""

    def __init__(self, db: Database, logs: list[Line]) -> None:
        self.db = db
        self.logs = logs
        self.app = App(db.dsn, name="shop")
        self.task = self.app.task
        self.conn = db.connect()
        self._watching: psycopg.AsyncConnection[Row] | None = None

    def settings(self, **given: Any) -> Settings:
        usual = {"worker_queues": "work", "poll_interval": "1m", "grace": "20s"}
        return Settings.load(**usual | given)

    def worker(self, url: str | None = None, **settings: Any) -> Worker:
        return Worker(self.app, url or self.db.dsn, self.settings(**settings))

    @asynccontextmanager
    async def working(self, url: str | None = None, **settings: Any) -> AsyncIterator[Worker]:
        """A worker that claims; at the end of the block it is asked to stop, and waited for."""
        worker = self.worker(url, **settings)
        running = asyncio.create_task(worker.run())
        ready = asyncio.create_task(worker.ready.wait())
        try:
            await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            yield worker
        finally:
            ready.cancel()
            if not running.done():
                worker.stop()
            await asyncio.wait_for(running, PATIENCE_SECONDS)

    async def ended(self, *tasks: TaskId) -> Row:
        """Where the last of these tasks stands once all have ended."""
        row: Row = {}
        for task in tasks:
            row = await self.until(
                "select * from queues.task_status where task_id = %s and status = any(%s)",
                _id(task),
                list(ENDED),
            )
        return row

    async def becomes(self, task: TaskId, status: str) -> Row:
        return await self.until(
            "select * from queues.task_status where task_id = %s and status = %s", _id(task), status
        )

    async def errors(self, task: TaskId) -> list[Row]:
        cursor = await (await self._connected()).execute(
            "select * from queues.task_error where task_id = %s order by error_id", [_id(task)]
        )
        return await cursor.fetchall()

    async def until(self, query: str, *parameters: Any) -> Row:
        """The first row, once there is one."""
        connection = await self._connected()
        async with self._patience(query):
            while True:
                row = await (await connection.execute(query.encode(), parameters)).fetchone()
                if row is not None:
                    return row
                await connection.execute("select pg_sleep(0.01)")  # the loop of the test goes on meanwhile

    async def logged(self, event: str, **fields: Any) -> Line:
        """The first line about this, once there is one."""
        found: list[Line] = await self.sees(lambda: self.lines(event, **fields))
        return found[0]

    async def sees(self, look: Callable[[], Any]) -> Any:
        """What the look finds, once it finds something."""
        connection = await self._connected()
        async with self._patience("what the test looks for"):
            while not (found := look()):
                await connection.execute("select pg_sleep(0.01)")
            return found

    @asynccontextmanager
    async def _patience(self, wanted: str) -> AsyncIterator[None]:
        """A test that waits in vain fails with what the workers have logged."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                yield
        except TimeoutError:
            lines = "\n".join(map(str, self.logs))
            raise AssertionError(f"in {PATIENCE_SECONDS:.0f} s there was not: {wanted}\n{lines}") from None

    def lines(self, event: str, **fields: Any) -> list[Line]:
        return [line for line in self.logs if line["event"] == event and fields.items() <= line.items()]

    async def terminate(self, application_name: str = "holdfast worker") -> int:
        """Cut the connections of the workers, as an administrator or a failover does."""
        found = self.conn.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where application_name = %s and datname = current_database()",
            [application_name],
        ).fetchone()
        assert found
        return int(found[0])

    async def close(self) -> None:
        self.app.close()
        if self._watching is not None:
            await self._watching.close()

    async def _connected(self) -> psycopg.AsyncConnection[Row]:
        if self._watching is None or self._watching.closed:
            self._watching = await psycopg.AsyncConnection.connect(
                self.db.dsn, autocommit=True, row_factory=dict_row
            )
        return self._watching


def _id(task: TaskId) -> UUID:
    return task.task_id if isinstance(task, Handle) else task
