"""What all parts of the HTTP side share: how it was set up, its connections, and who waits."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request

from holdfast.comms.delivery_reports import ReportReader
from holdfast.connections.session import DatabaseAddress
from holdfast.engine import health
from holdfast.errors import HoldfastError
from holdfast.http.access import Caller
from holdfast.http.database import Database, Trouble, Work
from holdfast.http.throttle import LoginThrottle
from holdfast.http.waiting import WaitRegistry
from holdfast.task import Task

T = TypeVar("T")

SAMPLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """How a site is set up. `create_app` says what each means."""

    hosts: tuple[str, ...] | None = None
    asks_for_login: bool = True
    secrets: tuple[str, ...] = field(default=(), repr=False)
    url: str | None = None
    proxies: tuple[str, ...] = ()
    max_waits: int = 5000
    max_connections: int = 10_000
    samples: bool = True
    report_readers: Mapping[str, ReportReader] = field(default_factory=dict)


@dataclass(slots=True)
class Live:
    """How many pages are open that are kept alive, and whose."""

    callers: Counter[str] = field(default_factory=Counter)


@dataclass
class Site:
    """One per application. Connections are made in the event loop that asks first."""

    address: DatabaseAddress
    options: SiteOptions
    tasks: Mapping[str, Task[..., Any]]
    live: Live = field(default_factory=Live)
    throttle: LoginThrottle = field(default_factory=LoginThrottle)
    stopping: bool = False
    _rooms: dict[asyncio.AbstractEventLoop, "LoopResources"] = field(default_factory=dict)

    @property
    def room(self) -> "LoopResources":
        loop = asyncio.get_running_loop()
        if loop not in self._rooms:
            self._rooms = {known: room for known, room in self._rooms.items() if not known.is_closed()}
            self._rooms[loop] = LoopResources(self)
        return self._rooms[loop]

    async def enqueue(self, caller: Caller, work: Work[T], *, repeatable: bool) -> T:
        run = self.room.acts.run
        return await run("holdfast_client", work, actor=caller.name, repeatable=repeatable)

    async def read(self, work: Work[T]) -> T:
        return await self.room.database.run("holdfast_reader", work)

    async def operate(self, caller: Caller | None, work: Work[T]) -> T:
        """For acts of people, and for what the site does for itself: check tokens, take samples.

        Acts may have to wait for a lock, as enqueueing may: they take no connection from those who look.
        """
        if caller is None:
            return await self.room.database.run("holdfast_operator", work)
        return await self.room.acts.run("holdfast_operator", work, actor=caller.name)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """While it serves: takes samples for the charts; at the end, lets those who wait go."""
        self.stopping = False
        sampling = asyncio.create_task(self._take_samples()) if self.options.samples else None
        try:
            yield
        finally:
            self.stopping = True
            if sampling is not None:
                sampling.cancel()
                await asyncio.wait([sampling])
            await self.close()

    def stop_waits(self) -> None:
        """The server is about to end: whoever waits is told to come again."""
        self.stopping = True
        for room in self._rooms.values():
            room.waits.stop()

    async def close(self) -> None:
        room = self._rooms.pop(asyncio.get_running_loop(), None)
        if room is not None:
            await room.close()

    async def _take_samples(self) -> None:
        trouble = Trouble("no_samples")
        while True:
            try:
                await self.operate(None, lambda engine: engine.run(health.take_sample()))
                trouble.is_over()
            except HoldfastError as error:
                trouble.found(error)
            await asyncio.sleep(SAMPLE_SECONDS)


class LoopResources:
    """What belongs to one event loop."""

    def __init__(self, site: Site) -> None:
        self.database = Database(site.address)
        self.acts = Database(site.address)
        self.waits = WaitRegistry(site.address, self.database, site.options.max_waits)
        self._probes = Database(site.address, size=1)
        self._probe: asyncio.Task[Any] | None = None

    async def probe(self) -> None:
        """Asks the database on a connection that nothing else uses. Probes at one time share the answer."""
        if self._probe is None or self._probe.done():
            asking = self._probes.run("holdfast_reader", lambda engine: engine.run(health.clock()))
            self._probe = asyncio.create_task(asking)
            self._probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())
        await asyncio.shield(self._probe)

    async def close(self) -> None:
        await self.waits.close()
        if self._probe is not None:
            await asyncio.wait([self._probe])
        for database in (self.database, self.acts, self._probes):
            await database.close()


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site
