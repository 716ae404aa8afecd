"""A dispatcher: a courier for every subscription, from start to stop."""

import asyncio
import contextlib
import os
import random
import socket
import time
import uuid
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

from holdfast import __version__
from holdfast.connections.listener import Listener
from holdfast.connections.worker_connection import WorkerConnection
from holdfast.engine import Statement
from holdfast.engine import events as statements
from holdfast.engine.events import Subscription
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.logs import Log
from holdfast.outbox.sender import Courier
from holdfast.outbox.settlements import Settler
from holdfast.outbox.sink import build_sink, find_place, known_sinks
from holdfast.settings import Settings
from holdfast.worker.metrics import Metrics

CHANNEL = "holdfast_outbox"
ROLE = "holdfast_dispatcher"
CALM_SECONDS = 0.02
LAST_WORDS_SECONDS = 5.0
MAX_REASON = 500


class Dispatcher:
    """Serves every subscription until it is asked to stop; any number may do so at once."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.dispatcher_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.ready = asyncio.Event()
        self._settings = settings
        self._log: Log = structlog.get_logger("holdfast.outbox").bind(dispatcher_id=self.dispatcher_id)
        self._stopping = asyncio.Event()
        metrics = Metrics()
        self._claiming, self._settling, self._listening = (
            WorkerConnection(url, self._log, name, metrics.reconnected, self._stopping, role=ROLE)
            for name in ("claim", "settle", "listen")
        )
        self._settler = Settler(self._settling, self.dispatcher_id, self._log)
        self._listener = Listener(self._listening, self._log, channel=CHANNEL, concerns=lambda _: True)
        self._couriers: dict[int, tuple[Courier, asyncio.Task[None]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._unusable: dict[int, tuple[Subscription, str]] = {}
        self._sinks = known_sinks()

    def stop(self) -> None:
        """From now on, nothing is sent that is not on its way yet."""
        self._stopping.set()
        for courier, _ in self._couriers.values():
            courier.stop()
        self._listener.woken.set()

    async def run(self) -> None:
        loops = [asyncio.create_task(self._settler.run()), asyncio.create_task(self._listener.run())]
        self._log.info("dispatcher_started")
        try:
            await self._serve()
        finally:
            await self._wind_down()
            for link in (self._claiming, self._settling, self._listening):
                await link.give_up()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self._up_to(1.0, self._retire())
            for link in (self._claiming, self._settling, self._listening):
                await link.close()
            self._log.info("dispatcher_stopped")

    async def _serve(self) -> None:
        while not self._stopping.is_set():
            self._listener.woken.clear()
            try:
                found = await self._claiming.run(self._attendance)
            except HoldfastError as error:
                await self._claiming.pause(error)
                continue
            self._see_to(found)
            self.ready.set()
            # Couriers that turn busy or hungry in the same moment are told of together.
            await asyncio.sleep(CALM_SECONDS)
            await self._listener.wait(self._pause())

    def _attendance(self) -> Statement[list[Subscription]]:
        return statements.attend_outbox(
            self.dispatcher_id,
            [number for number, (courier, _) in self._couriers.items() if courier.hungry],
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            sinks=self._sinks,
            unusable={number: reason for number, (_, reason) in self._unusable.items()},
        )

    def _pause(self) -> float:
        longest = self._settings.poll_interval.total_seconds()
        return longest * random.uniform(0.8, 1.0)  # noqa: S311 - spreads polls, guards nothing

    def _see_to(self, found: Iterable[Subscription]) -> None:
        """A courier for each, a new one where the sink has changed, none where the subscription has gone."""
        wanted = {subscription.subscription_id: subscription for subscription in found}
        self._unusable = {number: tried for number, tried in self._unusable.items() if number in wanted}
        for number, (courier, _) in list(self._couriers.items()):
            if number not in wanted or _sink_of(wanted[number]) != _sink_of(courier.subscription):
                self._dismiss(number)
        for number, subscription in wanted.items():
            if number not in self._couriers:
                self._employ(subscription)
            elif subscription.outstanding:
                self._couriers[number][0].wake()

    def _employ(self, subscription: Subscription) -> None:
        number = subscription.subscription_id
        tried = self._unusable.get(number)
        if tried is not None and _sink_of(tried[0]) == _sink_of(subscription):
            return
        try:
            sink = build_sink(subscription.sink, find_place(subscription, self._settings))
        except Exception as error:  # noqa: BLE001 - a sink of a package may raise anything, and the others go on
            known = isinstance(error, ConfigurationError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            self._unusable[number] = (subscription, reason[:MAX_REASON])
            self._log.error("sink_unusable", subscription=subscription.name, error=reason)
            self._listener.woken.set()  # so that the database is told at once
            return
        self._unusable.pop(number, None)
        courier = Courier(
            subscription,
            sink,
            dispatcher_id=self.dispatcher_id,
            settings=self._settings,
            link=self._claiming,
            settler=self._settler,
            restless=self._listener.woken.set,
            log=self._log,
        )
        self._couriers[number] = (courier, asyncio.create_task(_employed(courier)))

    def _dismiss(self, number: int) -> None:
        courier, task = self._couriers.pop(number)
        courier.stop()
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _wind_down(self) -> None:
        """Claim no more, let arrive what is on its way, give back the rest."""
        ends_at = time.monotonic() + self._settings.grace.total_seconds()
        for number in list(self._couriers):
            self._dismiss(number)
        leaving = set(self._leaving)
        if leaving:
            await asyncio.wait(leaving, timeout=max(0.0, ends_at - time.monotonic()))
            for task in leaving:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
        await self._up_to(LAST_WORDS_SECONDS, self._settler.emptied())

    async def _retire(self) -> None:
        with contextlib.suppress(HoldfastError):
            await self._claiming.run(lambda: statements.retire_dispatcher(self.dispatcher_id))

    async def _up_to(self, seconds: float, event: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(event)
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _employed(courier: Courier) -> None:
    try:
        await courier.run()
    finally:
        await courier.close()


def _sink_of(subscription: Subscription) -> tuple[object, ...]:
    """What a sink is built from."""
    wanted = subscription
    return (wanted.sink, wanted.target, wanted.options, wanted.secrets)
