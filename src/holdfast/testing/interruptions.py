"""Attempts that end early in a drain: after every recorded step, or as in a crash, before one is recorded."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast._engine import Engine, Statement
from holdfast._worker.attempts import Attempts, JobHost
from holdfast._worker.jobs import Job
from holdfast._worker.transactions import RecordedTransaction
from holdfast._workflows.drivers import Awaiting, Blocking, RecordingDriver
from holdfast._workflows.journal import Recorded
from holdfast._workflows.memory import FailedStep, RunState, StepMemo
from holdfast._workflows.run import Run
from holdfast.testing.inline_runner import Interrupted
from holdfast.testing.steps import ChangesOf, InlineJournal, open_run


class ReplayDiffers(AssertionError):
    """A run that was replayed from its memory came to another end."""


class Interruptions:
    """Decides after which steps the attempts of one drain end."""

    def __init__(self, *, replay: bool, crash_after: str | None) -> None:
        self.replay = replay
        self.crash_after = crash_after
        self._crashed: set[str] = set()
        self._ends: dict[str, str] = {}
        self._attempts: dict[str, _Attempt] = {}
        """The latest of each run."""

    def crashes(self, task_id: str, names: Sequence[str]) -> bool:
        """Once in each run: before the step is recorded."""
        if self.crash_after not in names or task_id in self._crashed:
            return False
        self._crashed.add(task_id)
        return True

    def is_to_replay(self, job: Job, result: str) -> bool:
        """Whether to replay a run that has come to its end. Raises if this is another end than the first."""
        attempt = self._attempts.get(job.task_id)
        if not self.replay or attempt is None:
            return False
        first = self._ends.setdefault(job.task_id, result)
        if first != result:
            raise ReplayDiffers(
                f"{job.type} returned {first}, and {result} when it was replayed from its recorded steps. "
                "Move what differs into a step."
            )
        if attempt.is_replayed:
            return False
        attempt.driver.send(caught=True)  # what would go with the report about the attempt
        return True

    def interrupt(self, task_id: str) -> None:
        """A step of this run was recorded."""
        if self.replay and task_id in self._attempts:
            self._attempts[task_id].driver.interrupt()

    def check(self) -> None:
        """After the drain: a test that names a step which never ran shows nothing."""
        if self.crash_after is not None and not self._crashed:
            raise AssertionError(
                f"no attempt has recorded a step {self.crash_after!r}: name it as handle.steps() does"
            )

    def open_run(
        self,
        dsn: str,
        worker: Engine,
        worker_id: str,
        job: Job,
        attempts: Attempts,
        *,
        changes_of: ChangesOf,
        settings: Callable[[], Any],
        is_async: bool,
    ) -> Run:
        """The run of one attempt, which these rules interrupt."""
        if job.run is not None or not (self.replay or self.crash_after):
            return open_run(
                dsn,
                worker,
                worker_id,
                job,
                attempts,
                changes_of=changes_of,
                settings=settings,
                is_async=is_async,
            )
        journal = _Journal(worker, worker_id, job, changes_of, self)
        host = JobHost(job, attempts, partial(_Transaction, dsn, worker_id, job, self))
        state = RunState(job)
        driver = (_Awaiting if is_async else _Blocking)(state, journal, host)
        self._attempts[job.task_id] = _Attempt(driver, is_replayed=job.task_id in self._ends)
        job.run = Run(state, driver, settings)
        return job.run


class _Journal(InlineJournal):
    def __init__(
        self, worker: Engine, worker_id: str, job: Job, changes_of: ChangesOf, rules: Interruptions
    ) -> None:
        super().__init__(worker, worker_id, job, changes_of)
        self._rules = rules

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None:
        if self._rules.crashes(self._job.task_id, [step.name for step in kept]):
            done("refused", Interrupted("crash"))
            return
        super().record(kept, tries, done, lazy=lazy)
        self._rules.interrupt(self._job.task_id)

    def later(self, call: Callable[[], None]) -> None:
        """Without waiting for the next step: it would be called before the attempt ends."""
        call()


class _Transaction(RecordedTransaction):
    def __init__(self, url: str, worker_id: str, job: Job, rules: Interruptions) -> None:
        super().__init__(url, worker_id, job)
        self._rules = rules

    def statement(self, worker_id: str, written: str) -> Statement[Any] | None:
        if self._rules.crashes(self._job.task_id, _names(written)):
            raise Interrupted("crash")
        self._rules.interrupt(self._job.task_id)
        return super().statement(worker_id, written)


class _Interrupting(RecordingDriver):
    """Ends the attempt at its next step, or at its own end, as soon as nothing is at work."""

    at_work = 0
    _is_to_end = False

    def interrupt(self) -> None:
        self._is_to_end = True
        self.look()

    def look(self) -> None:
        if self._is_to_end and self.at_work == 0 and self._state.broken is None:
            self._state.broken = Interrupted("replay")


class _Awaiting(_Interrupting, Awaiting):
    def end_work(self) -> None:
        super().end_work()
        self.look()


class _Blocking(_Interrupting, Blocking):
    pass


class _Attempt(NamedTuple):
    driver: _Interrupting
    is_replayed: bool


def _names(written: str) -> list[str]:
    return [step["name"] for step in json.loads(f"{{{written}}}").get("steps", ())]
