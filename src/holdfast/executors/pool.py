"""The children of a worker: some are kept warm, more are started when they are needed."""

import asyncio
import itertools
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.executors.ending import Bounds, End
from holdfast.executors.process import BootFailed, Child, Run

IDLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many children to keep and to have, and when one has served long enough."""

    warm: int
    most: int
    runs: int
    memory: int


class Pool:
    """A child runs one task at a time. Whoever waits takes the first one that is free or has started."""

    def __init__(
        self, start: Callable[[], Awaitable[Child]], sizes: Sizes, failed: Callable[[BootFailed], None]
    ) -> None:
        self._start = start
        self._sizes = sizes
        self._failed = failed
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[Child]] = deque()
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._trimming: asyncio.TimerHandle | None = None
        self._at_once = max(1, os.cpu_count() or 1)
        self._wanted = 0
        self._boots = True
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._idle) + len(self._busy) + len(self._starting)

    def warm(self) -> None:
        """From now on, keep children ready."""
        self._wanted = self._sizes.warm
        self._grow()

    async def run(
        self,
        order: Mapping[str, Any],
        bounds: Bounds,
        on_progress: Callable[[dict[str, Any]], object],
        stopped: Callable[[], tuple[str, float]],
    ) -> tuple[End, bool]:
        """One run to its end, and whether it was cancelled; then `stopped` says why, and with which grace.

        Nothing of the run is left when this returns. BootFailed if there was no child to be had.
        """
        child = await self._take()
        run = Run(next(self._numbers), bounds, on_progress)
        cancelled = False
        try:
            child.begin(order, run)
            while not run.over.done():
                try:
                    await asyncio.shield(run.over)
                except asyncio.CancelledError:
                    cancelled = True
                    child.stop(*stopped())
            return run.over.result(), cancelled
        finally:
            child.end(run)
            self._give_back(child)

    async def close(self) -> None:
        """Nothing runs any more."""
        self._closed = True
        if self._trimming is not None:
            self._trimming.cancel()
        for starting in self._starting:
            starting.cancel()
        for child in [*self._idle, *self._busy]:
            self._retire(child)
        self._idle.clear()
        for future in self._waiting:
            future.cancel()
        await asyncio.gather(*self._starting, *self._leaving, return_exceptions=True)

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                self._busy.add(child)
                return child
        future: asyncio.Future[Child] = self._loop.create_future()
        self._waiting.append(future)
        self._grow()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(future.result())
            raise

    def _give_back(self, child: Child) -> None:
        """To whoever waits, or to rest; one that has served long enough is replaced."""
        self._busy.discard(child)
        worn = child.runs >= self._sizes.runs or child.memory > self._sizes.memory
        if self._closed or child.is_spoilt or worn or not child.is_alive:
            self._retire(child)
            self._grow()
            return
        self._offer(child)

    def _offer(self, child: Child) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                self._busy.add(child)
                future.set_result(child)
                return
        child.idle_since = self._loop.time()
        self._idle.append(child)
        self._trim_later()

    def _trim_later(self) -> None:
        if len(self._idle) > self._wanted and self._trimming is None:
            self._trimming = self._loop.call_at(self._idle[0].idle_since + IDLE_SECONDS, self._trim)

    def _trim(self) -> None:
        """Those that were not needed for a while. The last in the line is used first."""
        self._trimming = None
        long_ago = self._loop.time() - IDLE_SECONDS
        while len(self._idle) > self._wanted and self._idle[0].idle_since <= long_ago:
            self._retire(self._idle.pop(0))
        self._trim_later()

    def _grow(self) -> None:
        waiting = sum(not future.done() for future in self._waiting)
        # Where none can be started, that is tried for tasks only, which are told of it.
        spare = self._wanted - len(self._idle) - len(self._busy) if self._boots else 0
        missing = max(waiting, spare) - len(self._starting)
        room = min(self._at_once - len(self._starting), self._sizes.most - self.size)
        for _ in range(0 if self._closed else min(missing, room)):
            starting = self._loop.create_task(self._begin())
            self._starting.add(starting)
            starting.add_done_callback(self._begun)

    async def _begin(self) -> None:
        try:
            child = await self._start()
        except BootFailed as error:
            self._boots = False
            self._failed(error)
            self._refuse(error)
        else:
            self._boots = True
            if self._closed:
                self._retire(child)
            else:
                self._offer(child)

    def _begun(self, starting: "asyncio.Task[None]") -> None:
        self._starting.discard(starting)
        if not starting.cancelled() and (problem := starting.exception()) is not None:
            self._boots = False
            self._refuse(BootFailed(f"a child process cannot be started: {problem!r}", {}))
        self._grow()

    def _refuse(self, error: BootFailed) -> None:
        """The first who waits is told; the next gets another try."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
                return

    def _retire(self, child: Child) -> None:
        leaving = self._loop.create_task(child.close())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
