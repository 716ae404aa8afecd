"""Runs of plain functions, each in a thread or in a child process: one step after the other."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast import tracing
from holdfast.context import Stopped
from holdfast.engine.enqueue import NewTask
from holdfast.engine.steps import StartingStep
from holdfast.errors import InvalidStep
from holdfast.outcome import OUTCOMES
from holdfast.retry import RetryPolicy
from holdfast.workflows.calls import CallSite, EnteredCall
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
from holdfast.workflows.memory import NO_CHILDREN, FailedStep, Memory, StepMemo, Wait
from holdfast.workflows.run import (
    DEFAULT_TIMEOUT,
    LINGER_SECONDS,
    LONGEST_DELAY_IN_MEMORY,
    Run,
    RunTask,
    Suspended,
    moment_of,
    seconds_of,
)
from holdfast.workflows.step import Inside, Step, StepFunction, codec_of, describe_function
from holdfast.workflows.step_transaction import BlockingStepTransaction

INTERRUPTIBLE_SECONDS = 0.2
"""A thread that waits for an answer notices an interruption when it looks."""


class BlockingRun(Run):
    """The methods are called in the thread of the handler, `_was_read` and `_recorded` in any."""

    def __init__(self, task: RunTask, journal: Journal, host: Host) -> None:
        super().__init__(task, journal, host)
        self._answered = threading.Condition(threading.RLock())
        self._has_read = False
        self._flush_asked = False

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
        step = self._plan(function, key=key, retries=retries, retry=retry, timeout=timeout, lazy=lazy)
        self._check_plain(step.function)
        self.load()
        fact = self.recall(step.name)
        if fact is not None:
            return self.value_of(fact, step.function.codec, adapt)
        self._before_retry(step)
        step.arguments = self.preview(function, args)
        while True:
            if not (step.lazy and self._all_lazy):
                self.flush()
            self.check_room(step.name, step.number)
            step.tries += 1
            began = time.monotonic()
            try:
                with tracing.step(step.name, step.tries), Inside(step.name):
                    if step.timeout is None:
                        value = function(*args)
                    else:
                        value = self._host.limited(step.timeout, lambda: function(*args))
            except OUTCOMES:
                raise
            except Exception as error:
                retry_at = self._failed(step, error)
                if retry_at is None:
                    raise self._gave_up(step, error, began) from error
            else:
                result = self._succeeded(step, value, began)
                self._flush_later()
                return result
            self._delay(step.name, retry_at)

    def _check_plain(self, function: StepFunction) -> None:
        if function.is_async:
            raise InvalidStep(
                f"{function.name} is async, and the handler of {self._task.type} is not",
                hint="Make the handler async, or the function plain.",
            )

    def sleep(self, duration: float | timedelta, name: str | None) -> None:
        self._sleep(seconds_of("ctx.sleep", duration), None, *self._begin(name or "sleep"))

    def sleep_until(self, moment: datetime, name: str | None) -> None:
        self._sleep(0.0, moment_of("ctx.sleep_until", moment), *self._begin(name or "sleep"))

    def _sleep(self, seconds: float, moment: float | None, name: str, number: int) -> None:
        self.load()
        fact = self.recall(name)
        if fact is not None:
            until = fact.until or 0.0
        else:
            self.check_room(name, number)
            until = self._until_of(seconds, moment)
            self._keep_simple(name, number, "sleep", until=until)
        self._pause(Wait(name, until))

    def wait(self, signal: str, kind: Any, timeout: float | timedelta | None) -> Any:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        name, number = self._begin(signal)
        self.load()
        codec = codec_of(f"the signal {signal}", kind)
        fact = self.recall(name)
        if fact is not None:
            return self.value_of(fact, codec)
        assert self._memory is not None  # noqa: S101 - it was loaded
        self.check_room(name, number)
        until = self._memory.waits.get(name, self.now() + seconds)
        if self._memory.has_unread(signal):
            self.flush()  # so that those which were taken are not read again
            self._read([signal])
        taken = self._take_signal(name, number, signal, until - seconds)
        if taken is None:
            self._pause(Wait(name, until, signal))
            self._read([signal])
            taken = self._take_signal(name, number, signal, until - seconds)
        if taken is None:
            raise self._timed_out(name, number, until - seconds)
        self._flush_later()
        return self.value_of(taken, codec)

    def transaction(self, name: str, function: Callable[..., Any] | None, args: Sequence[Any]) -> Any:
        transaction = BlockingStepTransaction(self, *self._begin(name))
        if function is not None:
            described = describe_function(function)
            self._check_plain(described)
            return transaction.call(described, function, args)
        transaction.opened = EnteredCall(self.calls, CallSite("ctx.transaction", name))
        return transaction

    def start(self, task: ChildTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name, number = self._begin(name_of_child(task))
        built = task.build(*args, **kwargs)
        self.load()
        fact = self.recall(name)
        if fact is not None:
            return task.handle(started_id(fact))
        [task_id] = self._send_children(StartingStep(name, number), [built])
        return task.handle(task_id)

    def map(self, task: ChildTask, join: Join, timeout: float | timedelta | None) -> Any:
        return self._join(join, timeout, *self._begin(name_of_child(task)))

    def first(self, join: Join, timeout: float | timedelta | None, name: str | None) -> Any:
        return self._join(join, timeout, *self._begin(name or "first"))

    def add_to_batch(self, tasks: Sequence[Any], name: str) -> list[Any]:
        check_added(tasks)
        name, number = self._begin(name)
        self.load()
        fact = self.recall(name)
        if fact is not None:
            return added_handles(name, tasks, fact)
        if not tasks:
            return []
        task_ids = self._send_children(StartingStep(name, number, batch=True), tasks)
        return [task.handle(task_id) for task, task_id in zip(tasks, task_ids, strict=True)]

    def after(self, kinds: Sequence[Any]) -> list[Any]:
        self.load()
        return self._results_before(kinds)

    def _join(self, join: Join, timeout: float | timedelta | None, name: str, number: int) -> Any:
        seconds = DEFAULT_TIMEOUT if timeout is None else seconds_of("timeout", timeout)
        self.load()
        fact = self.recall(name)
        if fact is not None:
            return self._join_value(name, join, fact)
        children = self._children_of(name)
        if children is None and join.count:
            started = self._send_children(join.step(name, number), join.build())
            children = self._started(name, join, started)
        children = children or NO_CHILDREN
        until = self._join_until(name, seconds)
        if not join.is_over(children):
            self._pause(join.wait(name, until, children))
            self._read()  # the time was short, or is over
            children = self._children_of(name) or NO_CHILDREN
            if not join.is_over(children):
                raise self._join_timed_out(name, number, join, until - seconds)
        try:
            return self._joined(name, number, join, children, until - seconds)
        finally:
            self._flush_later()

    def _send_children(self, step: StartingStep, built: Sequence[NewTask]) -> Sequence[str]:
        self.flush()
        self.check_room(step.name, step.number)
        answer: list[tuple[str, Sequence[str], BaseException | None]] = []

        def done(verdict: str, task_ids: Sequence[str], error: BaseException | None) -> None:
            with self._answered:
                answer.append((verdict, task_ids, error))
                self._answered.notify_all()

        self._journal.start(step, *tasks_json(built, self.now()), done)
        self._until(lambda: bool(answer))
        verdict, task_ids, error = answer[0]
        if verdict not in ("started", "already"):
            raise error or Stopped(self._task.stop or verdict)
        return task_ids

    def ended(self) -> None:
        """Wait until what was sent is on disk; what was not sent goes with the report."""
        self._is_over = True
        self.calls.close()
        self._until(lambda: self._in_flight == 0)
        if self._broken is not None:
            raise self._broken

    def load(self) -> None:
        if self._memory is None:
            self._read()

    def flush(self) -> None:
        """Wait until everything that is kept is on disk."""
        with self._answered:
            self._send(caught=True)
        self._until(lambda: self._in_flight == 0)
        if self._broken is not None:
            raise self._broken

    def begin_work(self) -> None:
        """Nothing else is at work in a plain function."""

    def end_work(self) -> None:
        """Nothing else is at work in a plain function."""

    def _before_retry(self, step: Step) -> None:
        failed = self._failed_before(step)
        if failed is not None:
            self._delay(step.name, failed.retry_at)

    def _delay(self, name: str, retry_at: float) -> None:
        if retry_at - self.now() > LONGEST_DELAY_IN_MEMORY:
            self._pause(Wait(name, retry_at))
        elif retry_at > self.now():
            self.flush()
            time.sleep(max(0.0, retry_at - self.now()))

    def _pause(self, wait: Wait) -> None:
        """Wait in memory if it is short; otherwise suspend the run, which ends the attempt here."""
        seconds = wait.until - self.now()
        if seconds <= LINGER_SECONDS:
            time.sleep(max(0.0, seconds))
            return
        self.suspended = [wait]
        raise Suspended

    def _flush_later(self) -> None:
        """The next step or the end sends it. If neither comes soon, the journal asks for it."""
        later: Callable[[Callable[[], None]], None] | None = getattr(self._journal, "later", None)
        if later is not None and not self._flush_asked:
            self._flush_asked = True
            later(self._flush_if_kept)

    def _flush_if_kept(self) -> None:
        """Called in another thread."""
        with self._answered:
            self._flush_asked = False
            if self._steps and not self._is_over and self.suspended is None:
                self._send(caught=False)

    def _keep(self, memo: StepMemo, *, lazy: bool = False) -> None:
        with self._answered:
            super()._keep(memo, lazy=lazy)

    def _keep_try(self, failed: FailedStep) -> None:
        with self._answered:
            super()._keep_try(failed)

    def _keep_failure(self, memo: StepMemo) -> None:
        with self._answered:
            super()._keep_failure(memo)

    def _memory_now(self) -> Memory:
        self.load()
        return super()._memory_now()

    def _read(self, signals: Sequence[str] = ()) -> None:
        self._has_read = False
        self._journal.read(self._was_read, signals)
        self._until(lambda: self._has_read)
        if self._broken is not None:
            raise self._broken

    def _was_read(self, rows: Sequence[Sequence[Any]] | None, clock: float) -> None:
        with self._answered:
            self._loaded(rows, clock)
            self._has_read = True
            self._answered.notify_all()

    def _recorded(self, verdict: str, error: BaseException | None) -> None:
        with self._answered:
            super()._recorded(verdict, error)
            self._answered.notify_all()

    def _until(self, is_true: Callable[[], bool]) -> None:
        pump: Callable[[], None] | None = getattr(self._journal, "pump", None)
        while pump is not None and not is_true():
            pump()
        with self._answered:
            while not self._answered.wait_for(is_true, INTERRUPTIBLE_SECONDS):
                if self._task.stop is not None:
                    raise Stopped(self._task.stop)
