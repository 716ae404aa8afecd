"""Runs without a task: they remember given steps and signals, and their time passes at once."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from pydantic_core import to_json

from holdfast._engine.steps import StartingStep
from holdfast._serialization.failure import describe
from holdfast._worker.attempts import Attempts, JobHost
from holdfast._worker.jobs import Job
from holdfast._worker.transactions import RecordedTransaction
from holdfast._workflows.drivers import Awaiting, Blocking, Driver
from holdfast._workflows.facts import FactRow, StepFact
from holdfast._workflows.journal import Journal, Read, Recorded, Started
from holdfast._workflows.memory import (
    DEFAULT_MAX_MEMO_BYTES,
    DEFAULT_MAX_RESULT_BYTES,
    DEFAULT_MAX_STEPS,
    FailedStep,
    Memory,
    RunState,
    StepMemo,
)
from holdfast._workflows.run import Run
from holdfast.errors import InvalidArgument

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
        self._given = steps
        self._changes: Sequence[str] = ()
        self._run: Run | None = None

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
            transaction = partial(_UnrecordedTransaction, dsn, "", job)
            host = _SkippingHost(partial(self._travel, job), job, attempts, transaction)
            state = RunState(job, partial(_Given, self._given))
            if is_async:
                driver: Driver = Awaiting(state, self, host, linger=LINGER_SECONDS)
            else:
                driver = Blocking(state, self, host)
            job.run = self._run = Run(state, driver, settings)
        return job.run

    def check(self) -> None:
        """After the handler has returned: a result for a step that it never called is a mistake."""
        asked = set() if self._run is None else self._run.asked
        if not_asked := [name for name in self._given if name not in asked]:
            raise AssertionError(f"the handler has not called these steps: {', '.join(not_asked)}")

    def _travel(self, job: Job, until: float) -> None:
        self._clock = max(self._clock, until)
        job.ahead = max(job.ahead, until - time.monotonic())

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


class _Given(Memory):
    """A memory whose joins end with the results and exceptions that the test has given."""

    def __init__(self, given: Mapping[str, Any], rows: Sequence[Sequence[Any]], clock: float) -> None:
        super().__init__(rows, clock)
        self._given = given

    def join_value(self, join: Any, fact: StepFact) -> Any:
        given = self._given[fact.name]
        if isinstance(given, Exception):
            raise given
        return join.given_value(fact.name, given)


class _SkippingHost(JobHost):
    """Lets the time of a wait pass at once."""

    def __init__(self, travel: Callable[[float], None], job: Job, *more: Any) -> None:
        super().__init__(job, *more)
        self._travel = travel

    def skips(self, until: float) -> bool:
        self._travel(until)
        return True


class _UnrecordedTransaction(RecordedTransaction):
    """Commits what the handler wrote; there is no task whose step could be recorded."""

    def statement(self, worker_id: str, written: str) -> None:
        """Nothing is recorded."""


def _step_row(name: str, value: Any) -> FactRow:
    if isinstance(value, Exception):
        error = {what: text for what, text in describe(value).items() if what != "traceback"}
        return FactRow("step", name, None, "step", None, None, None, json.dumps(error))
    # The tasks of a join may have failed; their errors are not read from here.
    written = to_json(value, fallback=lambda _: None).decode()
    return FactRow("step", name, None, "step", None, None, written, None)


def _signal_row(number: int, name: str, payload: Any) -> FactRow:
    return FactRow("signal", name, None, None, None, number, to_json(payload).decode(), None)
