"""Runs without a task: they remember given steps and signals, and their time passes at once."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from pydantic_core import to_json

from holdfast.engine.steps import StartingStep
from holdfast.errors import InvalidArgument
from holdfast.executors.step_transaction import StepTransaction
from holdfast.serialization.failure import describe
from holdfast.worker.attempts import Attempts
from holdfast.worker.jobs import Job
from holdfast.worker.journals import JobHost
from holdfast.workflows.async_run import AsyncRun
from holdfast.workflows.blocking_run import BlockingRun
from holdfast.workflows.joins import Join
from holdfast.workflows.journal import Journal, Read, Recorded, Started
from holdfast.workflows.memory import (
    DEFAULT_MAX_MEMO_BYTES,
    DEFAULT_MAX_RESULT_BYTES,
    DEFAULT_MAX_STEPS,
    FactRow,
    FailedStep,
    StepFact,
    StepMemo,
    Wait,
)
from holdfast.workflows.run import Run

LINGER_SECONDS = 0.005
_LIMITS = {
    "max_steps": DEFAULT_MAX_STEPS,
    "max_memo_bytes": DEFAULT_MAX_MEMO_BYTES,
    "max_result_bytes": DEFAULT_MAX_RESULT_BYTES,
}


class GivenMemory(Journal):
    """The journal of a run alone: steps that have ended, signals that have come, and a clock of its own."""

    def __init__(self, clock: float, steps: Mapping[str, Any], signals: Mapping[str, Sequence[Any]]) -> None:
        self._began = self._clock = clock
        self._steps = [_step_row(name, value) for name, value in steps.items()]
        sent = [(name, payload) for name, payloads in signals.items() for payload in payloads]
        self._signals = {n: _signal_row(n, *one) for n, one in enumerate(sent, start=1)}
        self._not_asked = dict.fromkeys(steps)
        self._changes: Sequence[str] = ()
        self.given = steps

    def open_run(
        self,
        dsn: str,
        job: Job,
        attempts: Attempts,
        *,
        changes: Sequence[str],
        settings: Callable[[], Any],
        is_async: bool,
    ) -> Run:
        self._changes = changes
        if job.run is None:
            host = JobHost(job, attempts, partial(_UnrecordedTransaction, dsn, "", job), settings)
            job.run = (_AsyncRun if is_async else _BlockingRun)(job, self, host)
        return job.run

    def check(self) -> None:
        """After the handler has returned: a result for a step that it never called is a mistake."""
        if self._not_asked:
            raise AssertionError(f"the handler has not called these steps: {', '.join(self._not_asked)}")

    def asked(self, name: str) -> None:
        self._not_asked.pop(name, None)

    def travel(self, until: float) -> None:
        self._clock = max(self._clock, until)

    def read(self, done: Read, signals: Sequence[str] = ()) -> None:
        del signals  # all are given
        limits = json.dumps({**_LIMITS, "changes": dict.fromkeys(self._changes, self._began)})
        run = FactRow("run", None, None, None, self._began, None, limits, None)
        done([run, *self._steps, *self._signals.values()], self._clock)

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None:
        del tries, lazy
        for step in kept:
            if step.signal_id is not None:
                self._signals.pop(step.signal_id, None)
        done("recorded", None)

    def start(self, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started) -> None:
        """Nothing is enqueued: tasks that the handler does not wait for only get an id."""
        if step.awaited:
            name = step.name
            message = f"run_task starts no tasks, and {name} waits for some"
            hint = f"Give what they return, steps={{{name!r}: [...]}}; or enqueue the task, and call drain()."
            done("refused", (), InvalidArgument(message, hint=hint))
        else:
            count = len(json.loads(tasks)) if payloads is None else len(payloads)
            done("started", [str(uuid4()) for _ in range(count)], None)

    def later(self, call: Callable[[], None]) -> None:
        call()


class _GivenRun(Run):
    _journal: GivenMemory
    _task: Job

    def _travel(self, until: float) -> None:
        self._heard = max(self._heard, until - time.monotonic())
        self._task.ahead = max(self._task.ahead, self._heard)

    def recall(self, name: str) -> StepFact | None:
        self._journal.asked(name)
        return super().recall(name)

    def _join_value(self, name: str, join: Join, fact: StepFact) -> Any:
        given = self._journal.given[fact.name]
        if isinstance(given, Exception):
            raise given
        return join.given_value(name, given)


class _AsyncRun(_GivenRun, AsyncRun):
    def _flush_soon(self) -> None:
        self._flush_now()

    def _consider_suspension(self) -> None:
        if self._at_work == 0 and self._linger is None:
            self._linger = self._loop.call_later(LINGER_SECONDS, self._suspend)

    def _suspend(self) -> None:
        """All that is left is waiting: go to the time at which the first wait is over."""
        self._linger = None
        if self._at_work or not self._waiting or self._wake_to_forgotten():
            return
        until = min(wait.until for wait in self._waiting.values())
        self._journal.travel(until)
        self._travel(until)
        for future, wait in self._waiting.items():
            if wait.until <= until and not future.done():
                future.set_result(None)
        self._consider_suspension()


class _BlockingRun(_GivenRun, BlockingRun):
    def _pause(self, wait: Wait) -> None:
        self._journal.travel(wait.until)
        self._travel(wait.until)


class _UnrecordedTransaction(StepTransaction):
    """Commits what the handler wrote; there is no task whose step could be recorded."""

    def commit(self, written: str) -> str:
        del written
        if self._connection is not None:
            self._connection.commit()
        self.rollback()
        return "recorded"

    async def acommit(self, written: str) -> str:
        del written
        if self._async_connection is not None:
            await self._async_connection.commit()
        await self.arollback()
        return "recorded"


def _step_row(name: str, value: Any) -> FactRow:
    if isinstance(value, Exception):
        error = {what: text for what, text in describe(value).items() if what != "traceback"}
        return FactRow("step", name, None, "step", None, None, None, json.dumps(error))
    # The tasks of a join may have failed; their errors are not read from here.
    written = to_json(value, fallback=lambda _: None).decode()
    return FactRow("step", name, None, "step", None, None, written, None)


def _signal_row(number: int, name: str, payload: Any) -> FactRow:
    return FactRow("signal", name, None, None, None, number, to_json(payload).decode(), None)
