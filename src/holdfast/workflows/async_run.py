"""Runs of coroutines: steps may run at the same time, and a run suspends when all that is left is waiting."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast import tracing
from holdfast.context import Stopped
from holdfast.engine.enqueue import NewTask
from holdfast.outcome import OUTCOMES
from holdfast.retry import RetryPolicy
from holdfast.workflows.calls import AwaitedCall, EnteredCall
from holdfast.workflows.joins import (
    ChildTask,
    Join,
    added_handles,
    batch_held,
    check_added,
    lone_held,
    name_of_child,
    started_id,
    tasks_json,
)
from holdfast.workflows.journal import Host, Journal
from holdfast.workflows.memory import NO_CHILDREN, Wait
from holdfast.workflows.run import (
    DEFAULT_TIMEOUT,
    LINGER_SECONDS,
    LONGEST_DELAY_IN_MEMORY,
    Run,
    RunTask,
    seconds_of,
)
from holdfast.workflows.step import Inside, Step, codec_of
from holdfast.workflows.step_transaction import AsyncStepTransaction

LOOK_SECONDS = 2.0
"""How often a wait looks for its signal while other steps of the run are at work."""
LONGEST_TIMER = 86400.0


class AsyncRun(Run):
    """Everything here happens in the event loop of the handler."""

    def __init__(self, task: RunTask, journal: Journal, host: Host) -> None:
        super().__init__(task, journal, host)
        self._loop = asyncio.get_running_loop()
        self._root = asyncio.current_task()
        self._reading = False
        self._readers: list[asyncio.Future[None]] = []
        self._flushers: list[asyncio.Future[None]] = []
        self._flush_due = False
        self._at_work = 0
        self._waiting: dict[asyncio.Future[None], Wait] = {}
        self._linger: asyncio.TimerHandle | None = None

    def step(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        *,
        key: object,
        retries: int,
        retry: RetryPolicy | None,
        timeout: float | timedelta | None,
        lazy: bool,
        adapt: Callable[[Any], Any] | None,
    ) -> Coroutine[Any, Any, Any]:
        """Its name is given here, not when it is awaited."""
        # The handler goes on, so its last memo is sent: the server works on it during what follows.
        if self._steps and not (lazy and self._all_lazy):
            self._send_kept()
        step = self._plan(function, key=key, retries=retries, retry=retry, timeout=timeout, lazy=lazy)
        return AwaitedCall(self.calls, ("step", function), self._step, step, function, args, adapt)

    def sleep(self, duration: float | timedelta, name: str | None) -> Coroutine[Any, Any, None]:
        seconds = seconds_of("ctx.sleep", duration)
        named = self._begin(name or "sleep")
        return AwaitedCall(self.calls, ("sleep", seconds), self._sleep, seconds, *named)

    def wait(self, name: str, kind: Any, timeout: float | timedelta | None) -> Coroutine[Any, Any, Any]:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        named = self._begin(name)
        return AwaitedCall(self.calls, ("wait", name), self._wait, name, kind, seconds, *named)

    def transaction(self, name: str, function: Callable[..., Any] | None, args: Sequence[Any]) -> Any:
        transaction = AsyncStepTransaction(self, *self._begin(name))
        if function is not None:
            return AwaitedCall(self.calls, ("transaction", name), transaction.call, function, args)
        transaction.opened = EnteredCall(self.calls, ("transaction", name))
        return transaction

    def start(
        self, task: ChildTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        name, number = self._begin(name_of_child(task))
        built = task.build(*args, **kwargs)
        return AwaitedCall(self.calls, ("start", name), self._start, task, built, name, number)

    def map(self, task: ChildTask, join: Join, timeout: float | timedelta | None) -> Coroutine[Any, Any, Any]:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        name, number = self._begin(name_of_child(task))
        return AwaitedCall(self.calls, ("map", name), self._join, join, seconds, name, number)

    def first(
        self, join: Join, timeout: float | timedelta | None, name: str | None
    ) -> Coroutine[Any, Any, Any]:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        named = self._begin(name or "first")
        return AwaitedCall(self.calls, ("first", name), self._join, join, seconds, *named)

    def add_to_batch(self, tasks: Sequence[Any], name: str) -> Coroutine[Any, Any, list[Any]]:
        check_added(tasks)
        named = self._begin(name)
        return AwaitedCall(self.calls, ("batch.add", None), self._add_to_batch, tasks, *named)

    def after(self, kinds: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
        return AwaitedCall(self.calls, ("after", None), self._after, kinds)

    async def _after(self, kinds: Sequence[Any]) -> list[Any]:
        await self.load()
        return self._results_before(kinds)

    async def ended(self) -> None:
        """Wait until what was sent is on disk; what was not sent goes with the report."""
        self._is_over = True
        for waiting in list(self._waiting):
            waiting.cancel()
        if self._linger is not None:
            self._linger.cancel()
        while self._in_flight:
            await self._flushed()
        if self._broken is not None:
            raise self._broken

    async def load(self) -> None:
        if self._memory is None:
            await self._read()

    async def _step(
        self,
        step: Step,
        function: Callable[..., Any],
        args: Sequence[Any],
        adapt: Callable[[Any], Any] | None,
    ) -> Any:
        if self._memory is None:
            await self._read()
        fact = self.recall(step.name)
        if fact is not None:
            return self.value_of(fact, step.function.codec, adapt)
        failed = self._failed_before(step)
        if failed is not None:
            await self._delay(step.name, failed.retry_at)
        while True:
            if self._has_to_flush(step):
                await self.flush()
            self.check_room(step.name, step.number)
            step.tries += 1
            began = time.monotonic()
            try:
                with tracing.step(step.name, step.tries):
                    value = await self._work(step, function, args)
            except OUTCOMES:
                raise
            except Exception as error:
                retry_at = self._failed(step, error)
                if retry_at is None:
                    raise self._gave_up(step, error, began) from error
            else:
                result = self._succeeded(step, value, began)
                self._flush_soon()
                return result
            await self._delay(step.name, retry_at)

    def _has_to_flush(self, step: Step) -> bool:
        """Before a step begins, those before it are on disk; lazy ones only wait for others."""
        if self._in_flight:
            return not (step.lazy and self._sent_lazily)
        return bool(self._steps or self._tries or self._failures) and not (step.lazy and self._all_lazy)

    async def _work(self, step: Step, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        self.begin_work()
        try:
            with Inside(step.name):
                if not step.function.is_async:
                    call: Awaitable[Any] = self._host.in_thread(lambda: function(*args))
                else:
                    call = function(*args)
                if step.timeout is None:
                    return await call
                async with asyncio.timeout(step.timeout):
                    return await call
        finally:
            self.end_work()

    async def _delay(self, name: str, retry_at: float) -> None:
        seconds = retry_at - self.now()
        if seconds <= 0:
            return
        if seconds > LONGEST_DELAY_IN_MEMORY:
            await self._pause(Wait(name, retry_at))
            return
        self.begin_work()
        try:
            await self.flush()
            await asyncio.sleep(max(0.0, retry_at - self.now()))
        finally:
            self.end_work()

    async def _sleep(self, seconds: float, name: str, number: int) -> None:
        await self.load()
        fact = self.recall(name)
        if fact is not None:
            until = fact.until or 0.0
        else:
            self.check_room(name, number)
            until = self.now() + seconds
            self._keep_simple(name, number, "sleep", until=until)
        while self.now() < until:
            await self._pause(Wait(name, until))

    async def _wait(self, signal: str, kind: Any, seconds: float, name: str, number: int) -> Any:
        await self.load()
        codec = codec_of(f"the signal {signal}", kind)
        fact = self.recall(name)
        if fact is not None:
            return self.value_of(fact, codec)
        assert self._memory is not None  # noqa: S101 - it was loaded
        self.check_room(name, number)
        until = self._memory.waits.get(name, self.now() + seconds)
        while True:
            taken = self._take_signal(name, number, signal, until - seconds)
            if taken is not None:
                self._flush_soon()
                return self.value_of(taken, codec)
            if self.now() >= until:
                raise self._timed_out(name, number, until - seconds)
            await self._pause(Wait(name, until, signal), LOOK_SECONDS)
            await self._read()  # a signal may have come while other steps were at work

    async def _start(self, task: ChildTask, built: NewTask, name: str, number: int) -> Any:
        await self.load()
        fact = self.recall(name)
        if fact is not None:
            return task.handle(started_id(fact))
        [task_id] = await self._send_children(name, number, lone_held(name, number), [built])
        return task.handle(task_id)

    async def _add_to_batch(self, tasks: Sequence[Any], name: str, number: int) -> list[Any]:
        await self.load()
        fact = self.recall(name)
        if fact is not None:
            return added_handles(name, tasks, fact)
        if not tasks:
            return []
        task_ids = await self._send_children(name, number, batch_held(name, number), tasks)
        return [task.handle(task_id) for task, task_id in zip(tasks, task_ids, strict=True)]

    async def _join(self, join: Join, seconds: float, name: str, number: int) -> Any:
        await self.load()
        fact = self.recall(name)
        if fact is not None:
            return self._join_value(name, join, fact)
        children = self._children_of(name)
        if children is None and join.count:
            started = await self._send_children(name, number, join.as_held(name, number), join.build())
            children = self._started(name, join, started)
        children = children or NO_CHILDREN
        until = self._join_until(name, seconds)
        while not join.is_over(children):
            if self.now() >= until:
                raise self._join_timed_out(name, number, join, until - seconds)
            await self._pause(join.wait(name, until, children), LOOK_SECONDS)
            await self._read()
            children = self._children_of(name) or NO_CHILDREN
        try:
            return self._joined(name, number, join, children, until - seconds)
        finally:
            self._flush_soon()

    async def _send_children(
        self, name: str, number: int, held: str, built: Sequence[NewTask]
    ) -> Sequence[str]:
        await self.flush()
        self.check_room(name, number)
        answer: asyncio.Future[Sequence[str]] = self._loop.create_future()

        def done(verdict: str, task_ids: Sequence[str], error: BaseException | None) -> None:
            if answer.done():
                return
            if verdict in ("started", "already"):
                answer.set_result(task_ids)
            else:
                answer.set_exception(error or Stopped(self._task.stop or verdict))

        self.begin_work()
        try:
            self._journal.start(held, *tasks_json(built, self.now()), done)
            return await answer
        finally:
            self.end_work()

    async def _pause(self, wait: Wait, longest: float = LONGEST_TIMER) -> None:
        """Wait in memory while the run is at work elsewhere; otherwise it is suspended meanwhile."""
        future = self._loop.create_future()
        seconds = min(wait.until - self.now(), longest, LONGEST_TIMER)
        timer = self._loop.call_later(max(0.0, seconds), _wake, future)
        self._waiting[future] = wait
        self._consider_suspension()
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.pop(future, None)
            if not self._waiting and self._linger is not None:
                self._linger.cancel()
                self._linger = None

    def begin_work(self) -> None:
        self._at_work += 1
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def end_work(self) -> None:
        self._at_work -= 1
        if self._waiting:
            self._consider_suspension()

    def _consider_suspension(self) -> None:
        if self._at_work == 0 and self._linger is None and self.suspended is None:
            self._linger = self._loop.call_later(LINGER_SECONDS, self._suspend)

    def _suspend(self) -> None:
        """Called when nothing was at work for the whole linger: a step that begins ends it."""
        self._linger = None
        if not self._waiting:
            return
        waits = list(self._waiting.values())
        if min(wait.until for wait in waits) - self.now() < LINGER_SECONDS:
            self._consider_suspension()
            return
        self.suspended = waits
        self._host.cancel()
        for future in list(self._waiting):
            future.cancel()

    def _raise_suspended(self) -> None:
        raise asyncio.CancelledError

    def _user(self) -> tuple[Any, Any]:
        return asyncio.current_task(self._loop), self._root

    async def _read(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._readers.append(future)
        if not self._reading:
            self._reading = True
            self._journal.read(self._was_read)
        await future
        if self._broken is not None:
            raise self._broken

    def _was_read(self, rows: Sequence[Sequence[Any]] | None, clock: float) -> None:
        self._reading = False
        self._loaded(rows, clock)
        readers, self._readers = self._readers, []
        for future in readers:
            _wake(future)

    def _flush_soon(self) -> None:
        """At the next turn of the loop: if the handler ends now, the memo goes with its report."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        if self._steps:
            self._send_kept()

    def _send_kept(self) -> None:
        if self.suspended is None and not self._is_over:
            self._send(caught=False)

    async def flush(self) -> None:
        """Wait until everything that is kept is on disk."""
        self._send(caught=True)
        while self._in_flight:
            await self._flushed()
        if self._broken is not None:
            raise self._broken

    def _flushed(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self._loop.create_future()
        self._flushers.append(future)
        return future

    def _recorded(self, verdict: str, error: BaseException | None) -> None:
        super()._recorded(verdict, error)
        if not self._in_flight:
            flushers, self._flushers = self._flushers, []
            for future in flushers:
                _wake(future)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
