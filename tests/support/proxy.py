"""A way to the database that a test can cut, freeze or close. In a thread: the test's loop may be blocked."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

T = TypeVar("T")
Direction = Literal["to the server", "to the client"]
BOTH: tuple[Direction, Direction] = ("to the server", "to the client")


class Passage:
    """One connection of a client, and ours to the server for it."""

    def __init__(
        self, client: asyncio.StreamWriter, server: asyncio.StreamWriter, blocked: set[Direction]
    ) -> None:
        self.writers: dict[Direction, asyncio.StreamWriter] = {
            "to the server": server,
            "to the client": client,
        }
        self.flows: dict[Direction, asyncio.Event] = {way: asyncio.Event() for way in BOTH}
        for way in BOTH:
            if way not in blocked:
                self.flows[way].set()

    def abort(self) -> None:
        for writer in self.writers.values():
            writer.transport.abort()


class Proxy:
    """Passes bytes between a port of this machine and the server's socket."""

    def __init__(self, dsn: str) -> None:
        address = conninfo_to_dict(dsn)
        self._dsn = dsn
        self._target = Path(str(address["host"])) / f".s.PGSQL.{address['port']}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._passages: set[Passage] = set()
        self._stranded: set[Passage] = set()
        self._blocked: set[Direction] = set()
        self._open = True
        self.accepted = 0
        self.port = 0

    @property
    def dsn(self) -> str:
        return make_conninfo(self._dsn, host="127.0.0.1", port=self.port, sslmode="disable")

    def freeze(self, *ways: Direction) -> None:
        """From now on no data passes, without notice: a half-open connection. Or only one way."""
        self._do(lambda: self._freeze({*(ways or BOTH)}))

    def thaw(self) -> None:
        self._do(self._thaw)

    def strand(self) -> None:
        """What is open never passes anything again, and is not closed. Others may come and go."""
        self._do(self._strand)

    def cut(self) -> None:
        """Close what is open."""
        self._do(self._cut)

    def close(self) -> None:
        """Close open connections and refuse new ones."""
        self._open = False
        self.cut()

    def open(self) -> None:
        self._open = True

    def _freeze(self, ways: set[Direction]) -> None:
        self._blocked |= ways
        for passage in self._passages:
            for way in ways:
                passage.flows[way].clear()

    def _thaw(self) -> None:
        self._blocked.clear()
        for passage in self._passages - self._stranded:
            for way in BOTH:
                passage.flows[way].set()

    def _strand(self) -> None:
        self._stranded |= self._passages
        for passage in self._passages:
            for way in BOTH:
                passage.flows[way].clear()

    def _cut(self) -> None:
        for passage in self._passages:
            passage.abort()
            for way in BOTH:
                passage.flows[way].set()
        self._passages.clear()

    def _do(self, call: Callable[[], T]) -> T:
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(call()))
        return done.result(10)

    async def _serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        self.accepted += 1
        try:
            back_reader, back_writer = await asyncio.open_unix_connection(str(self._target))
        except OSError:  # the server is not there
            writer.transport.abort()
            return
        passage = Passage(writer, back_writer, self._blocked)
        self._passages.add(passage)
        await asyncio.gather(
            self._pump(reader, passage, "to the server"),
            self._pump(back_reader, passage, "to the client"),
            return_exceptions=True,
        )
        self._passages.discard(passage)
        self._stranded.discard(passage)

    async def _pump(self, reader: asyncio.StreamReader, passage: Passage, way: Direction) -> None:
        writer, flows = passage.writers[way], passage.flows[way]
        try:
            while True:
                await flows.wait()
                data = await reader.read(65536)
                await flows.wait()
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
