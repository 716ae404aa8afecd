"""Replays a run on its memory, up to the first step without one, and finds what no longer fits.

Findings name steps and lines, not values: they are printed where tests run.
"""

import asyncio
import json
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from holdfast.context import Continued
from holdfast.engine.steps import RecordedStep, StartingStep
from holdfast.errors import ResultError, StepShapeChanged
from holdfast.executors.attempt import NotDecoded, bind_call
from holdfast.handler import Handler
from holdfast.outcome import OUTCOMES
from holdfast.serialization.codec import ResultCodec
from holdfast.workflows.async_run import AsyncRun
from holdfast.workflows.blocking_run import BlockingRun
from holdfast.workflows.calls import Calls
from holdfast.workflows.joins import Join
from holdfast.workflows.journal import Journal, Read, Recorded, Started
from holdfast.workflows.memory import Children, FailedStep, Memory, StepFact, StepMemo, Wait
from holdfast.workflows.run import Run

SECONDS = 10.0
"""How long the code between the remembered steps of a coroutine may take."""

Problem = Literal["shape", "new_step", "arguments", "raised", "not_asked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What happens to a run under the new code. `is_error` if it would not go on as it was meant to."""

    problem: Problem
    step: str | None
    message: str

    @property
    def is_error(self) -> bool:
        return self.problem != "not_asked"


class Unremembered(BaseException):
    """Raised by the first step without a memory, which ends the replay."""


class ReplayedTask:
    """The task of a replayed run, as its context shows it."""

    attempt = max_attempts = 1
    metadata = progress = stop = None
    calls: Calls | None = None

    def __init__(self, task_id: str, task_type: str, payload: Any, clock: float = 0.0) -> None:
        self.clock = clock
        self.task_id = task_id
        self.type = task_type
        self.payload = json.dumps(payload)

    def now(self) -> float:
        return self.clock


class UnsignedLinks:
    """The settings of a replay, in which nobody gets the links."""

    web_secrets = ("not a secret",)
    web_url = "http://localhost"


class Replay:
    """One run: what it remembers, which steps it was asked for, and what did not fit."""

    def __init__(
        self,
        task: ReplayedTask,
        created_at: datetime,
        clock: datetime,
        recorded: Sequence[RecordedStep],
        children: Sequence[tuple[str, int, str | None, Any]] = (),
    ) -> None:
        self.findings: list[Finding] = []
        self.asked: set[str] = set()
        self.first_new: str | None = None
        self._task = task
        self._recorded = [step.name for step in recorded]
        self.memory = Memory((), clock.timestamp())
        self.memory.created_at = created_at.timestamp()
        self.memory.steps = {step.name: _fact(step) for step in recorded}
        self.memory.children = {
            step: Children(count, results, about) for step, count, results, about in children
        }

    def run(self, handler: Handler, awaited: Collection[str]) -> list[Finding]:
        """`awaited` are the steps that the run waits for, or tries again: these are not new."""
        self.memory.changes = dict.fromkeys(handler.changes, self.memory.clock)
        try:
            call = bind_call(self._task, handler, _nothing, _no_transaction, lambda: self._open(handler))  # type: ignore[arg-type]
            if handler.is_async:
                asyncio.run(_within(call))
            else:
                call()
            self._check_awaited()
        except (Unremembered, Continued, StepShapeChanged, *OUTCOMES):
            pass
        except NotDecoded:
            self._find("arguments", None, "its arguments do not fit the signature of the handler")
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            self._find("raised", None, f"the handler raised {type(error).__name__} {_place_of(error)}")
        if not self.findings:
            self._compare(awaited)
        return self.findings

    def _check_awaited(self) -> None:
        forgotten = None if self._task.calls is None else self._task.calls.forgotten()
        if forgotten is not None:
            self._find("raised", None, forgotten.message)

    def _compare(self, awaited: Collection[str]) -> None:
        left = [name for name in self._recorded if name not in self.asked]
        if not left:
            return
        # A join waits under its name, and the name of a child after a slash.
        if self.first_new is not None and self.first_new not in {
            *awaited,
            *(name.partition("/")[0] for name in awaited),
        }:
            steps = ", ".join(left)
            self._find(
                "new_step", self.first_new, f"{self.first_new} would run ahead of steps that ended: {steps}"
            )
            return
        for name in left:
            self._find("not_asked", name, f"{name} has ended, and the code does not ask for it up to here")

    def _find(self, problem: Problem, step: str | None, message: str) -> None:
        self.findings.append(Finding(problem, step, message))

    def misfit(self, name: str) -> None:
        self._find("shape", name, f"the result of {name} does not fit its annotation")

    def stop_at(self, name: str) -> NoReturn:
        self.first_new = self.first_new or name
        raise Unremembered(name)

    def _open(self, handler: Handler) -> Run:
        run = (_AsyncRun if handler.is_async else _BlockingRun)(self._task, _NoJournal(), _NoHost())
        run.remember(self)
        return run


class _Replayed(Run):
    replay: Replay

    def remember(self, replay: Replay) -> None:
        self.replay = replay
        self._loaded((), replay.memory.clock)
        self._memory = replay.memory

    def _begin(self, base: str, key: object = None) -> tuple[str, int]:
        name, number = super()._begin(base, key)
        self.replay.asked.add(name)
        return name, number

    def since(self, change: str) -> bool:
        self.replay.asked.add(f"since {change}")
        return super().since(change)

    def value_of(self, fact: StepFact, codec: ResultCodec, adapt: Callable[[Any], Any] | None = None) -> Any:
        try:
            return super().value_of(fact, codec, adapt)
        except StepShapeChanged:
            self.replay.misfit(fact.name)
            raise

    def _join_value(self, name: str, join: Join, fact: StepFact) -> Any:
        return self._fitting(name, lambda: super(_Replayed, self)._join_value(name, join, fact))

    def _joined(self, name: str, number: int, join: Join, children: Children, since: float) -> Any:
        return self._fitting(
            name, lambda: super(_Replayed, self)._joined(name, number, join, children, since)
        )

    def _fitting(self, name: str, read: Callable[[], Any]) -> Any:
        children = self._children_of(name)
        if children is not None and children.is_partial:  # only a worker reads large results
            self.replay.stop_at(name)
        try:
            return read()
        except (ResultError, StepShapeChanged) as error:
            self.replay.misfit(name)
            raise StepShapeChanged(f"the tasks of {name} do not fit") from error

    def check_room(self, name: str, number: int) -> None:
        del number
        if not name.startswith("since "):
            self.replay.stop_at(name)


class _AsyncRun(_Replayed, AsyncRun):
    async def _pause(self, wait: Wait, longest: float = 0.0) -> None:
        """A sleep that is not over: the run waits here."""
        del longest
        raise Unremembered(wait.name)


class _BlockingRun(_Replayed, BlockingRun):
    def _pause(self, wait: Wait) -> None:
        if wait.until > self.now():
            raise Unremembered(wait.name)


class _NoJournal(Journal):
    """Nothing is recorded: what the run keeps is dropped."""

    def read(self, done: Read, signals: Sequence[str] = ()) -> None:
        raise NotImplementedError("a replay is given its memory and does not read it")

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None:
        del kept, tries, lazy
        done("recorded", None)

    def start(self, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started) -> None:
        raise NotImplementedError("a replay starts no children")


class _NoHost:
    """No step runs, so little is asked of it."""

    def settings(self) -> Any:
        return UnsignedLinks

    def cancel(self) -> None: ...

    def in_thread(self, call: Callable[[], Any]) -> Any:
        raise NotImplementedError("a replay runs no step")

    def limited(self, seconds: float, call: Callable[[], Any]) -> Any:
        raise NotImplementedError("a replay runs no step")

    def open_transaction(self) -> Any:
        raise NotImplementedError("a replay runs no step")


async def _within(call: Callable[[], Any]) -> Any:
    async with asyncio.timeout(SECONDS):
        return await call()


def _nothing() -> None:
    """A replay has no progress to send."""


def _no_transaction() -> NoReturn:
    raise Unremembered("ctx.transaction()")


def _place_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _fact(step: RecordedStep) -> StepFact:
    result = None if step.result is None and step.error is not None else json.dumps(step.result)
    until = None if step.until is None else step.until.timestamp()
    return StepFact(step.name, step.kind, until, result, step.error)
