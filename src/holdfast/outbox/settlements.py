"""Reports delivery results to the database. Results that arrive during a round trip form the next batch."""

import asyncio
from collections.abc import Callable

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import Statement
from holdfast._engine import events as statements
from holdfast._engine.events import Settlement
from holdfast._telemetry.logs import Log
from holdfast.errors import HoldfastError, TryAgain

MAX_BATCH = 1000
RETRY_SECONDS = 0.1

OnSettled = Callable[[], None]
PendingSettlement = tuple[Settlement, OnSettled]


class SettlementWriter:
    """Keeps every result until the database acknowledges it, and retries as often as needed."""

    def __init__(self, connection: WorkerConnection, dispatcher_id: str, log: Log) -> None:
        self._connection = connection
        self._dispatcher_id = dispatcher_id
        self._log = log
        self._pending: list[PendingSettlement] = []
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, settlement: Settlement, on_settled: OnSettled) -> None:
        """Queue a result. `on_settled` is called once the database has taken or refused it."""
        self._pending.append((settlement, on_settled))
        self._empty.clear()
        self._more.set()

    async def flush(self) -> None:
        """Wait until everything added so far is acknowledged."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._more.wait()
            batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
            await self._write(batch)
            if not self._pending:
                self._more.clear()
                self._empty.set()

    async def _write(self, batch: list[PendingSettlement]) -> None:
        """Safe to repeat: results that were already accepted come back as `already_done`."""
        verdicts: list[str] | None = None
        while verdicts is None:
            try:
                verdicts = await self._connection.run(lambda: self._statement(batch))
            except TryAgain:
                await asyncio.sleep(RETRY_SECONDS)
            except HoldfastError as error:
                await self._connection.pause(error)
        for (settlement, on_settled), verdict in zip(batch, verdicts, strict=True):
            if verdict == "lost":
                self._log.warning("event_lost", event_id=str(settlement.event_id), status=settlement.status)
            on_settled()

    def _statement(self, batch: list[PendingSettlement]) -> Statement[list[str]]:
        return statements.settle_events(self._dispatcher_id, [settlement for settlement, _ in batch])
