"""The dispatcher: runs a sender for every subscription until it is asked to stop."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from holdfast import __version__
from holdfast._connections.listener import WakeupListener
from holdfast._connections.worker_connection import Outage, WorkerConnection
from holdfast._engine import Statement
from holdfast._engine import events as statements
from holdfast._engine.events import Subscription
from holdfast._install.postgres.database_url import resolve_database_url
from holdfast._install.schema import Choice, migrate
from holdfast._telemetry.logs import configure, log_of
from holdfast._telemetry.supervision import end_with_parent
from holdfast.errors import ConfigurationError, HoldfastError, NotAllowed
from holdfast.outbox.sender import SubscriptionSender
from holdfast.outbox.settlements import SettlementWriter
from holdfast.outbox.sink import Sink, build_sink, known_sinks, sink_config
from holdfast.settings import Settings

CHANNEL = "holdfast_outbox"
ROLE = "holdfast_dispatcher"
COALESCE_SECONDS = 0.02
LONGEST_POLL_SECONDS = 2.0
FLUSH_SECONDS = 5.0
RETIRE_SECONDS = 1.0
MAX_REASON = 500


def run_dispatcher(settings: Settings) -> None:
    """Run a dispatcher in this process until it receives SIGTERM or SIGINT."""
    configure(settings.log_format, settings.log_level)
    end_with_parent()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx logs a line for every request
    url = resolve_database_url(settings)
    if settings.database_url is None:
        migrate(url, choice=Choice.of(settings))
    asyncio.run(_run_until_signalled(url, settings))


async def _run_until_signalled(url: str, settings: Settings) -> None:
    dispatcher = Dispatcher(url, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, dispatcher.stop)
    await dispatcher.run()


class Dispatcher:
    """Serves every subscription. Any number of dispatchers may run at the same time."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.dispatcher_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.ready = asyncio.Event()
        self._settings = settings
        self._log = log_of("holdfast.outbox").bind(dispatcher_id=self.dispatcher_id)
        self._stopping = asyncio.Event()
        outage = Outage(self._log)
        self._connections = tuple(
            WorkerConnection(
                url, outage, name, _ignore_reconnect, self._stopping, role=ROLE, lazy_commit=True
            )
            for name in ("claim", "settle", "listen")
        )
        self._claiming, settling, listening = self._connections
        self._settlements = SettlementWriter(settling, self.dispatcher_id, self._log)
        self._listener = WakeupListener(listening, self._log, channel=CHANNEL)
        self._senders: dict[int, tuple[SubscriptionSender, asyncio.Task[None]]] = {}
        self._stopping_senders: set[asyncio.Task[None]] = set()
        self._unusable: dict[int, tuple[Subscription, str]] = {}
        """Subscriptions whose sink could not be built, with the reason."""
        self._sinks = known_sinks()

    def stop(self) -> None:
        """Start no further send. Sends in progress finish within the grace period."""
        self._stopping.set()
        for sender, _ in self._senders.values():
            sender.stop()
        self._listener.woken.set()

    async def run(self) -> None:
        """Serve until stopped. If one of the loops fails, all end: events would be sent and never settled."""
        self._log.info("dispatcher_started")
        try:
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(self._settlements.run()), group.create_task(self._listener.run())]
                try:
                    await self._serve()
                finally:
                    await self._stop_senders()
                    for connection in self._connections:
                        await connection.give_up()
                    for loop in loops:
                        loop.cancel()
        except ExceptionGroup as failed:
            error = failed.exceptions[0]
            if not isinstance(error, HoldfastError):
                self._log.error("dispatcher_failed", error=str(error), exc_info=error)
            raise error from None
        finally:
            await _run_at_most(RETIRE_SECONDS, self._retire())
            for connection in self._connections:
                await connection.close()
            self._log.info("dispatcher_stopped")

    async def _serve(self) -> None:
        while not self._stopping.is_set():
            self._listener.woken.clear()
            try:
                subscriptions = await self._claiming.run(self._attend)
            except HoldfastError as error:
                if isinstance(error, NotAllowed) and not self.ready.is_set():
                    await self._claiming.explain(error, "dispatcher")
                    raise
                await self._claiming.pause(error)
                continue
            self._update_senders(subscriptions)
            self.ready.set()
            # Senders that become idle or busy within this time are reported in one statement.
            await asyncio.sleep(COALESCE_SECONDS)
            await self._listener.wait(self._poll_seconds())

    def _attend(self) -> Statement[list[Subscription]]:
        return statements.dispatcher_heartbeat(
            self.dispatcher_id,
            [number for number, (sender, _) in self._senders.items() if sender.idle],
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            sinks=self._sinks,
            unusable={number: reason for number, (_, reason) in self._unusable.items()},
        )

    def _poll_seconds(self) -> float:
        longest = min(LONGEST_POLL_SECONDS, self._settings.poll_interval.total_seconds())
        return longest * random.uniform(0.8, 1.0)  # noqa: S311 - spreads polls; not a secret

    def _update_senders(self, subscriptions: Iterable[Subscription]) -> None:
        """Start, replace and stop senders so that they match the subscriptions."""
        wanted = {subscription.subscription_id: subscription for subscription in subscriptions}
        self._unusable = {number: tried for number, tried in self._unusable.items() if number in wanted}
        for number, (sender, _) in list(self._senders.items()):
            if number not in wanted or _sink_settings(wanted[number]) != _sink_settings(sender.subscription):
                self._stop_sender(number)
        for number, subscription in wanted.items():
            if number not in self._senders:
                self._start_sender(subscription)
            elif subscription.outstanding:
                self._senders[number][0].wake()

    def _start_sender(self, subscription: Subscription) -> None:
        sink = self._build_sink(subscription)
        if sink is None:
            return
        sender = SubscriptionSender(
            subscription,
            sink,
            dispatcher_id=self.dispatcher_id,
            settings=self._settings,
            connection=self._claiming,
            settlements=self._settlements,
            on_idle_change=self._listener.woken.set,
            log=self._log,
        )
        task = asyncio.create_task(sender.run())
        self._senders[subscription.subscription_id] = (sender, task)
        task.add_done_callback(partial(self._sender_ended, subscription))

    def _sender_ended(self, subscription: Subscription, task: asyncio.Task[None]) -> None:
        """One that failed is started again by the next look at the subscriptions."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._log.error("sender_failed", subscription=subscription.name, error=str(error), exc_info=error)
        found = self._senders.get(subscription.subscription_id)
        if found is not None and found[1] is task:
            del self._senders[subscription.subscription_id]

    def _build_sink(self, subscription: Subscription) -> Sink | None:
        """None if the sink cannot be built. It is tried again when its settings change."""
        number = subscription.subscription_id
        tried = self._unusable.get(number)
        if tried is not None and _sink_settings(tried[0]) == _sink_settings(subscription):
            return None
        try:
            sink = build_sink(subscription.sink, sink_config(subscription, self._settings))
        except Exception as error:  # noqa: BLE001 - a third-party sink may raise anything; others must go on
            expected = isinstance(error, ConfigurationError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}"
            self._unusable[number] = (subscription, reason[:MAX_REASON])
            self._log.error("sink_unusable", subscription=subscription.name, error=reason)
            self._listener.woken.set()  # reports the reason to the database without waiting for the next poll
            return None
        self._unusable.pop(number, None)
        return sink

    def _stop_sender(self, number: int) -> None:
        sender, task = self._senders.pop(number)
        sender.stop()
        self._stopping_senders.add(task)
        task.add_done_callback(self._stopping_senders.discard)

    async def _stop_senders(self) -> None:
        """Let sends in progress finish within the grace period, and report all results."""
        ends_at = time.monotonic() + self._settings.grace.total_seconds()
        for number in list(self._senders):
            self._stop_sender(number)
        stopping = set(self._stopping_senders)
        if stopping:
            await asyncio.wait(stopping, timeout=max(0.0, ends_at - time.monotonic()))
            for task in stopping:
                task.cancel()
            await asyncio.gather(*stopping, return_exceptions=True)
        await _run_at_most(FLUSH_SECONDS, self._settlements.flush())

    async def _retire(self) -> None:
        with contextlib.suppress(HoldfastError):
            await self._claiming.run(lambda: statements.retire_dispatcher(self.dispatcher_id))


def _ignore_reconnect() -> None:
    """A dispatcher has no metrics to count reconnections in."""


async def _run_at_most(seconds: float, work: Coroutine[Any, Any, object]) -> None:
    task = asyncio.create_task(work)
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _sink_settings(subscription: Subscription) -> tuple[object, ...]:
    """The fields that a sink is built from."""
    return (subscription.sink, subscription.target, subscription.options, subscription.secrets)
