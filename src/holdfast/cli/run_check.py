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

from holdfast._engine.steps import RecordedStep
from holdfast._worker.attempt import bind_call
from holdfast._worker.handler import Handler
from holdfast._worker.report import NotDecoded
from holdfast._workflows.calls import Calls
from holdfast._workflows.children import Children
from holdfast._workflows.ends import Continued
from holdfast._workflows.facts import StepFact
from holdfast._workflows.memory import RunState
from holdfast._workflows.replay import ReplayedMemory, Replaying, Unremembered
from holdfast._workflows.run import Run
from holdfast.errors import StepResultMismatch
from holdfast.outcome import OUTCOMES

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
        self._run: Run | None = None
        self._task = task
        self._recorded = [step.name for step in recorded]
        self.memory = ReplayedMemory(clock.timestamp())
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
        except (Unremembered, Continued, StepResultMismatch, *OUTCOMES):
            pass
        except NotDecoded:
            self._find("arguments", None, "its arguments do not fit the signature of the handler")
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            self._find("raised", None, f"the handler raised {type(error).__name__} {_place_of(error)}")
        shapes = [
            Finding("shape", name, f"the result of {name} does not fit its annotation")
            for name in self.memory.misfits
        ]
        self.findings = [*shapes, *self.findings]
        if not self.findings:
            self._compare(awaited)
        return self.findings

    def _check_awaited(self) -> None:
        forgotten = None if self._task.calls is None else self._task.calls.forgotten()
        if forgotten is not None:
            self._find("raised", None, forgotten.message)

    def _compare(self, awaited: Collection[str]) -> None:
        asked = set() if self._run is None else self._run.asked
        left = [name for name in self._recorded if name not in asked]
        if not left:
            return
        first_new = self.memory.first_new
        # A join waits under its name, and the name of a child after a slash.
        if first_new is not None and first_new not in {
            *awaited,
            *(name.partition("/")[0] for name in awaited),
        }:
            steps = ", ".join(left)
            self._find("new_step", first_new, f"{first_new} would run ahead of steps that ended: {steps}")
            return
        for name in left:
            self._find("not_asked", name, f"{name} has ended, and the code does not ask for it up to here")

    def _find(self, problem: Problem, step: str | None, message: str) -> None:
        self.findings.append(Finding(problem, step, message))

    def _open(self, handler: Handler) -> Run:
        state = RunState(self._task)
        state.skip_to(self.memory.clock)
        state.memory = self.memory
        self._run = Run(state, Replaying(state, is_async=handler.is_async), lambda: UnsignedLinks)
        return self._run


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
