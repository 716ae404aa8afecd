"""The calls of a run: what `ctx` does, written once for coroutines and plain functions, without I/O.

Each call is a generator. It yields operations, which a driver performs, and it decides what they mean.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from types import FunctionType
from typing import Any
from uuid import UUID

from holdfast._engine.enqueue import NewTask
from holdfast._engine.steps import StartingStep
from holdfast._serialization.failure import describe, error_of
from holdfast._serialization.preview import preview
from holdfast._serialization.text import load_json
from holdfast._telemetry import tracing
from holdfast._workflows.callbacks import open_callback
from holdfast._workflows.changes import first_seen_of
from holdfast._workflows.children import NO_CHILDREN, Children
from holdfast._workflows.drivers import Driver
from holdfast._workflows.ends import Stopped
from holdfast._workflows.facts import StepFact, StepKind
from holdfast._workflows.failures import brief_error, failed_step, timed_out
from holdfast._workflows.joins import (
    ChildTask,
    Join,
    added_handles,
    check_added,
    name_of_child,
    results_before,
    started_id,
    tasks_json,
)
from holdfast._workflows.memory import FailedStep, Memory, RunReport, RunState, StepMemo, Wait, to_datetime
from holdfast._workflows.operations import Call, Delay, Pause, Plain, Start, Work
from holdfast._workflows.step import Inside, Step, StepFunction, StepNames, check_not_inside, codec_of
from holdfast._workflows.step import describe_function as described
from holdfast._workflows.transaction import StepTransaction, TransactionBlock
from holdfast.errors import InvalidStep, ResultError, StepFailed
from holdfast.outcome import OUTCOMES
from holdfast.retry import DEFAULT_RETRY, RetryPolicy, next_delay

LONGEST_DELAY_IN_MEMORY = 2.0
"""Of a step that is tried again; a longer delay suspends the run."""
DEFAULT_TIMEOUT = 30 * 86400.0
LONGEST_WAIT = 90 * 365 * 86400.0


class Run:
    """One attempt of a run. A call gets its name when it is made; its work may begin later."""

    def __init__(self, state: RunState, driver: Driver, settings: Callable[[], Any]) -> None:
        """`settings` are those of the worker or of the application."""
        self._state = state
        self._driver = driver
        self.calls = driver.calls
        self.settings = settings
        self._names = StepNames()
        self._numbers = 0
        self._changes: set[str] = set()
        self._records_arguments: bool | None = None

    @property
    def suspended(self) -> Sequence[Wait] | None:
        """What the run waits for, if it was suspended."""
        return self._state.suspended

    @property
    def waits_for_tasks(self) -> bool:
        return any(wait.policy or wait.on_tasks for wait in self.suspended or ())

    @property
    def waits_for_signal(self) -> bool:
        """Whether it waits for a signal or a task: then the worker looks again after the commit."""
        return self.waits_for_tasks or any(wait.signal for wait in self.suspended or ())

    @property
    def asked(self) -> set[str]:
        """The names of the steps that the handler has asked for."""
        return {*self._names.given, *self._changes}

    def report(self, status: str) -> RunReport:
        return self._state.report(status)

    def now(self) -> float:
        return self._state.now()

    def load(self) -> None:
        """Read what the run remembers, before the first call. `aload` does not block."""
        self._driver.run(self._load())

    async def aload(self) -> None:
        await self._driver.arun(self._load())

    def ended(self) -> None:
        """Wait until what was sent is on disk; what was not sent goes with the report."""
        self._driver.run(self._end())

    async def aended(self) -> None:
        await self._driver.arun(self._end())

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
    ) -> Any:
        # The handler goes on, so its last memo is sent: the server works on it during what follows.
        if self._state.has_to_send(lazy=lazy):
            self._driver.send_kept()
        step = self._plan(function, key=key, retries=retries, retry=retry, timeout=timeout, lazy=lazy)
        return self._driver.call("ctx.step", function, self._step(step, function, args, adapt))

    def sleep(self, duration: float | timedelta, name: str | None) -> Any:
        seconds = seconds_of("ctx.sleep", duration)
        work = self._sleep(seconds, None, *self._begin(name or "sleep"))
        return self._driver.call("ctx.sleep", seconds, work)

    def sleep_until(self, moment: datetime, name: str | None) -> Any:
        until = moment_of("ctx.sleep_until", moment)
        work = self._sleep(0.0, until, *self._begin(name or "sleep"))
        return self._driver.call("ctx.sleep_until", moment, work)

    def wait(self, signal: str, kind: Any, timeout: float | timedelta | None) -> Any:
        seconds = _timeout(timeout)
        return self._driver.call("ctx.wait", signal, self._wait(signal, kind, seconds, *self._begin(signal)))

    def start(self, task: ChildTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name, number = self._begin(name_of_child(task))
        built = task.build(*args, **kwargs)
        return self._driver.call("ctx.start", name, self._start(task, built, name, number))

    def map(self, task: ChildTask, join: Join, timeout: float | timedelta | None) -> Any:
        seconds = _timeout(timeout)
        name, number = self._begin(name_of_child(task))
        return self._driver.call("ctx.map", name, self._join(join, seconds, name, number))

    def first(self, join: Join, timeout: float | timedelta | None, name: str | None) -> Any:
        seconds = _timeout(timeout)
        return self._driver.call("ctx.first", name, self._join(join, seconds, *self._begin(name or "first")))

    def add_to_batch(self, tasks: Sequence[Any], name: str) -> Any:
        check_added(tasks)
        return self._driver.call("ctx.batch.add", None, self._add_to_batch(tasks, *self._begin(name)))

    def after(self, kinds: Sequence[Any]) -> Any:
        return self._driver.call("ctx.after", None, self._after(kinds))

    def callback(self, task_id: UUID, name: str, **options: Any) -> Any:
        return open_callback(self, task_id, name, **options)

    def step_transaction(self, name: str) -> TransactionBlock:
        transaction = StepTransaction(self._state, *self._begin(name), load=self._load)
        return TransactionBlock(transaction, self._driver)

    def step_in_transaction(self, function: Callable[..., Any], args: Sequence[Any], key: object) -> Any:
        plan = self._checked(described(function))
        transaction = StepTransaction(self._state, *self._begin(plan.name, key), load=self._load)
        shown = partial(self._preview, function, args, given=1)
        work = transaction.calling(plan, function, args, shown)
        return self._driver.call("ctx.step_in_transaction", function, work)

    def since(self, change: str) -> bool:
        """Whether the run was enqueued after this change was first seen."""
        self.calls.check()
        memory = self._memory_now()
        name = f"since {change}"
        self._changes.add(name)
        fact = memory.steps.get(name)
        if fact is None:
            first_seen = first_seen_of(change, memory.changes)
            answer = memory.created_at >= first_seen
            self._numbers += 1
            self._check_room(memory, name, self._numbers)
            fact = StepFact(name, "since", None, "true" if answer else "false", None)
            memory.steps[name] = fact
            self._keep(name, self._numbers, "since", fact.result)
        return fact.result == "true"

    def _memory_now(self) -> Memory:
        """What the run remembers, also in a call that is not awaited."""
        if self._state.memory is None:
            if self._driver.is_async:
                raise InvalidStep(
                    "ctx.since is asked in another function before the first step of the run",
                    hint="Ask it in the handler itself, or after the first step.",
                )
            self.load()
        return self._state.loaded

    def _begin(self, base: str, key: object = None) -> tuple[str, int]:
        """Give a call its name and its number."""
        if self._state.suspended is not None or self._state.is_over:
            raise self._driver.ends_with
        self.calls.check()
        check_not_inside(base)
        name = self._names.give(base, key, *self._driver.user())
        self._numbers += 1
        return name, self._numbers

    def _plan(
        self,
        function: Callable[..., Any],
        *,
        key: object,
        retries: int,
        retry: RetryPolicy | None,
        timeout: float | timedelta | None,
        lazy: bool,
    ) -> Step:
        plan = described(function)
        if retries.__class__ is not int or retries < 0:
            raise InvalidStep(f"retries of the step {plan.name} has to be 0 or more, not {retries!r}")
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise InvalidStep(f"retry of the step {plan.name} takes a policy, not {retry!r}")
        limit = None if timeout is None else seconds_of("timeout", timeout)
        name, number = self._begin(plan.name, key)
        policy = DEFAULT_RETRY if retry is None else retry
        self._checked(plan)
        return Step(plan, name, number, retries=retries, retry=policy, timeout=limit, lazy=lazy)

    def _checked(self, function: StepFunction) -> StepFunction:
        if function.is_async and not self._driver.is_async:
            raise InvalidStep(
                f"{function.name} is async, and the handler of {self._state.task.type} is not",
                hint="Make the handler async, or the function plain.",
            )
        return function

    def _load(self) -> Work[Memory]:
        if self._state.memory is None:
            yield Plain.READ
        return self._state.loaded

    def _end(self) -> Work[None]:
        self._state.is_over = True
        self.calls.close()
        yield Plain.END

    def _step(
        self,
        step: Step,
        function: Callable[..., Any],
        args: Sequence[Any],
        adapt: Callable[[Any], Any] | None,
    ) -> Work[Any]:
        state = self._state
        memory = state.memory or (yield from self._load())
        fact = memory.steps.get(step.name)
        if fact is not None:
            return memory.value_of(fact, step.function.codec, adapt)
        failed = memory.tries.get(step.name)
        if failed is not None:  # go on counting where an earlier attempt stopped
            step.tries = failed.number
            yield from self._delay(step.name, failed.retry_at)
        step.arguments = self._preview(function, args)
        while True:
            if state.has_to_flush(lazy=step.lazy):
                yield Plain.FLUSH
            state.check()
            memory.check_room(step.name, step.number)
            step.tries += 1
            began = time.monotonic()
            try:
                with _span(step), Inside(step.name):
                    value = yield Call(function, args, step.function.is_async, step.timeout)
            except OUTCOMES:
                raise
            except Exception as error:
                retry_at = self._failed(step, error)
                if retry_at is None:
                    raise self._gave_up(step, error, began) from error
            else:
                result = self._succeeded(memory, step, value, began)
                self._driver.send_soon()
                return result
            yield from self._delay(step.name, retry_at)

    def _delay(self, name: str, until: float) -> Work[None]:
        seconds = until - self.now()
        if seconds > LONGEST_DELAY_IN_MEMORY:
            yield Pause(Wait(name, until))
        elif seconds > 0:
            yield Delay(until)

    def _succeeded(self, memory: Memory, step: Step, value: Any, began: float) -> Any:
        """Keep the result, and return it as a resumed run will see it."""
        try:
            written, read = step.function.codec.encode_both_ways(value)
            memory.check_result(written)
        except ResultError as error:
            raise self._gave_up(step, error, began) from error
        memory.bytes += len(written)
        took = time.monotonic() - began
        memo = StepMemo(step.name, step.number, "step", step.tries, took, written, arguments=step.arguments)
        self._state.keep(memo, lazy=step.lazy)
        return read

    def _failed(self, step: Step, error: Exception) -> float | None:
        """Keep the failed try, and return when to try again. None if that was the last one."""
        if step.tries > step.retries:
            return None
        delay = next_delay(step.policy, step.tries, error)
        if delay is None:
            return None
        retry_at = self.now() + delay
        self._state.keep_try(self._tell(step, describe(error) | _shown(step), retry_at))
        return retry_at

    def _gave_up(self, step: Step, error: Exception, began: float) -> StepFailed:
        told = describe(error)
        self._tell(step, told, None)
        took = time.monotonic() - began
        memo = StepMemo(step.name, step.number, "step", step.tries, took, error=brief_error(told))
        self._state.keep_failure(memo._replace(arguments=step.arguments), self._driver.user()[0])
        return failed_step(step.name, told | _shown(step))

    def _tell(self, step: Step, error: dict[str, Any], retry_at: float | None) -> FailedStep:
        """Tell the worker at once, for its log and metrics."""
        name, function = step.name, step.function.name
        failed = FailedStep(name, function, step.tries, step.retries + 1, error, retry_at)
        self._driver.step_failed(failed)
        return failed

    def _sleep(self, seconds: float, moment: float | None, name: str, number: int) -> Work[None]:
        yield Plain.ONLY_WAITS
        memory = yield from self._load()
        fact = memory.steps.get(name)
        if fact is not None:
            until = fact.until or 0.0
        else:
            self._check_room(memory, name, number)
            until = self._until_of(seconds, moment)
            self._keep(name, number, "sleep", until=until)
        while self.now() < until:
            yield Pause(Wait(name, until))

    def _until_of(self, seconds: float, moment: float | None) -> float:
        """The end of a sleep of some seconds, or until a moment."""
        now = self.now()
        if moment is not None and moment > now + LONGEST_WAIT:
            raise InvalidStep(f"ctx.sleep_until waits at most 90 years, not until {to_datetime(moment)}")
        return now + seconds if moment is None else moment

    def _wait(self, signal: str, kind: Any, seconds: float, name: str, number: int) -> Work[Any]:
        yield Plain.ONLY_WAITS
        memory = yield from self._load()
        codec = codec_of(f"the signal {signal}", kind)
        fact = memory.steps.get(name)
        if fact is not None:
            return memory.value_of(fact, codec)
        self._check_room(memory, name, number)
        until = memory.waits.get(name, self.now() + seconds)
        self._state.awaited[signal] += 1
        try:
            while True:
                while memory.has_unread(signal):
                    yield Plain.FLUSH  # so that those which were taken are not read again
                    yield Plain.READ
                taken = memory.take_signal(signal)
                if taken is not None:
                    break
                if self.now() >= until:
                    raise self._timed_out(name, number, "signal", until - seconds)
                yield Pause(Wait(name, until, signal), looks=True)
                yield Plain.READ  # a signal may have come while other steps were at work
        finally:
            self._state.awaited[signal] -= 1
        took = self._took(until - seconds)
        self._keep(name, number, "signal", taken.payload, signal_id=taken.signal_id, took=took)
        self._driver.send_soon()
        return memory.value_of(StepFact(name, "signal", None, taken.payload, None), codec)

    def _start(self, task: ChildTask, built: NewTask, name: str, number: int) -> Work[Any]:
        memory = yield from self._load()
        fact = memory.steps.get(name)
        if fact is not None:
            return task.handle(started_id(fact))
        [task_id] = yield from self._send_children(memory, StartingStep(name, number), [built])
        return task.handle(task_id)

    def _add_to_batch(self, tasks: Sequence[Any], name: str, number: int) -> Work[list[Any]]:
        memory = yield from self._load()
        fact = memory.steps.get(name)
        if fact is not None:
            return added_handles(name, tasks, fact)
        if not tasks:
            return []
        task_ids = yield from self._send_children(memory, StartingStep(name, number, batch=True), tasks)
        return [task.handle(task_id) for task, task_id in zip(tasks, task_ids, strict=True)]

    def _after(self, kinds: Sequence[Any]) -> Work[list[Any]]:
        """Of the tasks that `after=` named, which are the children of no step."""
        yield Plain.ONLY_WAITS
        memory = yield from self._load()
        return results_before(memory.children.get("", NO_CHILDREN), kinds)

    def _join(self, join: Join, seconds: float, name: str, number: int) -> Work[Any]:
        memory = yield from self._load()
        fact = memory.steps.get(name)
        if fact is not None:
            return memory.join_value(join, fact)
        if name not in memory.children and join.count:
            started = yield from self._send_children(memory, join.step(name, number), join.build())
            memory.children[name] = Children.started(started, join.keys)
        yield Plain.ONLY_WAITS
        until = memory.join_until(name, self.now() + seconds)
        while not join.is_over(children := memory.children.get(name, NO_CHILDREN)):
            if self.now() >= until:
                raise self._timed_out(name, number, join.kind, until - seconds)
            yield Pause(join.wait(name, until, children), looks=True)
            yield Plain.READ
        fact = StepFact(name, join.kind, None, join.memo(children), None)
        self._keep(name, number, join.kind, fact.result, took=self._took(until - seconds))
        self._driver.send_soon()
        return memory.join_value(join, fact)

    def _send_children(
        self, memory: Memory, step: StartingStep, built: Sequence[NewTask]
    ) -> Work[Sequence[str]]:
        yield Plain.FLUSH
        self._check_room(memory, step.name, step.number)
        verdict, task_ids, error = yield Start(step, *tasks_json(built, self.now()))
        if verdict not in ("started", "already"):
            raise error or Stopped(self._state.task.stop or verdict)
        return task_ids  # type: ignore[no-any-return] # the driver sends it

    def _timed_out(self, name: str, number: int, kind: StepKind, since: float) -> TimeoutError:
        what = "no signal came in time" if kind == "signal" else "the tasks did not end in time"
        self._keep(name, number, kind, error=error_of("timeout", what), took=self._took(since))
        return timed_out(name, kind)

    def _took(self, since: float) -> float:
        """How long the run waited, in this and in earlier attempts, since a time of the database."""
        return max(0.0, self.now() - since)

    def _keep(self, name: str, number: int, kind: StepKind, result: str | None = None, **more: Any) -> None:
        self._state.keep(StepMemo(name, number, kind, result=result, **more))

    def _check_room(self, memory: Memory, name: str, number: int) -> None:
        self._state.check()
        memory.check_room(name, number)

    def _preview(self, function: Callable[..., Any], args: Sequence[Any], given: int = 0) -> str | None:
        """The arguments of a step as JSON, unless the settings say that they are not recorded."""
        if not args and function.__class__ is FunctionType:
            return None
        if self._records_arguments is None:
            try:
                self._records_arguments = bool(self.settings().record_step_arguments)
            except Exception:  # noqa: BLE001 - without readable settings, nothing shows that they may be
                self._records_arguments = False
        return preview(function, args, given) if self._records_arguments else None


def _span(step: Step) -> AbstractContextManager[Any]:
    return tracing.step(step.name, step.tries) if tracing.API in sys.modules else tracing.OFF


def _shown(step: Step) -> dict[str, Any]:
    """A member of a stored error."""
    return {} if step.arguments is None else {"arguments": load_json(step.arguments)}


def moment_of(what: str, given: object) -> float:
    """A time with a time zone, as seconds since 1970."""
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidStep(
            f"{what} takes a datetime with a time zone, not {given!r}",
            hint="Pass tzinfo=ZoneInfo('Europe/Berlin') or UTC to it, or add a timedelta to ctx.now().",
        )
    return given.timestamp()


def seconds_of(what: str, given: object) -> float:
    """A duration in seconds or as a timedelta."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_WAIT:
        raise InvalidStep(f"{what} takes seconds or a timedelta of at most 90 years, not {given!r}")
    return float(seconds)


def _timeout(given: float | timedelta | None) -> float:
    return DEFAULT_TIMEOUT if given is None else seconds_of("timeout", given)
