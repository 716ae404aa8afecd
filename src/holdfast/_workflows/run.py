"""The calls of a run: what `ctx` does, written once for coroutines and plain functions, without I/O.

Each call is a generator. It yields operations, which a driver performs, and it decides what they mean.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cached_property, partial
from types import FunctionType
from typing import Any
from uuid import UUID

from holdfast._serialization.failure import describe
from holdfast._serialization.preview import preview
from holdfast._serialization.text import load_json
from holdfast._telemetry import tracing
from holdfast._workflows.callbacks import open_callback
from holdfast._workflows.changes import first_seen_of
from holdfast._workflows.child_calls import ChildCalls
from holdfast._workflows.drivers import Driver
from holdfast._workflows.facts import StepFact
from holdfast._workflows.failures import brief_error, failed_step
from holdfast._workflows.memory import FailedStep, Memory, RunReport, RunState, StepMemo, Wait
from holdfast._workflows.operations import Call, Delay, Pause, Plain, Work
from holdfast._workflows.step import Inside, RunLog, Step, seconds_of
from holdfast._workflows.step import describe_function as described
from holdfast._workflows.transaction import StepTransaction, TransactionBlock
from holdfast._workflows.waits import Waits
from holdfast.errors import InvalidStep, ResultError, StepFailed
from holdfast.outcome import OUTCOMES
from holdfast.retry import DEFAULT_RETRY, RetryPolicy, next_delay

LONGEST_DELAY_IN_MEMORY = 2.0
"""Of a step that is tried again; a longer delay suspends the run."""


class Steps:
    """Steps: functions that run once, and whose results are remembered."""

    def __init__(self, log: RunLog, settings: Callable[[], Any]) -> None:
        self._log = log
        self._settings = settings
        self._records_arguments: bool | None = None

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
        if self._log.state.has_to_send(lazy=lazy):
            self._log.driver.send_kept()
        step = self._plan(function, key=key, retries=retries, retry=retry, timeout=timeout, lazy=lazy)
        return self._log.driver.call("ctx.step", function, self._step(step, function, args, adapt))

    def step_transaction(self, name: str) -> TransactionBlock:
        transaction = StepTransaction(self._log.state, *self._log.begin(name), load=self._log.load)
        return TransactionBlock(transaction, self._log.driver)

    def step_in_transaction(self, function: Callable[..., Any], args: Sequence[Any], key: object) -> Any:
        plan = self._log.checked(described(function))
        transaction = StepTransaction(self._log.state, *self._log.begin(plan.name, key), load=self._log.load)
        shown = partial(self._preview, function, args, given=1)
        work = transaction.calling(plan, function, args, shown)
        return self._log.driver.call("ctx.step_in_transaction", function, work)

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
        name, number = self._log.begin(plan.name, key)
        policy = DEFAULT_RETRY if retry is None else retry
        self._log.checked(plan)
        return Step(plan, name, number, retries=retries, retry=policy, timeout=limit, lazy=lazy)

    def _step(
        self,
        step: Step,
        function: Callable[..., Any],
        args: Sequence[Any],
        adapt: Callable[[Any], Any] | None,
    ) -> Work[Any]:
        state = self._log.state
        memory = state.memory or (yield from self._log.load())
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
                self._log.driver.send_soon()
                return result
            yield from self._delay(step.name, retry_at)

    def _delay(self, name: str, until: float) -> Work[None]:
        seconds = until - self._log.state.now()
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
        self._log.state.keep(memo, lazy=step.lazy)
        return read

    def _failed(self, step: Step, error: Exception) -> float | None:
        """Keep the failed try, and return when to try again. None if that was the last one."""
        if step.tries > step.retries:
            return None
        delay = next_delay(step.policy, step.tries, error)
        if delay is None:
            return None
        retry_at = self._log.state.now() + delay
        self._log.state.keep_try(self._tell(step, describe(error) | _shown(step), retry_at))
        return retry_at

    def _gave_up(self, step: Step, error: Exception, began: float) -> StepFailed:
        told = describe(error)
        self._tell(step, told, None)
        took = time.monotonic() - began
        memo = StepMemo(step.name, step.number, "step", step.tries, took, error=brief_error(told))
        self._log.state.keep_failure(memo._replace(arguments=step.arguments), self._log.driver.user()[0])
        return failed_step(step.name, told | _shown(step))

    def _tell(self, step: Step, error: dict[str, Any], retry_at: float | None) -> FailedStep:
        """Tell the worker at once, for its log and metrics."""
        name, function = step.name, step.function.name
        failed = FailedStep(name, function, step.tries, step.retries + 1, error, retry_at)
        self._log.driver.step_failed(failed)
        return failed

    def _preview(self, function: Callable[..., Any], args: Sequence[Any], given: int = 0) -> str | None:
        """The arguments of a step as JSON, unless the settings say that they are not recorded."""
        if not args and function.__class__ is FunctionType:
            return None
        if self._records_arguments is None:
            try:
                self._records_arguments = bool(self._settings().record_step_arguments)
            except Exception:  # noqa: BLE001 - without readable settings, nothing shows that they may be
                self._records_arguments = False
        return preview(function, args, given) if self._records_arguments else None


class Run:
    """One attempt of a run: its steps, waits and children, and what it remembers."""

    def __init__(self, state: RunState, driver: Driver, settings: Callable[[], Any]) -> None:
        """`settings` are those of the worker or of the application."""
        self._log = RunLog(state, driver)
        self.calls = driver.calls
        self.settings = settings
        self.steps = Steps(self._log, settings)
        self._changes: set[str] = set()

    @cached_property
    def waits(self) -> Waits:
        return Waits(self._log)

    @cached_property
    def children(self) -> ChildCalls:
        return ChildCalls(self._log)

    @property
    def suspended(self) -> Sequence[Wait] | None:
        """What the run waits for, if it was suspended."""
        return self._log.state.suspended

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
        return {*self._log.names.given, *self._changes}

    def report(self, status: str) -> RunReport:
        return self._log.state.report(status)

    def now(self) -> float:
        return self._log.state.now()

    def load(self) -> None:
        """Read what the run remembers, before the first call. `aload` does not block."""
        self._log.driver.run(self._log.load())

    async def aload(self) -> None:
        await self._log.driver.arun(self._log.load())

    def ended(self) -> None:
        """Wait until what was sent is on disk; what was not sent goes with the report."""
        self._log.driver.run(self._end())

    async def aended(self) -> None:
        await self._log.driver.arun(self._end())

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
            self._log.numbers += 1
            self._log.check_room(memory, name, self._log.numbers)
            fact = StepFact(name, "since", None, "true" if answer else "false", None)
            memory.steps[name] = fact
            self._log.keep(name, self._log.numbers, "since", fact.result)
        return fact.result == "true"

    def callback(self, task_id: UUID, name: str, **options: Any) -> Any:
        return open_callback(self, task_id, name, **options)

    def _memory_now(self) -> Memory:
        """What the run remembers, also in a call that is not awaited."""
        if self._log.state.memory is None:
            if self._log.driver.is_async:
                raise InvalidStep(
                    "ctx.since is asked in another function before the first step of the run",
                    hint="Ask it in the handler itself, or after the first step.",
                )
            self.load()
        return self._log.state.loaded

    def _end(self) -> Work[None]:
        self._log.state.is_over = True
        self.calls.close()
        yield Plain.END


def _span(step: Step) -> AbstractContextManager[Any]:
    return tracing.step(step.name, step.tries) if tracing.API in sys.modules else tracing.OFF


def _shown(step: Step) -> dict[str, Any]:
    """A member of a stored error."""
    return {} if step.arguments is None else {"arguments": load_json(step.arguments)}
