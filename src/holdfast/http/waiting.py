"""All who wait, on one listening connection: told by a notification, looked after in batches.

A notification is a hint. Whoever waits is looked after again from time to time, and soon after coming.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import psycopg

from holdfast.connections.session import DatabaseAddress, open_async
from holdfast.engine import AsyncEngine, processes, tasks
from holdfast.engine.processes import ProcessLook
from holdfast.engine.tasks import TaskEvent, TaskLook
from holdfast.errors import HoldfastError, translate
from holdfast.http.database import Database, Trouble
from holdfast.http.problem import Problem

Look = TaskLook | ProcessLook

MAX_AT_ONCE = 200
INTEREST = timedelta(minutes=2)
SOON_SECONDS = 1.0  # a task may have ended between our asking and the commit of that
SELDOM_SECONDS = 20.0
DEAF_SECONDS = 2.0
LIVE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WaitQuota:
    """Waits that are counted together, how many of them there may be, and what the refusal calls them."""

    name: str
    most: int
    told: str


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who waits for a task or a process: for its end, or, if live, for whatever happens to it."""

    watched: "WatchedSubject"
    live: bool
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def first_look(self, seconds: float) -> None:
        """Until something is known of the task, even if it is that there is none."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.watched.looked and await self.next(deadline - asyncio.get_running_loop().time()):
            pass

    async def next(self, seconds: float) -> bool:
        """Until there is news, for at most so long; answers whether there is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.news.wait()
        came = self.news.is_set()
        self.news.clear()
        return came


@dataclass(slots=True, eq=False)
class WatchedSubject:
    """A task that somebody waits for, or a process by its wait_key, and what is known of it."""

    task_id: UUID
    seats: set[Waiter] = field(default_factory=set)
    looked: bool = False
    look: Look | None = None
    events: tuple[TaskEvent, ...] = ()
    look_again: float = 0.0
    seen: int = 0
    number: int = 0

    @property
    def live(self) -> bool:
        return any(seat.live for seat in self.seats)

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for: it has ended, or is not there."""
        return self.looked and (self.look is None or self.look.ended)

    def tell(self) -> None:
        for seat in self.seats:
            seat.news.set()


class WaitRegistry:
    """Everybody who waits on this event loop."""

    def __init__(self, address: DatabaseAddress, database: Database, most: int) -> None:
        self.stopping = False
        self._address = address
        self._database = database
        self._most = most
        self._watched: dict[UUID, WatchedSubject] = {}
        self._seats = 0
        self._shares: Counter[str] = Counter()
        self._dark = Trouble("waits_in_the_dark")
        self._deaf = Trouble("listener_lost")
        self._urgent: set[UUID] = set()
        self._looks = 0
        self._wake = asyncio.Event()
        self._listening = False
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return self._seats

    @contextlib.asynccontextmanager
    async def seat(
        self, task_id: UUID, shares: tuple[WaitQuota, ...], *, live: bool = False
    ) -> AsyncIterator[Waiter]:
        """Refused where all seats are taken, or all of a share."""
        if len(self) >= self._most:
            raise Problem(503, "too many wait already", code="too_many_waits", headers=_LATER)
        for share in shares:
            if self._shares[share.name] >= share.most:
                told = f"{share.most} wait already {share.told}"
                raise Problem(429, told, code="too_many_waits", headers=_LATER)
        self._seats += 1
        self._shares.update(share.name for share in shares)
        watched = self._watched.setdefault(task_id, WatchedSubject(task_id))
        seat = Waiter(watched, live)
        watched.seats.add(seat)
        if watched.looked:
            seat.news.set()
        self._look_at((task_id,))
        self._start()
        try:
            yield seat
        finally:
            self._leave(seat, shares)

    def stop(self) -> None:
        """Let everybody go."""
        self.stopping = True
        for watched in self._watched.values():
            watched.tell()

    async def close(self) -> None:
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _leave(self, seat: Waiter, shares: tuple[WaitQuota, ...]) -> None:
        self._seats -= 1
        for share in shares:
            self._shares[share.name] -= 1
            if not self._shares[share.name]:
                del self._shares[share.name]
        seat.watched.seats.discard(seat)
        if not seat.watched.seats:
            self._watched.pop(seat.watched.task_id, None)

    def _start(self) -> None:
        if not self._tasks:
            loops = (self._listen(), self._look_when_told(), self._look_around())
            self._tasks = [asyncio.create_task(loop) for loop in loops]

    def _look_at(self, task_ids: Iterable[UUID]) -> None:
        self._urgent.update(task_ids)
        self._wake.set()

    async def _look_when_told(self) -> None:
        """Who has come or was told of does not wait behind the round that goes to everybody."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            urgent, self._urgent = self._urgent, set()
            if not await self._look(list(urgent)):
                self._look_at(urgent)
                await asyncio.sleep(DEAF_SECONDS / 2)

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(LIVE_SECONDS / 2)
            await self._look(self._due(asyncio.get_running_loop().time()))

    def _due(self, now: float) -> list[UUID]:
        return [task_id for task_id, watched in self._watched.items() if watched.look_again <= now]

    async def _look(self, task_ids: list[UUID]) -> bool:
        """Answers whether that could be done."""
        try:
            for first in range(0, len(task_ids), MAX_AT_ONCE):
                some = task_ids[first : first + MAX_AT_ONCE]
                batch = [self._watched[task_id] for task_id in some if task_id in self._watched]
                if batch:
                    await self._look_at_some(batch)
        except HoldfastError as error:
            self._dark.found(error)
            return False
        if task_ids:
            self._dark.is_over()
        return True

    async def _look_at_some(self, batch: list[WatchedSubject]) -> None:
        asked = [watched.task_id for watched in batch]
        self._looks += 1
        number = self._looks

        async def work(engine: AsyncEngine) -> tuple[dict[UUID, Look], list[TaskEvent]]:
            await engine.run(tasks.watch_many(asked, INTEREST))
            looks: dict[UUID, Look] = {
                look.task_id: look for look in await engine.run(tasks.task_looks(asked))
            }
            if others := [key for key in asked if key not in looks]:
                await engine.run(processes.watch_processes(others, INTEREST))
                looks |= {look.wait_key: look for look in await engine.run(processes.process_looks(others))}
            moved = [w.task_id for w in batch if w.live and _has_moved(w.look, looks.get(w.task_id))]
            return looks, await engine.run(tasks.events_of(moved)) if moved else []

        looks, events = await self._database.run("holdfast_reader", work)
        now = asyncio.get_running_loop().time()
        for watched in batch:
            if watched.number < number:  # else a look that began later was faster
                watched.number = number
                self._learn(watched, looks.get(watched.task_id), events, now)

    def _learn(self, watched: WatchedSubject, look: Look | None, events: list[TaskEvent], now: float) -> None:
        news = not watched.looked or _has_changed(watched.look, look)
        told = tuple(event for event in events if event.task_id == watched.task_id)
        if told:
            watched.events = told
        watched.looked, watched.look = True, look
        watched.seen += 1
        watched.look_again = now + self._patience(watched)
        if news:
            watched.tell()

    def _patience(self, watched: WatchedSubject) -> float:
        if watched.live:
            return LIVE_SECONDS
        if not self._listening:
            return DEAF_SECONDS
        longest = SOON_SECONDS if watched.seen == 1 else SELDOM_SECONDS
        return longest * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load

    async def _listen(self) -> None:
        while True:
            try:
                await self._pass_on()
            except psycopg.Error as error:
                self._deaf.found(translate(error))
            except HoldfastError as error:
                self._deaf.found(error)
            self._listening = False
            await asyncio.sleep(DEAF_SECONDS * random.uniform(0.5, 1))  # noqa: S311 - spreads load

    async def _pass_on(self) -> None:
        connection, pooled = await open_async(self._address)
        try:
            # Behind a pooler, the notification would reach whoever has that server connection by then.
            if pooled:
                await asyncio.Event().wait()
            await connection.execute("listen holdfast_done")
            self._listening = True
            self._deaf.is_over()
            self._look_at(self._watched)  # what ended before we listened was told to nobody
            async for notify in connection.notifies():
                with contextlib.suppress(ValueError):  # anybody may send anything
                    self._hear(UUID(notify.payload))
        finally:
            connection.pgconn.finish()

    def _hear(self, task_id: UUID) -> None:
        if task_id in self._watched:
            self._look_at((task_id,))


_LATER = {"Retry-After": "5"}


def _has_moved(before: Look | None, now: Look | None) -> bool:
    """Whether its events may be others than before."""
    return now is not None and (before is None or before.life != now.life)


def _has_changed(before: Look | None, now: Look | None) -> bool:
    if before is None or now is None:
        return before is not now
    return before.life != now.life or _progress(before) != _progress(now)


def _progress(look: Look) -> str | None:
    return look.progress_json if isinstance(look, TaskLook) else None
