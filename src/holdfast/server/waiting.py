"""Waiting for tasks and processes to end: all callers of an event loop share one LISTEN connection.

Notifications are hints. The state of everything that is waited for is also read soon after a wait begins, and
from then on at intervals, in batches.
"""

import asyncio
import contextlib
import random
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from uuid import UUID

from holdfast._connections.listener import REPLY_SECONDS, TASK_DONE, Listener, NotificationsUnavailable
from holdfast._connections.session import DatabaseAddress, open_async_connection
from holdfast._connections.shard_addresses import ShardAddresses, read_shard_addresses
from holdfast._engine import AsyncEngine, processes, tasks
from holdfast._engine.processes import ProcessStatus
from holdfast._engine.tasks import TaskSnapshot
from holdfast._engine.units import installed_units
from holdfast.errors import HoldfastError
from holdfast.server.background import keep_running
from holdfast.server.problem import Problem, TroubleLog
from holdfast.server.role_pool import RolePool
from holdfast.server.streamed_steps import StreamedSteps

State = TaskSnapshot | ProcessStatus

MAX_BATCH = 200
MAX_HISTORIES = 5  # read at once: of up to MAX_EVENTS events each
MAX_REMEMBERED = 32
REGISTERED_FOR = timedelta(minutes=2)
FIRST_REFRESH_SECONDS = 1.0  # the task may end before the database knows about the wait
REFRESH_SECONDS = 20.0
REFRESH_SECONDS_WITHOUT_LISTENER = 2.0
LIVE_REFRESH_SECONDS = 1.0
_RETRY_LATER = {"Retry-After": "5"}


@dataclass(frozen=True, slots=True)
class WaitQuota:
    """A group of waits with a common maximum. `described` completes the error message."""

    name: str
    maximum: int
    described: str


@dataclass(slots=True, eq=False)
class Waiter:
    """One request that waits: for the end, or, if live, for every change."""

    watched: "WatchedSubject"
    live: bool
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_known(self, seconds: float) -> None:
        """Waits until the state was read for the first time, even if there is no such task."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.watched.known:
            if not await self.wait_for_change(deadline - asyncio.get_running_loop().time()):
                return

    async def wait_for_change(self, seconds: float) -> bool:
        """Returns False if nothing changed within `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        has_changed = self.changed.is_set()
        self.changed.clear()
        return has_changed


@dataclass(slots=True, eq=False)
class WatchedSubject:
    """A task, or a process by its wait_key, that at least one request waits for, and its last known state."""

    key: UUID
    waiters: set[Waiter] = field(default_factory=set)
    known: bool = False
    state: State | None = None
    steps: StreamedSteps = field(default_factory=StreamedSteps)
    steps_of: tuple[object, ...] | None = None
    """The revision of which these are the steps."""
    refresh_at: float = 0.0
    refreshes: int = 0
    query_number: int = 0

    @property
    def live(self) -> bool:
        return any(waiter.live for waiter in self.waiters)

    @property
    def settled(self) -> bool:
        """True if there is nothing left to wait for: it has ended, or does not exist."""
        return self.known and (self.state is None or self.state.ended)

    def has_moved(self, now: State | None) -> bool:
        """True if there may be other steps than those that are known."""
        return now is not None and self.steps_of != now.revision

    def notify(self) -> None:
        for waiter in self.waiters:
            waiter.changed.set()


class WaitRegistry:
    """All waiting requests of one event loop."""

    def __init__(self, address: DatabaseAddress, pool: RolePool, max_waits: int) -> None:
        self.stopping = False
        self._pool = pool
        self._max_waits = max_waits
        self._watched: dict[UUID, WatchedSubject] = {}
        # Of streams that ended lately: a reader that comes back shares the steps that were read for it.
        self._left: OrderedDict[UUID, WatchedSubject] = OrderedDict()
        self._waiters = 0
        self._quotas: Counter[str] = Counter()
        self._trouble = TroubleLog("wait_refresh_failed")
        self._urgent: set[UUID] = set()
        self._queries = 0
        self._has_urgent = asyncio.Event()
        # What ended before the listener was connected was not notified: read everything once.
        self._address = address
        self._listeners: list[EndListener] = []
        self._serving: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return self._waiters

    @contextlib.asynccontextmanager
    async def register(
        self, key: UUID, quotas: tuple[WaitQuota, ...], *, live: bool = False
    ) -> AsyncIterator[Waiter]:
        """Raises a problem if the server or one of the quotas is full."""
        self._check_quotas(quotas)
        self._waiters += 1
        self._quotas.update(quota.name for quota in quotas)
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = self._left.pop(key, WatchedSubject(key))
            # Its state is read by a query that begins from now on, and its steps if it has changed.
            watched.known, watched.query_number = False, self._queries
        waiter = Waiter(watched, live)
        watched.waiters.add(waiter)
        if watched.known:
            waiter.changed.set()
        self._refresh_soon((key,))
        self._start()
        try:
            yield waiter
        finally:
            self._unregister(waiter, quotas)

    def stop(self) -> None:
        """Ends all waits."""
        self.stopping = True
        for watched in self._watched.values():
            watched.notify()

    async def close(self) -> None:
        self.stop()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
            self._serving = None

    def _check_quotas(self, quotas: tuple[WaitQuota, ...]) -> None:
        if len(self) >= self._max_waits:
            detail = "too many requests are waiting on this server"
            raise Problem(503, detail, code="too_many_waits", headers=_RETRY_LATER)
        for quota in quotas:
            if self._quotas[quota.name] >= quota.maximum:
                detail = f"too many waits {quota.described}: at most {quota.maximum} are allowed at a time"
                raise Problem(429, detail, code="too_many_waits", headers=_RETRY_LATER)

    def _unregister(self, waiter: Waiter, quotas: tuple[WaitQuota, ...]) -> None:
        self._waiters -= 1
        for quota in quotas:
            self._quotas[quota.name] -= 1
            if not self._quotas[quota.name]:
                del self._quotas[quota.name]
        waiter.watched.waiters.discard(waiter)
        if not waiter.watched.waiters:
            self._watched.pop(waiter.watched.key, None)
            if waiter.watched.steps.steps:
                self._remember(waiter.watched)

    def _remember(self, watched: WatchedSubject) -> None:
        self._left[watched.key] = watched
        if len(self._left) > MAX_REMEMBERED:
            self._left.popitem(last=False)

    def _start(self) -> None:
        if self._serving is None:
            loops = (self._listen, self._refresh_urgent, self._refresh_due)
            self._serving = asyncio.create_task(keep_running("waits", *loops))

    async def _listen(self) -> None:
        """On the database, or on each shard of a front."""

        async def find(engine: AsyncEngine) -> ShardAddresses:
            return await read_shard_addresses(engine, self._address)

        self._listeners = []
        while not self._listeners:
            try:
                shards = await self._pool.run("holdfast_reader", find)
            except HoldfastError as error:
                self._trouble.found(error)
                await asyncio.sleep(REFRESH_SECONDS_WITHOUT_LISTENER)
                continue
            self._listeners = [
                EndListener(address, self._refresh_all_soon, self._refresh_soon_if_watched)
                for address in shards.addresses
            ]
        await asyncio.gather(*(listener.run() for listener in self._listeners))

    def _refresh_soon(self, keys: Iterable[UUID]) -> None:
        self._urgent.update(keys)
        self._has_urgent.set()

    def _refresh_all_soon(self) -> None:
        self._refresh_soon(self._watched)

    def _refresh_soon_if_watched(self, key: UUID) -> None:
        if key in self._watched:
            self._refresh_soon((key,))

    async def _refresh_urgent(self) -> None:
        """New waits and notified ends do not queue behind the periodic refresh of everything else."""
        while True:
            await self._has_urgent.wait()
            self._has_urgent.clear()
            urgent, self._urgent = self._urgent, set()
            if not await self._refresh(list(urgent)):
                self._refresh_soon(urgent)
                await asyncio.sleep(REFRESH_SECONDS_WITHOUT_LISTENER / 2)

    async def _refresh_due(self) -> None:
        while True:
            await asyncio.sleep(LIVE_REFRESH_SECONDS / 2)
            now = asyncio.get_running_loop().time()
            await self._refresh([key for key, watched in self._watched.items() if watched.refresh_at <= now])

    async def _refresh(self, keys: list[UUID]) -> bool:
        """Returns False if the database could not be read."""
        try:
            for first in range(0, len(keys), MAX_BATCH):
                some = keys[first : first + MAX_BATCH]
                batch = [self._watched[key] for key in some if key in self._watched]
                if batch:
                    await self._refresh_batch(batch)
        except HoldfastError as error:
            self._trouble.found(error)
            return False
        if keys:
            self._trouble.is_over()
        return True

    async def _refresh_batch(self, batch: list[WatchedSubject]) -> None:
        self._queries += 1
        number = self._queries

        async def read(engine: AsyncEngine) -> tuple[dict[UUID, State], dict[UUID, StreamedSteps]]:
            states = await _read_states(engine, [watched.key for watched in batch])
            moved = [w.key for w in batch if w.live and w.has_moved(states.get(w.key))]
            return states, await _read_steps(engine, moved)

        states, steps = await self._pool.run("holdfast_reader", read)
        now = asyncio.get_running_loop().time()
        for watched in batch:
            if watched.query_number < number:  # else a query that began later has finished first
                watched.query_number = number
                self._apply(watched, states.get(watched.key), steps.get(watched.key), now)

    def _apply(
        self, watched: WatchedSubject, state: State | None, steps: StreamedSteps | None, now: float
    ) -> None:
        is_news = not watched.known or steps is not None or _has_changed(watched.state, state)
        if steps is not None and state is not None:
            watched.steps, watched.steps_of = steps, state.revision
        watched.known, watched.state = True, state
        watched.refreshes += 1
        watched.refresh_at = now + self._refresh_delay(watched)
        if is_news:
            watched.notify()

    def _refresh_delay(self, watched: WatchedSubject) -> float:
        if watched.live:
            return LIVE_REFRESH_SECONDS
        if not self._listeners or not all(listener.listening for listener in self._listeners):
            return REFRESH_SECONDS_WITHOUT_LISTENER
        longest = FIRST_REFRESH_SECONDS if watched.refreshes == 1 else REFRESH_SECONDS
        return longest * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load


class EndListener:
    """Listens for the ends of tasks and processes, and logs when that fails."""

    def __init__(
        self, address: DatabaseAddress, on_listening: Callable[[], None], on_end: Callable[[UUID], None]
    ) -> None:
        self._on_listening = on_listening
        self._on_end = on_end
        self._trouble = TroubleLog("wait_listener_failed")
        self._listener = Listener(
            lambda: open_async_connection(address, REPLY_SECONDS),
            TASK_DONE,
            notified=self._notified,
            connected=self._connected,
            lost=self._lost,
        )

    @property
    def listening(self) -> bool:
        return self._listener.listening

    async def run(self) -> None:
        with contextlib.suppress(NotificationsUnavailable):  # the registry then refreshes often
            await self._listener.run()

    def _notified(self, payload: str) -> None:
        with contextlib.suppress(ValueError):  # every login may notify, with any payload
            self._on_end(UUID(payload))

    def _connected(self) -> None:
        self._trouble.is_over()
        self._on_listening()

    async def _lost(self, error: HoldfastError) -> None:
        self._trouble.found(error)
        pause = REFRESH_SECONDS_WITHOUT_LISTENER * random.uniform(0.5, 1)  # noqa: S311 - spreads load
        await asyncio.sleep(pause)


async def _read_states(engine: AsyncEngine, keys: list[UUID]) -> dict[UUID, State]:
    """Registers the interest, then reads: an end in between is either read or notified."""
    await engine.run(tasks.watch_many(keys, REGISTERED_FOR))
    states: dict[UUID, State] = {
        state.task_id: state for state in await engine.run(tasks.task_snapshots(keys))
    }
    others = [key for key in keys if key not in states]
    if others and "messages" in await engine.run(installed_units()):
        await engine.run(processes.watch_processes(others, REGISTERED_FOR))
        states |= {state.wait_key: state for state in await engine.run(processes.process_statuses(others))}
    return states


async def _read_steps(engine: AsyncEngine, task_ids: list[UUID]) -> dict[UUID, StreamedSteps]:
    """A few at a time: to decode many long histories at once would hold up the requests of others."""
    found: dict[UUID, StreamedSteps] = {}
    for first in range(0, len(task_ids), MAX_HISTORIES):
        events = await engine.run(tasks.events_of(task_ids[first : first + MAX_HISTORIES]))
        for task_id, own in groupby(events, lambda event: event.task_id):
            found[task_id] = StreamedSteps.of(list(own))
            await asyncio.sleep(0)
    return found


def _has_changed(before: State | None, now: State | None) -> bool:
    if before is None or now is None:
        return before is not now
    return before.revision != now.revision or _progress(before) != _progress(now)


def _progress(state: State) -> str | None:
    return state.progress_json if isinstance(state, TaskSnapshot) else None
