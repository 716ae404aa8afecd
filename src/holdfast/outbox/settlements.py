"""Reports delivery results to the database, until it acknowledges them."""

from collections.abc import Callable

from holdfast._connections.acknowledged import AcknowledgedBatches, Failure, split_or_repeat
from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import events as statements
from holdfast._engine.events import Settlement
from holdfast._telemetry.logs import Log
from holdfast.errors import is_about_content

RETRY_SECONDS = 1.0

OnSettled = Callable[[], None]
PendingSettlement = tuple[Settlement, OnSettled]


class SettlementWriter:
    """Keeps every result until the database has taken it or refused it for good."""

    def __init__(self, connection: WorkerConnection, dispatcher_id: str, log: Log) -> None:
        self._connection = connection
        self._dispatcher_id = dispatcher_id
        self._log = log
        self._batches: AcknowledgedBatches[PendingSettlement, str] = AcknowledgedBatches(
            self._send,
            answered=self._answered,
            failed=self._failed,
            size_of=lambda one: len(one[0].error or ""),
        )

    def add(self, settlement: Settlement, on_settled: OnSettled) -> None:
        """Queue a result. `on_settled` is called once the database has taken or refused it."""
        self._batches.add((settlement, on_settled))

    async def flush(self) -> None:
        """Wait until everything added so far is acknowledged."""
        await self._batches.emptied()

    async def run(self) -> None:
        await self._batches.run()

    async def _send(self, batch: list[PendingSettlement]) -> list[str]:
        """Safe to repeat: results that were already accepted come back as `already_done`."""
        settlements = [settlement for settlement, _ in batch]
        return await self._connection.run(lambda: statements.settle_events(self._dispatcher_id, settlements))

    def _answered(self, pending: PendingSettlement, verdict: str) -> None:
        settlement, on_settled = pending
        if verdict == "lost":
            self._log.warning("event_lost", event_id=str(settlement.event_id), status=settlement.status)
        on_settled()

    async def _failed(self, failure: Failure[PendingSettlement]) -> list[list[PendingSettlement]]:
        again = await split_or_repeat(failure, self._connection.pause)
        if not again:
            [(settlement, on_settled)] = failure.items
            fields = {"event_id": str(settlement.event_id), "status": settlement.status}
            if is_about_content(failure.error):  # the event is sent again after its lease
                self._log.error("event_not_settled", **fields, error=str(failure.error))
                on_settled()
            else:
                self._batches.add_later(RETRY_SECONDS, failure.items[0], "alone")
        return again
