"""Waiting for tasks and processes to end: all that wait in an event loop share one LISTEN connection.

Notifications are hints. What is waited for is registered and read as soon as a wait begins, again at each
hint, and at intervals; each time from the beginning, because a task may have moved between any two reads.

What is bounded: a read has at most MAX_BATCH tasks, so that thousands of waits are few statements; a wait
ends at its timeout, and does not begin if one of its limits is reached.
"""

import asyncio
import contextlib
import random
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from holdfast._connections.acknowledged import own_copy
from holdfast._connections.listener import REPLY_SECONDS, TASK_DONE, Listener, NotificationsUnavailable
from holdfast._connections.pool import AsyncWork, open_async_connection
from holdfast._connections.session import DatabaseAddress
from holdfast._connections.shard_addresses import ShardAddresses, read_shard_addresses
from holdfast._connections.wait_ticket import Subject
from holdfast._engine import AsyncEngine, processes, tasks
from holdfast._engine.processes import ProcessStatus, wait_key
from holdfast._engine.tasks import TaskSnapshot
from holdfast._engine.units import installed_units
from holdfast.errors import DatabaseUnavailable, HoldfastError, NotFound, UnexpectedDatabaseError

T = TypeVar("T")
D = TypeVar("D")
State = TaskSnapshot | ProcessStatus

MAX_BATCH = 200
MAX_REMEMBERED = 32
REGISTERED_FOR = timedelta(minutes=2)
REGISTER_AGAIN_SECONDS = 60.0
FIRST_LOOK_SECONDS = 1.0  # the task may end before the database knows about the wait
LOOK_SECONDS = 20.0
LOOK_SECONDS_WITHOUT_LISTENER = 2.0
LIVE_LOOK_SECONDS = 1.0
RESTART_SECONDS = 1.0
IDLE_SECONDS = 30.0
"""After that, nothing listens any more if nothing waits."""
ANSWER_SECONDS = 3.0
"""How long a wait with a shorter timeout may take to look once: one of 0 asks whether the task has ended."""
SPARE_SECONDS = 0.5
"""For the wait to say the status, before it is given up because the database does not answer."""


class Run(Protocol):
    """Runs statements with the rights of those that wait."""

    async def __call__(self, work: AsyncWork[T], /) -> T: ...


Report = Callable[[str, Exception | None], None]
"""Gets what has failed and its error, or None when it works again."""


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """How many may wait of one group. `described` completes a message."""

    group: str
    maximum: int
    described: str


class TooManyWaits(Exception):
    """A limit is reached."""

    def __init__(self, limit: WaitLimit) -> None:
        super().__init__(f"too many waits {limit.described}: at most {limit.maximum} are allowed at a time")
        self.limit = limit


@dataclass(slots=True, eq=False)
class Watched(Generic[D]):
    """A task or a process that is waited for, and what was read of it last."""

    subject: Subject
    key: UUID
    """The id of the task, or the wait_key of the process."""
    waiters: "set[Waiter[D]]" = field(default_factory=set)
    state: State | None = None
    details: D | None = None
    """What those who wait for every change want to know besides."""
    details_of: tuple[object, ...] | None = None
    """The revision of which these are the details."""
    query: int = 0
    """The number of the query that has read this."""
    error: HoldfastError | None = None
    failed_query: int = 0
    registered_at: float = float("-inf")
    look_at: float = 0.0
    looks: int = 0

    @property
    def live(self) -> bool:
        return any(waiter.live for waiter in self.waiters)

    def has_moved(self, now: State | None) -> bool:
        """True if there may be other details than those that are known."""
        return now is not None and self.details_of != now.revision

    def notify(self) -> None:
        for waiter in self.waiters:
            waiter.changed.set()


@dataclass(slots=True, eq=False)
class Waiter(Generic[D]):
    """One that waits: for the end, or, if live, for every change."""

    watched: Watched[D]
    live: bool
    since: int
    """The last query that had begun before: what that one reads may be older than this wait."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def known(self) -> bool:
        """Whether the state was read since the wait began, even if there is nothing to wait for."""
        return self.watched.query > self.since

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to wait for: it has ended, or does not exist."""
        return self.known and (self.watched.state is None or self.watched.state.ended)

    @property
    def error(self) -> HoldfastError | None:
        """Why the state could not be read since the wait began."""
        return self.watched.error if self.watched.failed_query > self.since else None

    async def wait_until_known(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.known:
            if not await self.wait_for_change(deadline - asyncio.get_running_loop().time()):
                return

    async def wait_for_change(self, seconds: float | None) -> bool:
        """Returns False if nothing changed within `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        has_changed = self.changed.is_set()
        self.changed.clear()
        return has_changed


class Waits(Generic[D]):
    """Everything that waits in one event loop."""

    def __init__(
        self,
        address: DatabaseAddress,
        run: Run,
        *,
        read_details: Callable[[AsyncEngine, list[UUID]], Awaitable[dict[UUID, D]]] | None = None,
        report: Report = lambda *_: None,
    ) -> None:
        """`read_details` reads what live waits want to know of tasks that have changed."""
        self.stopping = False
        self._address = address
        self._run = run
        self._read_details = read_details
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._watched: dict[UUID, Watched[D]] = {}
        # Of live waits that ended lately: one that comes back shares the details that were read for it.
        self._left: OrderedDict[UUID, Watched[D]] = OrderedDict()
        self._waiters = 0
        self._groups: Counter[str] = Counter()
        self._failing: set[str] = set()
        self._urgent: set[UUID] = set()
        self._queries = 0
        self._has_urgent = asyncio.Event()
        self._listeners: list[Listener] = []
        self._serving: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return self._waiters

    @contextlib.asynccontextmanager
    async def register(
        self, subject: Subject, limits: tuple[WaitLimit, ...] = (), *, live: bool = False
    ) -> AsyncIterator[Waiter[D]]:
        """Raises TooManyWaits if one of the limits is reached."""
        for limit in limits:
            if self._groups[limit.group] >= limit.maximum:
                raise TooManyWaits(limit)
        key = subject if isinstance(subject, UUID) else wait_key(*subject)
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = self._left.pop(key, Watched(subject, key))
        waiter = Waiter(watched, live, since=self._queries)
        watched.waiters.add(waiter)
        self._waiters += 1
        self._groups.update(limit.group for limit in limits)
        self._look_soon((key,))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        try:
            yield waiter
        finally:
            self._unregister(waiter, limits)

    async def end_of(self, subject: Subject, timeout: float | timedelta | None) -> State:  # noqa: ASYNC109 - part of the API
        """Wait for the end. Raises TimeoutError after that time, also if the database is silent."""
        name = _name(subject)
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        deadline = None if seconds is None else self._loop.time() + seconds
        scope = asyncio.timeout(None if seconds is None else max(seconds + SPARE_SECONDS, ANSWER_SECONDS))
        try:
            async with scope, self.register(subject) as waiter:
                while not waiter.settled:
                    if waiter.error is not None:
                        raise own_copy(waiter.error)
                    left = None if deadline is None or not waiter.known else deadline - self._loop.time()
                    if left is not None and left <= 0:
                        break
                    await waiter.wait_for_change(left)
        except TimeoutError:
            if scope.expired():
                why = "its status is not known, because the database did not answer"
                raise TimeoutError(f"{name} did not end in time; {why}") from None
            raise
        state = waiter.watched.state
        if state is None:
            raise not_found(subject)
        if not state.ended:
            raise TimeoutError(f"{name} did not end in time; its status is {state.status}")
        return state

    def stop(self) -> None:
        """Those that wait look at `stopping`."""
        self.stopping = True
        for watched in self._watched.values():
            watched.notify()

    def close(self) -> None:
        """What still waits gets an error. Works from any thread, and after the event loop has ended."""
        if self._serving is None or self._serving.done() or self._loop.is_closed():
            for listener in self._listeners:
                listener.close()
        else:
            self._loop.call_soon_threadsafe(self._serving.cancel)

    async def aclose(self) -> None:
        self.stop()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    def _unregister(self, waiter: Waiter[D], limits: tuple[WaitLimit, ...]) -> None:
        self._waiters -= 1
        for limit in limits:
            self._groups[limit.group] -= 1
            if not self._groups[limit.group]:
                del self._groups[limit.group]
        watched = waiter.watched
        watched.waiters.discard(waiter)
        if not watched.waiters:
            self._watched.pop(watched.key, None)
            if watched.details is not None:
                self._left[watched.key] = watched
                if len(self._left) > MAX_REMEMBERED:
                    self._left.popitem(last=False)

    async def _serve(self) -> None:
        """Until nothing has waited for a while. No loop ends unseen: all are started again."""
        try:
            while True:
                try:
                    async with asyncio.TaskGroup() as group:
                        loops = [group.create_task(self._listen()), group.create_task(self._look_urgently())]
                        await self._look_regularly()
                        for loop in loops:
                            loop.cancel()
                except* Exception as failed:  # noqa: BLE001 - whatever it was, those that wait need the loops
                    self._report("loop_failed", failed.exceptions[0])
                    self._tell_all(UnexpectedDatabaseError(f"waiting has failed: {failed.exceptions[0]!r}"))
                    await asyncio.sleep(RESTART_SECONDS)
                else:
                    if not self._watched:
                        return
        except asyncio.CancelledError:
            self._tell_all(DatabaseUnavailable("the application was closed while this was waited for"))
            raise

    def _tell_all(self, error: HoldfastError) -> None:
        self._queries += 1
        for watched in self._watched.values():
            watched.error, watched.failed_query = error, self._queries
            watched.notify()

    async def _listen(self) -> None:
        """On the database, or on each shard of a front."""

        async def find(engine: AsyncEngine) -> ShardAddresses:
            return await read_shard_addresses(engine, self._address)

        self._listeners = []
        while not self._listeners:
            try:
                shards = await self._run(find)
                self._listeners = [self._listener_of(shards, n) for n in range(len(shards.addresses))]
            except HoldfastError as error:
                self._failed("wait_refresh_failed", error)
                await asyncio.sleep(LOOK_SECONDS_WITHOUT_LISTENER)
        async with asyncio.TaskGroup() as group:
            for listener in self._listeners:
                group.create_task(_run_listener(listener))

    def _listener_of(self, shards: ShardAddresses, number: int) -> Listener:
        was_connected = False

        def connected() -> None:
            """What ended before was not notified, and a server that has crashed has forgotten who waits."""
            nonlocal was_connected
            self._worked("wait_listener_failed")
            own = [watched for watched in self._watched.values() if shards.of(watched.subject) == number]
            for watched in own if was_connected else ():
                watched.registered_at = float("-inf")
            self._look_soon(watched.key for watched in own)
            was_connected = True

        return Listener(
            lambda: open_async_connection(shards.addresses[number], REPLY_SECONDS),
            TASK_DONE,
            notified=self._notified,
            connected=connected,
            lost=self._lost,
        )

    def _notified(self, payload: str) -> None:
        with contextlib.suppress(ValueError):  # every login may notify, with any payload
            if (key := UUID(payload)) in self._watched:
                self._look_soon((key,))

    async def _lost(self, error: HoldfastError) -> None:
        self._failed("wait_listener_failed", error)
        pause = LOOK_SECONDS_WITHOUT_LISTENER * random.uniform(0.5, 1)  # noqa: S311 - spreads load
        await asyncio.sleep(pause)

    def _look_soon(self, keys: Iterable[UUID]) -> None:
        self._urgent.update(keys)
        self._has_urgent.set()

    async def _look_urgently(self) -> None:
        """New waits and notified ends do not queue behind the regular look at everything else."""
        while True:
            await self._has_urgent.wait()
            self._has_urgent.clear()
            urgent, self._urgent = self._urgent, set()
            if not await self._look(list(urgent)):
                self._look_soon(urgent)
                await asyncio.sleep(LOOK_SECONDS_WITHOUT_LISTENER / 2)

    async def _look_regularly(self) -> None:
        ends_at = self._loop.time() + IDLE_SECONDS
        while self._watched or self._loop.time() < ends_at:
            await asyncio.sleep(LIVE_LOOK_SECONDS / 2)
            now = self._loop.time()
            if self._watched:
                ends_at = now + IDLE_SECONDS
            await self._look([key for key, watched in self._watched.items() if watched.look_at <= now])

    async def _look(self, keys: list[UUID]) -> bool:
        """Returns False if the database could not be read."""
        for first in range(0, len(keys), MAX_BATCH):
            some = keys[first : first + MAX_BATCH]
            batch = [self._watched[key] for key in some if key in self._watched]
            if batch and not await self._look_at(batch):
                return False
        return True

    async def _look_at(self, batch: list[Watched[D]]) -> bool:
        self._queries += 1
        number, now = self._queries, self._loop.time()

        async def read(engine: AsyncEngine) -> tuple[dict[UUID, State], dict[UUID, D]]:
            await _register(engine, [w for w in batch if now - w.registered_at > REGISTER_AGAIN_SECONDS])
            states = await _read_states(engine, batch)
            moved = [w.key for w in batch if w.live and w.has_moved(states.get(w.key))]
            return states, await self._read_details(engine, moved) if self._read_details and moved else {}

        try:
            states, details = await self._run(read)
        except HoldfastError as error:
            self._failed("wait_refresh_failed", error)
            for watched in batch:
                watched.error, watched.failed_query = error, number
                watched.notify()
            return False
        self._worked("wait_refresh_failed")
        for watched in batch:
            if now - watched.registered_at > REGISTER_AGAIN_SECONDS:
                watched.registered_at = now
            watched.error = None
            if watched.query < number:  # else a query that began later has finished first
                is_first = any(not waiter.known for waiter in watched.waiters)
                watched.query = number
                self._apply(watched, states.get(watched.key), details.get(watched.key), is_first=is_first)
        return True

    def _apply(self, watched: Watched[D], state: State | None, details: D | None, *, is_first: bool) -> None:
        is_news = is_first or details is not None or _has_changed(watched.state, state)
        if details is not None and state is not None:
            watched.details, watched.details_of = details, state.revision
        watched.state = state
        watched.looks += 1
        watched.look_at = self._loop.time() + self._delay(watched)
        if is_news:
            watched.notify()

    def _delay(self, watched: Watched[D]) -> float:
        if watched.live:
            return LIVE_LOOK_SECONDS
        if not self._listeners or not all(listener.listening for listener in self._listeners):
            longest = LOOK_SECONDS_WITHOUT_LISTENER
        else:
            longest = FIRST_LOOK_SECONDS if watched.looks == 1 else LOOK_SECONDS
        return longest * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load

    def _failed(self, what: str, error: Exception) -> None:
        self._failing.add(what)
        self._report(what, error)

    def _worked(self, what: str) -> None:
        if what in self._failing:
            self._failing.discard(what)
            self._report(what, None)


def not_found(subject: Subject) -> NotFound:
    kicked_off = "enqueued" if isinstance(subject, UUID) else "kicked off"
    return NotFound(
        f"there is no {_name(subject)}",
        hint=f"If it was {kicked_off} in a transaction, commit that transaction first.",
    )


def _name(subject: Subject) -> str:
    return f"task {subject}" if isinstance(subject, UUID) else f"{subject[0]} {subject[1]}"


async def _run_listener(listener: Listener) -> None:
    with contextlib.suppress(NotificationsUnavailable):  # everything is then looked at often
        await listener.run()


async def _register(engine: AsyncEngine, batch: list[Watched[D]]) -> None:
    """Before the state is read: an end in between is either read or notified."""
    task_ids = [watched.key for watched in batch if isinstance(watched.subject, UUID)]
    if task_ids:
        await engine.run(tasks.watch_many(task_ids, REGISTERED_FOR))
    wait_keys = [watched.key for watched in batch if not isinstance(watched.subject, UUID)]
    if wait_keys and await _has_processes(engine):
        await engine.run(processes.watch_processes(wait_keys, REGISTERED_FOR))


async def _read_states(engine: AsyncEngine, batch: list[Watched[D]]) -> dict[UUID, State]:
    states: dict[UUID, State] = {}
    task_ids = [watched.key for watched in batch if isinstance(watched.subject, UUID)]
    if task_ids:
        states |= {state.task_id: state for state in await engine.run(tasks.task_snapshots(task_ids))}
    wait_keys = [watched.key for watched in batch if not isinstance(watched.subject, UUID)]
    if wait_keys and await _has_processes(engine):
        found = await engine.run(processes.process_statuses(wait_keys))
        states |= {state.wait_key: state for state in found}
    return states


async def _has_processes(engine: AsyncEngine) -> bool:
    return "messages" in await engine.run(installed_units())


def _has_changed(before: State | None, now: State | None) -> bool:
    if before is None or now is None:
        return before is not now
    return before.revision != now.revision or _progress(before) != _progress(now)


def _progress(state: State) -> str | None:
    return state.progress_json if isinstance(state, TaskSnapshot) else None
