"""Attempts that end early in a drain: after every recorded step, or as in a crash, before one is recorded."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast.engine import Engine
from holdfast.executors.step_transaction import StepTransaction
from holdfast.testing.inline_runner import Interrupted
from holdfast.testing.steps import ChangesOf, InlineJournal, open_run
from holdfast.worker.attempts import Attempts
from holdfast.worker.jobs import Job
from holdfast.worker.journals import JobHost
from holdfast.workflows.async_run import AsyncRun
from holdfast.workflows.blocking_run import BlockingRun
from holdfast.workflows.journal import Recorded
from holdfast.workflows.memory import FailedStep, StepMemo
from holdfast.workflows.run import Run


class ReplayDiffers(AssertionError):
    """A run that was replayed from its memory came to another end."""


class Interruptions:
    """Decides after which steps the attempts of one drain end."""

    def __init__(self, *, replay: bool, crash_after: str | None) -> None:
        self.replay = replay
        self.crash_after = crash_after
        self._crashed: set[str] = set()
        self._ends: dict[str, str] = {}

    def crashes(self, task_id: str, names: Sequence[str]) -> bool:
        """Once in each run: before the step is recorded."""
        if self.crash_after not in names or task_id in self._crashed:
            return False
        self._crashed.add(task_id)
        return True

    def is_to_replay(self, job: Job, result: str) -> bool:
        """Whether to replay a run that has come to its end. Raises if this is another end than the first."""
        if not self.replay or not isinstance(job.run, _Interruptible):
            return False
        first = self._ends.setdefault(job.task_id, result)
        if first != result:
            raise ReplayDiffers(
                f"{job.type} returned {first}, and {result} when it was replayed from its recorded steps. "
                "Move what differs into a step."
            )
        if job.run.is_replayed:
            return False
        job.run.record_rest()
        return True

    def has_ended(self, job: Job) -> bool:
        return job.task_id in self._ends

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
        host = JobHost(job, attempts, partial(_Transaction, dsn, worker_id, job, self), settings)
        run = (_AsyncRun if is_async else _BlockingRun)(job, journal, host)
        run.is_replayed = self.has_ended(job)
        job.run = run
        return run


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
        _interrupt(self._job, self._rules)

    def later(self, call: Any) -> None:
        """Without waiting for the next step: it would be called before the attempt ends."""
        call()


class _Transaction(StepTransaction):
    def __init__(self, url: str, worker_id: str, job: Job, rules: Interruptions) -> None:
        super().__init__(url, worker_id, job)
        self._interrupted = job
        self._rules = rules

    def commit(self, written: str) -> str:
        if self._rules.crashes(self._interrupted.task_id, _names(written)):
            self.rollback()
            raise Interrupted("crash")
        verdict = super().commit(written)
        _interrupt(self._interrupted, self._rules)
        return verdict

    async def acommit(self, written: str) -> str:
        if self._rules.crashes(self._interrupted.task_id, _names(written)):
            await self.arollback()
            raise Interrupted("crash")
        verdict = await super().acommit(written)
        _interrupt(self._interrupted, self._rules)
        return verdict


class _Interruptible(Run):
    is_replayed = False
    _is_due = False

    def interrupt(self) -> None:
        """End the attempt at its next step, or at its end, as soon as no step is at work."""
        self._is_due = True
        self._break()

    def record_rest(self) -> None:
        """Record what would go with the report about the attempt."""
        self._send(caught=True)

    def _break(self) -> None:
        if self._is_due and self._broken is None and self._is_idle():
            self._broken = Interrupted("replay")

    def _is_idle(self) -> bool:
        return True


class _AsyncRun(_Interruptible, AsyncRun):
    def end_work(self) -> None:
        super().end_work()
        self._break()

    def _is_idle(self) -> bool:
        return self._at_work == 0

    def _flush_soon(self) -> None:
        self._flush_now()


class _BlockingRun(_Interruptible, BlockingRun):
    pass


def _interrupt(job: Job, rules: Interruptions) -> None:
    if rules.replay and isinstance(job.run, _Interruptible):
        job.run.interrupt()


def _names(written: str) -> list[str]:
    return [step["name"] for step in json.loads(f"{{{written}}}").get("steps", ())]
