"""Drivers: they perform the operations of a run. One awaits them in an event loop, one blocks its thread."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from holdfast._workflows.calls import AwaitedCall, BegunCalls, Calls, CallSite, calls_of
from holdfast._workflows.ends import Stopped, Suspended
from holdfast._workflows.journal import Host, Journal
from holdfast._workflows.memory import FailedStep, RunState, Wait
from holdfast._workflows.operations import (
    Begin,
    Call,
    Commit,
    Delay,
    Operation,
    Pause,
    Plain,
    Rollback,
    Start,
    Work,
)
from holdfast.errors import InvalidStep

T = TypeVar("T")

LINGER_SECONDS = 0.05
"""A wait that is over sooner stays in memory."""
LOOK_SECONDS = 2.0
"""How often a wait looks for its signal while other steps of the run are at work."""
LONGEST_TIMER = 86400.0
INTERRUPTIBLE_SECONDS = 0.2
"""A thread that waits for an answer notices an interruption when it looks."""


class Driver:
    """Performs the work of calls."""

    is_async = False
    ends_with: type[BaseException] = Suspended
    """Raised in the calls of a run that is suspended or over."""

    def __init__(self, state: RunState) -> None:
        self.calls = calls_of(state.task)
        self._state = state

    def call(self, method: str, about: Any, work: Work[Any]) -> Any:
        """What a method of ctx returns: the result of its work, or an awaitable of it."""
        raise NotImplementedError

    def run(self, work: Work[T]) -> T:
        """Perform some work in this thread, which blocks."""
        raise NotImplementedError

    async def arun(self, work: Work[T]) -> T:
        """Perform some work without blocking the event loop."""
        raise NotImplementedError

    def user(self) -> tuple[Any, Any]:
        """The asyncio task that calls, and that of the handler."""
        return None, None

    def begin_call(self, site: CallSite | None) -> None:
        """A call does something from here on, so that the handler has to await its end."""

    def end_call(self, site: CallSite | None, error: BaseException | None = None) -> None:
        """It has ended, or only waits."""

    def step_failed(self, failed: FailedStep) -> None:
        """A try failed: for the log and the metrics of a worker."""

    def send_soon(self) -> None:
        """Record what is kept, unless the next step or the end does it first."""

    def send_kept(self) -> None:
        """Record what is kept now, without waiting for it."""


class RecordingDriver(Driver):
    """Hands the journal what is kept, while the handler goes on."""

    def __init__(self, state: RunState, journal: Journal, host: Host) -> None:
        super().__init__(state)
        self._journal = journal
        self._host = host
        self._is_due = False

    def step_failed(self, failed: FailedStep) -> None:
        self._journal.step_failed(failed)

    def send_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._journal.later(self._send_due)

    def _send_due(self) -> None:
        """The journal may call it in another thread."""
        self._is_due = False  # before the look at the steps: what is kept after it asks again
        self.send_kept()

    def send_kept(self) -> None:
        state = self._state
        if state.steps and state.suspended is None and not state.is_over:
            self.send(caught=False)

    def send(self, *, caught: bool) -> None:
        """Hand what is kept to the journal; failures only if the handler has `caught` them."""
        state = self._state
        if not (state.steps or state.tries or state.failures):
            return
        with state.lock:
            kept = state.take(self.user() if caught and state.failures else None)
            if kept is None:
                return
            steps, tries, lazy = kept
            if len(steps) == 1 and not tries and not lazy and steps[0].is_plain:
                self._journal.record_one(steps[0], self._recorded)
            else:
                self._journal.record(steps, tries, self._recorded, lazy=lazy)

    def _recorded(self, verdict: str, error: BaseException | None) -> None:
        with self._state.lock:
            self._state.recorded(verdict, error)
            self._wake()

    def _wake(self) -> None:
        """Something that was sent is on disk."""


class Blocking(RecordingDriver):
    """Performs the operations of a plain function, one after the other, in its thread or child process."""

    def __init__(self, state: RunState, journal: Journal, host: Host) -> None:
        super().__init__(state, journal, host)
        self._answered = threading.Condition(state.lock)

    def call(self, method: str, about: Any, work: Work[Any]) -> Any:
        del method, about
        return self.run(work)

    def run(self, work: Work[T]) -> T:
        try:
            operation = next(work)
            while True:
                try:
                    result = self._perform(operation)
                except BaseException as error:  # noqa: BLE001 - the work judges it
                    operation = work.throw(error)
                else:
                    operation = work.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def arun(self, work: Work[T]) -> T:
        return await asyncio.to_thread(self.run, work)

    def _perform(self, operation: Operation) -> Any:  # noqa: C901, PLR0911 - a table
        match operation:
            case Call(function, args, _, timeout):
                if timeout is None:
                    return function(*args)
                return self._host.limited(timeout, partial(function, *args))
            case Plain.READ:
                signals = self._state.signals
                self._state.remember(*self._ask(lambda done: self._journal.read(done, signals)))
                return self._state.check_unbroken()
            case Plain.FLUSH:
                return self._flush()
            case Pause(wait):
                return self._pause(wait)
            case Delay(until):
                self._flush()
                return time.sleep(max(0.0, until - self._state.now()))
            case Start():
                return self._ask(partial(self._journal.start, *operation))
            case Begin():
                transaction = self._host.open_transaction()
                return transaction, transaction.begin()
            case Commit(transaction, written):
                return transaction.commit(written)
            case Rollback(transaction):
                return transaction.rollback()
            case Plain.END:
                self._until(lambda: self._state.in_flight == 0)
                return self._state.check_unbroken()
            case Plain.ONLY_WAITS:
                return None

    def _pause(self, wait: Wait) -> None:
        """Wait in memory if it is short; otherwise suspend the run, which ends the attempt here."""
        seconds = wait.until - self._state.now()
        if self._host.skips(wait.until):
            self._state.skip_to(wait.until)
        elif seconds > LINGER_SECONDS:
            self._state.suspended = [wait]
            raise Suspended
        else:
            time.sleep(max(0.0, seconds))

    def _flush(self) -> None:
        self.send(caught=True)
        self._until(lambda: self._state.in_flight == 0)
        self._state.check_unbroken()

    def _ask(self, ask: Callable[[Callable[..., None]], None]) -> tuple[Any, ...]:
        """Ask the journal, and wait for its answer, which another thread may bring."""
        answers: list[tuple[Any, ...]] = []

        def answered(*answer: Any) -> None:
            with self._answered:
                answers.append(answer)
                self._answered.notify_all()

        ask(answered)
        self._until(lambda: bool(answers))
        return answers[0]

    def _wake(self) -> None:
        self._answered.notify_all()

    def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true() and self._journal.pump():
            pass
        with self._answered:
            while not self._answered.wait_for(is_true, INTERRUPTIBLE_SECONDS):
                if self._state.task.stop is not None:
                    raise Stopped(self._state.task.stop)


class Awaiting(RecordingDriver):
    """Performs the operations of a coroutine, whose calls may overlap, in its event loop.

    A run is suspended when all of its calls have paused for a moment, and none is at work.
    """

    is_async = True
    ends_with = asyncio.CancelledError

    def __init__(
        self, state: RunState, journal: Journal, host: Host, *, linger: float = LINGER_SECONDS
    ) -> None:
        super().__init__(state, journal, host)
        self._loop = asyncio.get_running_loop()
        self._root = asyncio.current_task()
        self._begun = BegunCalls(self.calls, self._root)
        self._readers: list[asyncio.Future[None]] = []
        self._flushers: list[asyncio.Future[None]] = []
        self.at_work = 0
        """How many operations are being performed, pauses apart."""
        self._pauses: dict[asyncio.Future[None], Wait] = {}
        self._linger_seconds = linger
        self._linger: asyncio.TimerHandle | None = None

    def call(self, method: str, about: Any, work: Work[Any]) -> Any:
        site = CallSite(method, about)
        return AwaitedCall(self.calls, site, self.arun, work, site)

    async def arun(self, work: Work[T], site: CallSite | None = None) -> T:
        """With its `site`, this is the whole call."""
        self.begin_call(site)
        try:
            operation = next(work)
            while True:
                try:
                    result: Any = None
                    if operation.__class__ is Call:
                        result = await self._call(operation)
                    elif operation.__class__ is Pause:
                        await self._pause(operation)
                    elif operation is Plain.FLUSH:
                        self.send(caught=True)
                        await self._all_sent()
                    elif operation is Plain.ONLY_WAITS:
                        self.end_call(site)
                    else:
                        result = await self._perform(operation)
                except BaseException as error:  # noqa: BLE001 - the work judges it
                    operation = work.throw(error)
                else:
                    operation = work.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except Exception as error:
            self.end_call(site, error)
            raise
        finally:
            self.end_call(site)

    def user(self) -> tuple[Any, Any]:
        return asyncio.current_task(self._loop), self._root

    def begin_call(self, site: CallSite | None) -> None:
        if site is not None:
            self._begun.begin(site, asyncio.current_task(self._loop))

    def end_call(self, site: CallSite | None, error: BaseException | None = None) -> None:
        if site is not None:
            self._begun.end(site, error)

    async def _call(self, operation: Any) -> Any:
        function, args, is_async, timeout, may_block = operation
        self.begin_work()
        try:
            if is_async:
                called = function(*args)
            elif may_block:
                called = self._host.in_thread(partial(function, *args))
            else:
                return function(*args)
            if timeout is None:
                return await called
            async with asyncio.timeout(timeout):
                return await called
        finally:
            self.end_work()

    async def _perform(self, operation: Operation) -> Any:  # noqa: PLR0911 - a table
        self.begin_work()
        try:
            match operation:
                case Plain.READ:
                    return await self._read()
                case Delay(until):
                    self.send(caught=True)
                    await self._all_sent()
                    return await asyncio.sleep(max(0.0, until - self._state.now()))
                case Start():
                    return await self._start(operation)
                case Begin():
                    transaction = self._host.open_transaction()
                    connection = await transaction.abegin()
                    self.begin_work()  # until its end
                    return transaction, connection
                case Commit(transaction, written):
                    self.at_work -= 1
                    return await transaction.acommit(written)
                case Rollback(transaction):
                    self.at_work -= 1
                    return await transaction.arollback()
                case Plain.END:
                    return await self._end()
        finally:
            self.end_work()

    async def _pause(self, operation: Any) -> None:
        """Wait in memory while the run is at work elsewhere; otherwise it is suspended meanwhile."""
        wait, looks = operation
        future = self._loop.create_future()
        seconds = min(wait.until - self._state.now(), LOOK_SECONDS if looks else LONGEST_TIMER)
        timer = self._loop.call_later(max(0.0, seconds), _resolve, future)
        self._pauses[future] = wait
        self._consider_suspension()
        try:
            await future
        finally:
            timer.cancel()
            self._pauses.pop(future, None)
            if not self._pauses:
                self._stay()

    def begin_work(self) -> None:
        self.at_work += 1
        if self._linger is not None:
            self._stay()

    def end_work(self) -> None:
        self.at_work -= 1
        if self._pauses:
            self._consider_suspension()

    def _stay(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _consider_suspension(self) -> None:
        is_ending = self._state.suspended is not None or self._state.is_over
        if self.at_work == 0 and self._linger is None and not is_ending:
            self._linger = self._loop.call_later(self._linger_seconds, self._suspend)

    def _suspend(self) -> None:
        """Called when nothing was at work for the whole linger: a step that begins ends it."""
        self._linger = None
        if not self._pauses or _raise_forgotten(self.calls, self._pauses):
            return
        waits = list(self._pauses.values())
        first = min(wait.until for wait in waits)
        if self._host.skips(first):
            self._state.skip_to(first)
            for future, wait in self._pauses.items():
                if wait.until <= first:
                    _resolve(future)
            self._consider_suspension()
        elif first - self._state.now() < LINGER_SECONDS:
            self._consider_suspension()
        else:
            self._state.suspended = waits
            self._host.cancel()
            for future in list(self._pauses):
                future.cancel()

    async def _read(self) -> None:
        """One read serves all who ask meanwhile."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._readers.append(future)
        if len(self._readers) == 1:
            try:
                self._journal.read(self._was_read, self._state.signals)
            except InvalidStep:  # of too many signals
                self._readers.clear()
                raise
        await future
        self._state.check_unbroken()

    def _was_read(self, rows: Sequence[Sequence[Any]] | None, clock: float) -> None:
        self._state.remember(rows, clock)
        readers, self._readers = self._readers, []
        for future in readers:
            _resolve(future)

    async def _all_sent(self) -> None:
        state = self._state
        self.begin_work()
        try:
            while state.in_flight:
                future: asyncio.Future[None] = self._loop.create_future()
                self._flushers.append(future)
                await future
        finally:
            self.end_work()
        state.check_unbroken()

    def _wake(self) -> None:
        if not self._state.in_flight:
            flushers, self._flushers = self._flushers, []
            for future in flushers:
                _resolve(future)

    async def _start(self, start: Start) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._journal.start(*start, lambda *given: _resolve(answer, given))
        return await answer

    async def _end(self) -> None:
        for future in list(self._pauses):
            future.cancel()
        self._stay()
        if self._state.suspended is None:
            await self._begun.leave()
        await self._all_sent()


def _resolve(future: "asyncio.Future[Any]", result: Any = None) -> None:
    if not future.done():
        future.set_result(result)


def _raise_forgotten(calls: Calls, pauses: Iterable["asyncio.Future[Any]"]) -> bool:
    """Instead of a suspension: the waits of a run that has dropped a call raise the error about it."""
    try:
        calls.check()
    except InvalidStep as error:
        for future in pauses:
            if not future.done():
                future.set_exception(error)
        return True
    return False
