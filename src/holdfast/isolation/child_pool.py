"""The child processes of a worker: some are kept warm, more are started on demand."""

import asyncio
import itertools
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast._worker.report import AttemptEnd
from holdfast.isolation.child_process import ChildBootFailed, ChildProcess, ChildRun, RunCalls
from holdfast.isolation.run_end import RunBounds, RunEnd

IDLE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ChildPoolSizes:
    """How many child processes to keep warm and to have at most, and when one is replaced."""

    warm: int
    max_size: int
    runs: int
    memory: int


@dataclass(eq=False, slots=True)
class _Waiter:
    """A run that waits for a child process. A fresh run needs one that has run nothing yet."""

    future: asyncio.Future[ChildProcess]
    fresh: bool

    def may_take(self, child: ChildProcess) -> bool:
        return not self.future.done() and not (self.fresh and child.runs)


class ChildPool:
    """A child process runs one task at a time. A run that waits takes the first one that is free or ready."""

    def __init__(
        self,
        start: Callable[[], Awaitable[ChildProcess]],
        sizes: ChildPoolSizes,
        failed: Callable[[ChildBootFailed], None],
    ) -> None:
        self._start = start
        self._sizes = sizes
        self._failed = failed
        self._idle: list[ChildProcess] = []
        self._busy: set[ChildProcess] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Waiter] = deque()
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
        """From now on, keep child processes ready."""
        self._wanted = self._sizes.warm
        self._grow()

    async def run(
        self,
        order: Mapping[str, Any],
        bounds: RunBounds,
        calls: RunCalls,
        stopped: Callable[[], tuple[str, float]],
        *,
        fresh: bool = False,
    ) -> tuple[RunEnd[AttemptEnd], bool]:
        """Return how a run ended, and whether this call was cancelled: then `stopped` gives reason and grace.

        No process of the run is left when this returns. The child process of a fresh run is replaced.
        Raises ChildBootFailed if no child process can be started.
        """
        child = await self._take(fresh=fresh)
        run = ChildRun(next(self._numbers), bounds, calls)
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
            self._give_back(child, replace=fresh)

    async def close(self) -> None:
        """End all child processes."""
        self._closed = True
        if self._trimming is not None:
            self._trimming.cancel()
        for starting in self._starting:
            starting.cancel()
        for child in [*self._idle, *self._busy]:
            self._retire(child)
        self._idle.clear()
        for waiter in self._waiting:
            waiter.future.cancel()
        await asyncio.gather(*self._starting, *self._leaving, return_exceptions=True)

    async def _take(self, *, fresh: bool) -> ChildProcess:
        self._idle = [child for child in self._idle if child.is_alive]
        for child in reversed(self._idle):
            if not (fresh and child.runs):
                self._idle.remove(child)
                self._busy.add(child)
                return child
        future: asyncio.Future[ChildProcess] = self._loop.create_future()
        self._waiting.append(_Waiter(future, fresh))
        self._grow()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(future.result())
            raise

    def _give_back(self, child: ChildProcess, *, replace: bool = False) -> None:
        """Offer it to the next run, or replace it if it has served long enough."""
        self._busy.discard(child)
        replace = replace or child.runs >= self._sizes.runs or child.memory > self._sizes.memory
        if self._closed or child.is_unusable or replace or not child.is_alive:
            self._retire(child)
            self._grow()
            return
        self._offer(child)

    def _offer(self, child: ChildProcess) -> None:
        waiter = next((waiter for waiter in self._waiting if waiter.may_take(child)), None)
        if waiter is not None:
            self._waiting.remove(waiter)
            self._busy.add(child)
            waiter.future.set_result(child)
            return
        child.idle_since = self._loop.time()
        self._idle.append(child)
        if self._waiting:  # for fresh child processes only, and this one takes a place
            self._grow()
        self._trim_later()

    def _trim_later(self) -> None:
        if len(self._idle) > self._wanted and self._trimming is None:
            self._trimming = self._loop.call_at(self._idle[0].idle_since + IDLE_SECONDS, self._trim)

    def _trim(self) -> None:
        """End those that were not needed for a while. The most recently used is used first."""
        self._trimming = None
        long_ago = self._loop.time() - IDLE_SECONDS
        while len(self._idle) > self._wanted and self._idle[0].idle_since <= long_ago:
            self._retire(self._idle.pop(0))
        self._trim_later()

    def _grow(self) -> None:
        self._waiting = deque(waiter for waiter in self._waiting if not waiter.future.done())
        waiting = len(self._waiting)
        # A run that waits while child processes are idle needs a fresh one: idle ones make room for it.
        crowded = waiting - len(self._starting) - (self._sizes.max_size - self.size)
        for child in self._idle[: max(0, crowded)]:
            self._idle.remove(child)
            self._retire(child)
        # After a failed start, the next try is for a task, which then reports the error.
        spare = self._wanted - len(self._idle) - len(self._busy) if self._boots else 0
        missing = max(waiting, spare) - len(self._starting)
        room = min(self._at_once - len(self._starting), self._sizes.max_size - self.size)
        for _ in range(0 if self._closed else min(missing, room)):
            starting = self._loop.create_task(self._begin())
            self._starting.add(starting)
            starting.add_done_callback(self._begun)

    async def _begin(self) -> None:
        try:
            child = await self._start()
        except ChildBootFailed as error:
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
            self._refuse(ChildBootFailed(f"a child process cannot be started: {problem!r}", {}))
        self._grow()

    def _refuse(self, error: ChildBootFailed) -> None:
        """Fail the first run that waits; the next one gets another try."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.future.done():
                waiter.future.set_exception(error)
                return

    def _retire(self, child: ChildProcess) -> None:
        leaving = self._loop.create_task(child.close())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
