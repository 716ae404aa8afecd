"""Settling: what became of events gathers while one round trip is in flight; then all of it goes at once."""

import asyncio
from collections.abc import Callable

from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import Statement
from holdfast.engine import events as statements
from holdfast.engine.events import Settlement
from holdfast.errors import HoldfastError, TryAgain
from holdfast.logs import Log

MAX_AT_ONCE = 1000
AGAIN_SECONDS = 0.1

Told = Callable[[], None]
Waiting = tuple[Settlement, Told]


class Settler:
    """Keeps every report until the database has acknowledged it, however often it must be sent."""

    def __init__(self, link: WorkerConnection, dispatcher_id: str, log: Log) -> None:
        self._link = link
        self._dispatcher_id = dispatcher_id
        self._log = log
        self._waiting: list[Waiting] = []
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, settlement: Settlement, told: Told) -> None:
        """`told` is called when the database knows, whatever it says to it."""
        self._waiting.append((settlement, told))
        self._empty.clear()
        self._more.set()

    async def emptied(self) -> None:
        """Wait until all that was added is acknowledged."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._more.wait()
            batch, self._waiting = self._waiting[:MAX_AT_ONCE], self._waiting[MAX_AT_ONCE:]
            await self._send(batch)
            if not self._waiting:
                self._more.clear()
                self._empty.set()

    async def _send(self, batch: list[Waiting]) -> None:
        """The same tokens again after a failure: what was accepted before answers already_done."""
        verdicts: list[str] | None = None
        while verdicts is None:
            try:
                verdicts = await self._link.run(lambda: self._statement(batch))
            except TryAgain:
                await asyncio.sleep(AGAIN_SECONDS)
            except HoldfastError as error:
                await self._link.pause(error)
        for (settlement, told), verdict in zip(batch, verdicts, strict=True):
            if verdict == "lost":
                self._log.warning("event_lost", event_id=str(settlement.event_id), status=settlement.status)
            told()

    def _statement(self, batch: list[Waiting]) -> Statement[list[str]]:
        return statements.settle_events(self._dispatcher_id, [settlement for settlement, _ in batch])
