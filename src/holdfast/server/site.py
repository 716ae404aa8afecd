"""What all parts of the HTTP side share: its options, its database connections and its waiting requests."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from fastapi import Request

from holdfast._connections.pool import AsyncWork
from holdfast._connections.session import DatabaseAddress
from holdfast._connections.shard_addresses import read_shard_names
from holdfast._connections.waiting import Waits
from holdfast._engine import AsyncEngine, Statement, activity, health, roles
from holdfast.errors import HoldfastError, NotAllowed
from holdfast.messages.delivery_reports import ReportReader
from holdfast.server.access import Caller, LoginThrottle
from holdfast.server.background import keep_running
from holdfast.server.problem import TroubleLog, missing_role, report_waits
from holdfast.server.role_pool import Role, RolePool
from holdfast.server.searches import Searches
from holdfast.server.shared_results import SharedResults
from holdfast.server.streamed_steps import StreamedSteps, read_steps
from holdfast.server.turns import Turns, too_many_requests
from holdfast.task import Task

T = TypeVar("T")
Query = Statement[T] | AsyncWork[T]
"""One statement, or a function that runs several in one transaction."""

SAMPLE_SECONDS = 10.0
ACCESS_POOL_SIZE = 2
SEARCH_POOL_SIZE = 2
WAIT_POOL_SIZE = 2
CALLER_SHARE = 2


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """See `create_app`."""

    hosts: tuple[str, ...] | None = None
    asks_for_login: bool = True
    shows_values: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)
    url: str | None = None
    proxies: tuple[str, ...] = ()
    max_waits: int = 5000
    samples: bool = True
    name: str | None = None
    trace_url: str | None = None
    log_url: str | None = None
    report_readers: Mapping[str, ReportReader] = field(default_factory=dict)


@dataclass
class Site:
    """One per application. Connections belong to the event loop that first needs them."""

    address: DatabaseAddress
    options: SiteOptions
    tasks: Mapping[str, Task[..., Any]]
    live_pages: Counter[str] = field(default_factory=Counter)
    """How many live pages of the dashboard are open, per caller."""
    throttle: LoginThrottle = field(default_factory=LoginThrottle)
    stopping: bool = False
    _has_shards: bool | None = None
    _resources: dict[asyncio.AbstractEventLoop, "LoopResources"] = field(default_factory=dict)

    @property
    def resources(self) -> "LoopResources":
        loop = asyncio.get_running_loop()
        if loop not in self._resources:
            self._resources = {known: own for known, own in self._resources.items() if not known.is_closed()}
            self._resources[loop] = LoopResources(self)
        return self._resources[loop]

    @property
    def waiting(self) -> int:
        """How many requests wait, in all event loops."""
        return sum(len(resources.waits) for resources in self._resources.values())

    async def enqueue(self, caller: Caller, query: Query[T], *, repeatable: bool) -> T:
        run = self.resources.actions.run
        return await run("holdfast_client", _as_work(query), actor=caller.name, repeatable=repeatable)

    async def read(self, query: Query[T]) -> T:
        return await self.resources.reads.run("holdfast_reader", _as_work(query))

    async def search(self, query: Query[T]) -> T:
        """For reads that may examine many tasks before they find one."""
        return await self.resources.searches.run(_as_work(query))

    async def check_access(self, query: Query[T]) -> T:
        """For tokens and sessions, which every request needs: on connections that nothing else uses."""
        return await self.resources.access_pool.run("holdfast_operator", _as_work(query))

    async def read_shared(self, name: str, query: Query[T], max_age: float) -> T:
        """As `read`, or what another page has read under this name at most `max_age` seconds ago.

        Nobody's turn: other callers join the query. There are few names.
        """
        pool = self.resources.pool
        return await self.resources.shared.get(
            name, lambda: pool.run("holdfast_reader", _as_work(query)), max_age
        )

    async def shard_names(self) -> list[str]:
        """In their order; none without shards. That never changes, so it is asked only once."""
        if self._has_shards is False:
            return []
        names = await self.read(read_shard_names)
        self._has_shards = bool(names)
        return names

    def forget_shared(self) -> None:
        for resources in self._resources.values():
            resources.shared.forget()

    async def operate(self, caller: Caller | None, query: Query[T], *, repeatable: bool = False) -> T:
        """For actions of a caller; without a caller, for what the server does for those without a token.

        Actions may wait for locks, as enqueueing may, so they do not use the connections of readers. Say
        `repeatable` only of an action that changes nothing if it is done twice: when the connection is lost
        during the commit, it is unknown whether it was done.
        """
        if caller is None:
            return await self.resources.reads.run("holdfast_operator", _as_work(query))
        run = self.resources.actions.run
        return await run("holdfast_operator", _as_work(query), actor=caller.name, repeatable=repeatable)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """While the application serves: takes samples for the charts. At the end, ends all waits."""
        self.stopping = False
        tasks = [asyncio.create_task(self._report_missing_grants())]
        if self.options.samples:
            tasks.append(asyncio.create_task(keep_running("samples", self._take_samples)))
        try:
            yield
        finally:
            self.stopping = True
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.close()

    def stop_waits(self) -> None:
        """Before a shutdown: waiting requests get their response, and the clients ask again."""
        self.stopping = True
        for resources in self._resources.values():
            resources.waits.stop()

    async def close(self) -> None:
        resources = self._resources.pop(asyncio.get_running_loop(), None)
        if resources is not None:
            await resources.close()

    async def _report_missing_grants(self) -> None:
        """At the start, before the first request fails. Other errors are reported by the requests."""
        try:
            await self.resources.pool.run("holdfast_operator", _as_work(health.clock()))
            await self.resources.pool.run("holdfast_client", _as_work(health.clock()))
        except NotAllowed as error:
            missing_role.found(error)
        except HoldfastError:
            return

    async def _take_samples(self) -> None:
        trouble = TroubleLog("sampling_failed")
        while True:
            try:
                await self.resources.pool.run("holdfast_operator", _as_work(activity.take_sample()))
                trouble.is_over()
            except HoldfastError as error:
                trouble.found(error)
            await asyncio.sleep(SAMPLE_SECONDS)


class SharedPool:
    """A pool that all callers use: one of them has at most CALLER_SHARE of its connections at a time."""

    def __init__(self, pool: RolePool) -> None:
        self._pool = pool
        self._turns = Turns(CALLER_SHARE, too_many_requests)

    async def run(self, role: Role, work: AsyncWork[T], *, actor: str = "", repeatable: bool = True) -> T:
        async with self._turns.taken():
            return await self._pool.run(role, work, actor=actor, repeatable=repeatable)


class LoopResources:
    """The connections and waiting requests of one event loop."""

    def __init__(self, site: Site) -> None:
        self.pool = RolePool(site.address)
        self.reads = SharedPool(self.pool)
        self._action_pool = RolePool(site.address)
        self.actions = SharedPool(self._action_pool)
        self.access_pool = RolePool(site.address, ACCESS_POOL_SIZE)
        self._search_pool = RolePool(site.address, SEARCH_POOL_SIZE)
        self.searches = Searches(self._search_pool)
        self._wait_pool = RolePool(site.address, WAIT_POOL_SIZE)
        self.waits: Waits[StreamedSteps] = Waits(
            site.address,
            partial(self._wait_pool.run, "holdfast_reader"),
            read_details=read_steps,
            report=report_waits(),
        )
        self.shared = SharedResults()
        self._probe_pool = RolePool(site.address, size=1)
        self._probe: asyncio.Task[Any] | None = None

    async def probe(self) -> None:
        """Queries the database on a connection of its own. Concurrent probes share one query."""
        if self._probe is None or self._probe.done():
            query = self._probe_pool.run("holdfast_reader", _as_work(health.clock()))
            self._probe = asyncio.create_task(query)
            self._probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())
        await asyncio.shield(self._probe)

    async def close(self) -> None:
        await self.waits.aclose()
        await self.shared.close()
        if self._probe is not None:
            await asyncio.wait([self._probe])
        for pool in (
            self.pool,
            self._action_pool,
            self.access_pool,
            self._search_pool,
            self._wait_pool,
            self._probe_pool,
        ):
            pool.close()


async def read_health(engine: AsyncEngine) -> list[health.HealthLine]:
    """With a line about what the login of this server lacks."""
    missing = await engine.run(roles.missing_grants(("operator", "client"), inherited=False))
    return [*roles.grant_lines(missing, "amber", "may_not_enqueue"), *await engine.run(health.health())]


def _as_work(query: Query[T]) -> AsyncWork[T]:
    return (lambda engine: engine.run(query)) if isinstance(query, Statement) else query


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site
