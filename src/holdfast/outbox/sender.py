"""Sends the events of one subscription: claims them, passes them to its sink and reports the results.

Each subscription has its own sender, so a receiver that hangs does not delay the others. Events of the same
aggregate are sent one after another, in order.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import groupby

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import events as statements
from holdfast._engine.events import ClaimedEvent, Settlement, Subscription
from holdfast._telemetry import tracing
from holdfast._telemetry.logs import Log
from holdfast.errors import HoldfastError
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.settlements import SettlementWriter
from holdfast.outbox.sink import Rejected, Sink, Undelivered
from holdfast.settings import Settings

EventRun = list[ClaimedEvent]
"""Claimed events of one aggregate, in order."""


class SubscriptionSender:
    def __init__(
        self,
        subscription: Subscription,
        sink: Sink,
        *,
        dispatcher_id: str,
        settings: Settings,
        connection: WorkerConnection,
        settlements: SettlementWriter,
        on_idle_change: Callable[[], None],
        log: Log,
    ) -> None:
        self.subscription = subscription
        self.idle = False
        """The last claim returned nothing: the sender waits for `wake`."""
        self._sink = sink
        self._dispatcher_id = dispatcher_id
        self._lease = settings.lease
        # An event is sent only while its lease certainly holds, and may take at most half of the lease.
        self._send_seconds = min(sink.timeout, settings.lease.total_seconds() / 2)
        self._connection = connection
        self._settlements = settlements
        self._on_idle_change = on_idle_change
        self._log = log.bind(subscription=subscription.name)
        self._max_claimed = 2 * sink.concurrency
        self._claimed = 0
        self._leased_until = 0.0
        self._last_claimed = ("", "")
        self._sending = asyncio.Semaphore(sink.concurrency)
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._runs: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Claim nothing more and start no further send. Sends in progress finish."""
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Send until stopped, then wait for the sends in progress and close the sink."""
        try:
            await self._claim_and_send()
            if self._runs:
                await asyncio.wait(self._runs)
        finally:
            for task in self._runs:
                task.cancel()
            await asyncio.gather(*self._runs, return_exceptions=True)
            await self._sink.close()

    async def _claim_and_send(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            free = self._max_claimed - self._claimed
            worth_claiming = free > self._max_claimed // 4
            claimed = await self._claim(free) if worth_claiming else []
            for run in runs_of(claimed):
                self._start(run)
            if worth_claiming and self.idle == bool(claimed):
                self.idle = not claimed
                self._on_idle_change()
            if not claimed:
                await self._woken.wait()

    async def _claim(self, count: int) -> list[ClaimedEvent]:
        begun = time.monotonic()
        try:
            claimed = await self._connection.run(
                lambda: statements.claim_events(
                    self._dispatcher_id,
                    self.subscription.subscription_id,
                    count,
                    lease=self._lease,
                    after=self._last_claimed,
                )
            )
        except HoldfastError as error:
            await self._connection.pause(error)
            return []
        self._leased_until = begun + self._lease.total_seconds() * 0.9
        if claimed:
            self._last_claimed = (claimed[-1].namespace, claimed[-1].aggregate_id)
        return claimed

    def _start(self, run: EventRun) -> None:
        self._claimed += len(run)
        task = asyncio.create_task(self._send_run(run, self._leased_until))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def _send_run(self, run: EventRun, leased_until: float) -> None:
        """Send a run in order. After a failure the rest is released: later events must not overtake it."""
        sent = 0
        try:
            while sent < len(run):
                async with self._sending:
                    if self._stopping.is_set() or time.monotonic() + self._send_seconds > leased_until:
                        return
                    settlement = await self._send(run[sent])
                sent += 1
                self._settlements.add(settlement, self._settled)
                if settlement.status == "failed":
                    return
        finally:
            for claimed in run[sent:]:
                self._settlements.add(self._settlement(claimed, "released"), self._settled)

    async def _send(self, claimed: ClaimedEvent) -> Settlement:
        log_fields = {
            "event_id": str(claimed.event_id),
            "event_type": claimed.event_type,
            "attempt": claimed.attempt,
        }
        try:
            async with asyncio.timeout(self._send_seconds):
                with tracing.sending(
                    claimed.event_type, claimed.event_id, self.subscription.name, claimed.traceparent
                ):
                    await self._sink.send(OutgoingEvent(claimed))
        except Rejected as error:
            self._log.warning("event_rejected", **log_fields, error=str(error))
            return self._settlement(claimed, "rejected", str(error))
        except Undelivered as error:
            self._log.warning("event_undelivered", **log_fields, error=str(error))
            return self._settlement(claimed, "failed", str(error), error.delay)
        except TimeoutError:
            self._log.warning("event_undelivered", **log_fields, error="timeout")
            return self._settlement(claimed, "failed", f"no response within {self._send_seconds:g} seconds")
        except Exception as error:  # noqa: BLE001 - a third-party sink may raise anything
            self._log.exception("sink_failed", **log_fields)
            return self._settlement(claimed, "failed", f"{type(error).__name__}: {error}")
        self._log.debug("event_delivered", **log_fields)
        return self._settlement(claimed, "delivered")

    def _settlement(
        self, claimed: ClaimedEvent, status: str, error: str | None = None, delay: float | None = None
    ) -> Settlement:
        return Settlement(
            self.subscription.subscription_id,
            claimed.event_id,
            claimed.token,
            status,  # type: ignore[arg-type]
            error,
            delay,
        )

    def _settled(self) -> None:
        self._claimed -= 1
        self._woken.set()


def runs_of(claimed: list[ClaimedEvent]) -> list[EventRun]:
    """Group events by namespace and aggregate. A claim returns them in this order, then by number."""
    return [list(run) for _, run in groupby(claimed, key=lambda event: (event.namespace, event.aggregate_id))]
