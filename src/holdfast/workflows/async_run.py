"""Runs of coroutines: steps may run at the same time, and a run suspends when all that is left is waiting."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from holdfast import tracing
from holdfast.context import Stopped
from holdfast.engine.enqueue import NewTask
from holdfast.engine.steps import StartingStep
from holdfast.errors import InvalidStep
from holdfast.outcome import OUTCOMES
from holdfast.retry import RetryPolicy
from holdfast.workflows.calls import AwaitedCall, CallSite, EnteredCall
from holdfast.workflows.joins import (
    ChildTask,
    Join,
    added_handles,
    check_added,
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
    moment_of,
    seconds_of,
)
from holdfast.workflows.step import Inside, Step, codec_of
from holdfast.workflows.step_transaction import AsyncStepTransaction

LOOK_SECONDS = 2.0
"""How often a wait looks for its signal while other steps of the run are at work."""
LONGEST_TIMER = 86400.0
CANCEL_SECONDS = 1.0
"""How long the end of an attempt waits for what it has cancelled."""


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
        self._at_call: dict[CallSite, asyncio.Task[Any] | None] = {}
        self._failed_calls: list[tuple[CallSite, asyncio.Task[Any]]] = []
        self._waiting: dict[asyncio.Future[None], Wait] = {}
        self._linger: asyncio.TimerHandle | None = None
        self._awaited: Counter[str] = Counter()

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
        site = CallSite("ctx.step", function)
        return AwaitedCall(self.calls, site, self._step, site, step, function, args, adapt)

    def sleep(self, duration: float | timedelta, name: str | None) -> Coroutine[Any, Any, None]:
        seconds = seconds_of("ctx.sleep", duration)
        named = self._begin(name or "sleep")
        return AwaitedCall(self.calls, CallSite("ctx.sleep", seconds), self._sleep, seconds, None, *named)

    def sleep_until(self, moment: datetime, name: str | None) -> Coroutine[Any, Any, None]:
        until = moment_of("ctx.sleep_until", moment)
        named = self._begin(name or "sleep")
        return AwaitedCall(self.calls, CallSite("ctx.sleep_until", moment), self._sleep, 0.0, until, *named)

    def wait(self, name: str, kind: Any, timeout: float | timedelta | None) -> Coroutine[Any, Any, Any]:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        named = self._begin(name)
        return AwaitedCall(self.calls, CallSite("ctx.wait", name), self._wait, name, kind, seconds, *named)

    def transaction(self, name: str, function: Callable[..., Any] | None, args: Sequence[Any]) -> Any:
        site = CallSite("ctx.transaction", name)
        transaction = AsyncStepTransaction(self, *self._begin(name), site)
        if function is not None:
            return AwaitedCall(self.calls, site, transaction.call, function, args)
        transaction.opened = EnteredCall(self.calls, site)
        return transaction

    def start(
        self, task: ChildTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        name, number = self._begin(name_of_child(task))
        built = task.build(*args, **kwargs)
        site = CallSite("ctx.start", name)
        return AwaitedCall(self.calls, site, self._start, site, task, built, name, number)

    def map(self, task: ChildTask, join: Join, timeout: float | timedelta | None) -> Coroutine[Any, Any, Any]:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        name, number = self._begin(name_of_child(task))
        site = CallSite("ctx.map", name)
        return AwaitedCall(self.calls, site, self._join, site, join, seconds, name, number)

    def first(
        self, join: Join, timeout: float | timedelta | None, name: str | None
    ) -> Coroutine[Any, Any, Any]:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        named = self._begin(name or "first")
        site = CallSite("ctx.first", name)
        return AwaitedCall(self.calls, site, self._join, site, join, seconds, *named)

    def add_to_batch(self, tasks: Sequence[Any], name: str) -> Coroutine[Any, Any, list[Any]]:
        check_added(tasks)
        named = self._begin(name)
        site = CallSite("ctx.batch.add")
        return AwaitedCall(self.calls, site, self._add_to_batch, site, tasks, *named)

    def after(self, kinds: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
        return AwaitedCall(self.calls, CallSite("ctx.after"), self._after, kinds)

    async def _after(self, kinds: Sequence[Any]) -> list[Any]:
        await self.load()
        return self._results_before(kinds)

    async def ended(self) -> None:
        """Wait until what was sent is on disk; what was not sent goes with the report."""
        self._is_over = True
        self.calls.close()
        for waiting in list(self._waiting):
            waiting.cancel()
        if self._linger is not None:
            self._linger.cancel()
        if self.suspended is None and (self._at_call or self._failed_calls):
            await self._leave_calls()
        while self._in_flight:
            await self._flushed()
        if self._broken is not None:
            raise self._broken

    async def _leave_calls(self) -> None:
        """The handler has ended and not awaited these: they end with it, and the next attempt makes them."""
        for site, task in self._failed_calls:
            if _is_unseen(task):
                task.exception()  # or asyncio would report it again
                self.calls.leave(site, "failed in an asyncio task that was never awaited")
        tasks = {task for task in self._at_call.values() if task is not None and task is not self._root}
        for site in self._at_call:
            self.calls.leave(site, "had not ended when the handler returned")
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    def begin_call(self, site: CallSite) -> None:
        """One that does something, and not one that only waits: the handler has to await its end."""
        self._at_call[site] = asyncio.current_task(self._loop)

    def end_call(self, site: CallSite, error: BaseException | None = None) -> None:
        task = self._at_call.pop(site, None)
        if task is not None and task is not self._root and isinstance(error, Exception):
            unseen = [one for one in self._failed_calls if not one[1].done() or _is_unseen(one[1])]
            self._failed_calls = [*unseen, (site, task)]

    async def load(self) -> None:
        if self._memory is None:
            await self._read()

    async def _step(  # noqa: C901 - another coroutine would take time at each step
        self,
        site: CallSite,
        step: Step,
        function: Callable[..., Any],
        args: Sequence[Any],
        adapt: Callable[[Any], Any] | None,
    ) -> Any:
        self.begin_call(site)
        try:
            if self._memory is None:
                await self._read()
            fact = self.recall(step.name)
            if fact is not None:
                return self.value_of(fact, step.function.codec, adapt)
            failed = self._failed_before(step)
            if failed is not None:
                await self._delay(step.name, failed.retry_at)
            step.arguments = self.preview(function, args)
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
        except BaseException as error:
            self.end_call(site, error)
            raise
        finally:
            self.end_call(site)

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

    async def _sleep(self, seconds: float, moment: float | None, name: str, number: int) -> None:
        await self.load()
        fact = self.recall(name)
        if fact is not None:
            until = fact.until or 0.0
        else:
            self.check_room(name, number)
            until = self._until_of(seconds, moment)
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
        self._awaited[signal] += 1
        try:
            while True:
                while self._memory.has_unread(signal):
                    await self._read_signals()
                taken = self._take_signal(name, number, signal, until - seconds)
                if taken is not None:
                    self._flush_soon()
                    return self.value_of(taken, codec)
                if self.now() >= until:
                    raise self._timed_out(name, number, until - seconds)
                await self._pause(Wait(name, until, signal), LOOK_SECONDS)
                await self._read()  # a signal may have come while other steps were at work
        finally:
            self._awaited[signal] -= 1

    async def _start(self, site: CallSite, task: ChildTask, built: NewTask, name: str, number: int) -> Any:
        with self._calling(site):
            await self.load()
            fact = self.recall(name)
            if fact is not None:
                return task.handle(started_id(fact))
            [task_id] = await self._send_children(StartingStep(name, number), [built])
            return task.handle(task_id)

    async def _add_to_batch(self, site: CallSite, tasks: Sequence[Any], name: str, number: int) -> list[Any]:
        with self._calling(site):
            await self.load()
            fact = self.recall(name)
            if fact is not None:
                return added_handles(name, tasks, fact)
            if not tasks:
                return []
            task_ids = await self._send_children(StartingStep(name, number, batch=True), tasks)
            return [task.handle(task_id) for task, task_id in zip(tasks, task_ids, strict=True)]

    async def _join(self, site: CallSite, join: Join, seconds: float, name: str, number: int) -> Any:
        with self._calling(site):
            await self.load()
            fact = self.recall(name)
            if fact is not None:
                return self._join_value(name, join, fact)
            children = self._children_of(name)
            if children is None and join.count:
                started = await self._send_children(join.step(name, number), join.build())
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

    @contextmanager
    def _calling(self, site: CallSite) -> Iterator[None]:
        self.begin_call(site)
        try:
            yield
        except Exception as error:
            self.end_call(site, error)
            raise
        finally:
            self.end_call(site)

    async def _send_children(self, step: StartingStep, built: Sequence[NewTask]) -> Sequence[str]:
        await self.flush()
        self.check_room(step.name, step.number)
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
            self._journal.start(step, *tasks_json(built, self.now()), done)
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
        if not self._waiting or self._wake_to_forgotten():
            return
        waits = list(self._waiting.values())
        if min(wait.until for wait in waits) - self.now() < LINGER_SECONDS:
            self._consider_suspension()
            return
        self.suspended = waits
        self._host.cancel()
        for future in list(self._waiting):
            future.cancel()

    def _wake_to_forgotten(self) -> bool:
        """Instead of a suspension: the waits of a run that has dropped a call raise the error about it."""
        try:
            self.calls.check()
        except InvalidStep as error:
            for future in self._waiting:
                if not future.done():
                    future.set_exception(error)
            return True
        return False

    def _raise_suspended(self) -> None:
        raise asyncio.CancelledError

    def _user(self) -> tuple[Any, Any]:
        return asyncio.current_task(self._loop), self._root

    async def _read_signals(self) -> None:
        """This is work: a run that were suspended meanwhile would not wait for the signal that it reads."""
        self.begin_work()
        try:
            await self.flush()  # so that those which were taken are not read again
            await self._read()
        finally:
            self.end_work()

    async def _read(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._readers.append(future)
        if not self._reading:
            self._reading = True
            try:
                self._journal.read(self._was_read, [name for name, waits in self._awaited.items() if waits])
            except InvalidStep:  # of too many signals
                self._reading = False
                raise
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


def _is_unseen(task: "asyncio.Task[Any]") -> bool:
    """Whether it has failed and nobody has looked: asyncio would report it when it is forgotten."""
    return task.done() and bool(getattr(task, "_log_traceback", False))


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
