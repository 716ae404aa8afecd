"""One subscription: claim its events, send those of an aggregate one after another, say what became of each.

Every subscription has a courier of its own, so that a receiver that hangs keeps nobody else waiting.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import groupby

from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import events as statements
from holdfast.engine.events import ClaimedEvent, Settlement, Subscription
from holdfast.errors import HoldfastError
from holdfast.logs import Log
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.settlements import Settler
from holdfast.outbox.sink import Rejected, Sink, Undelivered
from holdfast.settings import Settings

Run = list[ClaimedEvent]
"""Events of one aggregate, in order."""


class Courier:
    def __init__(
        self,
        subscription: Subscription,
        sink: Sink,
        *,
        dispatcher_id: str,
        settings: Settings,
        link: WorkerConnection,
        settler: Settler,
        restless: Callable[[], None],
        log: Log,
    ) -> None:
        self.subscription = subscription
        self.hungry = False
        """Found nothing to claim when it looked last, and waits to be woken."""
        self._sink = sink
        self._dispatcher_id = dispatcher_id
        self._lease = settings.lease
        # An event is sent only while the lease certainly holds, and may take no more than half of it.
        self._limit = min(sink.timeout, settings.lease.total_seconds() / 2)
        self._link = link
        self._settler = settler
        self._restless = restless
        self._log = log.bind(subscription=subscription.name)
        self._most = 2 * sink.concurrency
        self._held = 0
        self._until = 0.0
        self._after = ""
        self._gate = asyncio.Semaphore(sink.concurrency)
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._runs: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Claim no more, and send nothing that is not on its way yet."""
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Until stopped; then until what is on its way has arrived, or not."""
        try:
            while not self._stopping.is_set():
                self._woken.clear()
                wanted = self._most - self._held
                claimed = await self._claim(wanted) if wanted > self._most // 4 else []
                for run in runs_of(claimed):
                    self._start(run)
                if wanted > self._most // 4 and self.hungry == bool(claimed):
                    self.hungry = not claimed
                    self._restless()
                if not claimed:
                    await self._woken.wait()
            if self._runs:
                await asyncio.wait(self._runs)
        finally:
            for task in self._runs:
                task.cancel()
            await asyncio.gather(*self._runs, return_exceptions=True)

    async def close(self) -> None:
        await self._sink.close()

    async def _claim(self, wanted: int) -> Run:
        begun = time.monotonic()
        try:
            claimed = await self._link.run(
                lambda: statements.claim_events(
                    self._dispatcher_id,
                    self.subscription.subscription_id,
                    wanted,
                    lease=self._lease,
                    after_aggregate=self._after,
                )
            )
        except HoldfastError as error:
            await self._link.pause(error)
            return []
        self._until = begun + self._lease.total_seconds() * 0.9
        if claimed:
            self._after = claimed[-1].aggregate_id
        return claimed

    def _start(self, run: Run) -> None:
        self._held += len(run)
        task = asyncio.create_task(self._deliver(run, self._until))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def _deliver(self, run: Run, until: float) -> None:
        """After a failure the rest waits: what follows must not overtake it."""
        place = 0
        try:
            while place < len(run):
                async with self._gate:
                    if self._stopping.is_set() or time.monotonic() + self._limit > until:
                        return
                    settlement = await self._send(run[place])
                place += 1
                self._settler.add(settlement, self._settled)
                if settlement.status == "failed":
                    return
        finally:
            for claimed in run[place:]:
                self._settler.add(self._settlement(claimed, "released"), self._settled)

    async def _send(self, claimed: ClaimedEvent) -> Settlement:
        about = {
            "event_id": str(claimed.event_id),
            "event_type": claimed.event_type,
            "attempt": claimed.attempt,
        }
        try:
            async with asyncio.timeout(self._limit):
                await self._sink.send(OutgoingEvent(claimed))
        except Rejected as error:
            self._log.warning("event_rejected", **about, error=str(error))
            return self._settlement(claimed, "rejected", str(error))
        except Undelivered as error:
            self._log.warning("event_undelivered", **about, error=str(error))
            return self._settlement(claimed, "failed", str(error), error.delay)
        except TimeoutError:
            self._log.warning("event_undelivered", **about, error="timeout")
            return self._settlement(claimed, "failed", f"no answer within {self._limit:g} seconds")
        except Exception as error:  # noqa: BLE001 - a sink of a package may raise anything
            self._log.exception("sink_failed", **about)
            return self._settlement(claimed, "failed", f"{type(error).__name__}: {error}")
        self._log.debug("event_delivered", **about)
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
        self._held -= 1
        self._woken.set()


def runs_of(claimed: Run) -> list[Run]:
    """The claim answers in the order of aggregates, and of numbers within each."""
    return [list(run) for _, run in groupby(claimed, key=lambda event: event.aggregate_id)]
