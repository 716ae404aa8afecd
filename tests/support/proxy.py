"""A way to the database that a test can cut, freeze or close. In a thread: the test's loop may be blocked."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

T = TypeVar("T")


class Proxy:
    """Passes bytes between a port of this machine and the server's socket."""

    def __init__(self, dsn: str) -> None:
        address = conninfo_to_dict(dsn)
        self._dsn = dsn
        self._target = Path(str(address["host"])) / f".s.PGSQL.{address['port']}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._open = True
        self.accepted = 0
        self.port = 0

    @property
    def dsn(self) -> str:
        return make_conninfo(self._dsn, host="127.0.0.1", port=self.port, sslmode="disable")

    def freeze(self) -> None:
        """From now on nothing passes, and nobody is told: a half-open connection."""
        self._do(self._flows.clear)

    def thaw(self) -> None:
        self._do(self._flows.set)

    def cut(self) -> None:
        """Close what is open."""
        self._do(self._cut)

    def close(self) -> None:
        """Close what is open, and let nobody in."""
        self._open = False
        self.cut()

    def open(self) -> None:
        self._open = True

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def _do(self, call: Callable[[], T]) -> T:
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(call()))
        return done.result(10)

    async def _serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._flows.set()
        return server

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        self.accepted += 1
        back_reader, back_writer = await asyncio.open_unix_connection(str(self._target))
        self._writers |= {writer, back_writer}
        await asyncio.gather(
            self._pump(reader, back_writer), self._pump(back_reader, writer), return_exceptions=True
        )
        self._writers -= {writer, back_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._flows.wait()
                data = await reader.read(65536)
                await self._flows.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    @contextmanager
    def running(self) -> Iterator["Proxy"]:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        try:
            yield self
        finally:
            self._do(server.close)
            self.thaw()
            self.cut()
            asyncio.run_coroutine_threadsafe(_settle(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _settle() -> None:
    """Let what was cut come to its end."""
    others: set[asyncio.Task[Any]] = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=5)
