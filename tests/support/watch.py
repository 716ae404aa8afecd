"""A port through which everything passes, to see from outside when each connection was opened and closed."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Connection:
    """Times are of the machine's clock, as the database has them."""

    opened_at: float
    closed_at: float | None = None


@dataclass
class Watch:
    target: int
    port: int = 0
    connections: list[Connection] = field(default_factory=list)

    @property
    def open(self) -> list[Connection]:
        return [one for one in self.connections if one.closed_at is None]

    def closed_over(self, moment: float) -> list[Connection]:
        """Those that were open at that moment and have been closed since."""
        return [one for one in self.connections if one.closed_at and one.opened_at < moment < one.closed_at]

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(time.time())
        self.connections.append(connection)
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.target)
        pumps = [
            asyncio.create_task(_pump(reader, back_writer)),
            asyncio.create_task(_pump(back_reader, writer)),
        ]
        with suppress(asyncio.CancelledError):
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        connection.closed_at = time.time()
        for pump in pumps:
            pump.cancel()
        for end in (writer, back_writer):
            end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


@contextmanager
def watched(port: int) -> Iterator[Watch]:
    """In a thread of its own: the test's loop may be blocked."""
    watch, loop = Watch(port), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="watch", daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(watch.serve(), loop).result(10)
    try:
        yield watch
    finally:
        loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_leave(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _leave() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
