"""Runs with steps in a drain: facts are read and recorded at once, through the connection of the drain."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast._engine import Engine, steps
from holdfast._engine.steps import StartingStep
from holdfast._serialization.text import load_json
from holdfast._worker.attempts import Attempts, JobHost
from holdfast._worker.jobs import Job
from holdfast._worker.reading import ResultPages
from holdfast._worker.transactions import RecordedTransaction
from holdfast._workflows.drivers import Awaiting, Blocking
from holdfast._workflows.facts import FactRow
from holdfast._workflows.journal import Journal, Read, Recorded, Started
from holdfast._workflows.memory import FailedStep, RunState, StepMemo, memo_json
from holdfast._workflows.run import Run
from holdfast.errors import RequestRefused

ChangesOf = Callable[[str], Sequence[str]]
"""The names that the handler of a type asks `ctx.since` for."""


class InlineJournal(Journal):
    """Asks the database in the thread of the handler, whose event loop has nothing else to do."""

    def __init__(self, worker: Engine, worker_id: str, job: Job, changes_of: ChangesOf) -> None:
        self._worker = worker
        self._changes_of = changes_of
        self._worker_id = worker_id
        self._job = job

    def read(self, done: Read, signals: Sequence[str] = ()) -> None:
        task_id, token = self._job.task_id, self._job.token
        held = steps.read_json(task_id, token, signals)
        facts = self._worker.run(steps.read_steps(self._worker_id, [held]))
        pages = ResultPages(facts.rows[task_id])
        while pages.next is not None:
            page = self._worker.run(steps.read_results(self._worker_id, task_id, token, *pages.next))
            if not pages.add(page):
                raise RuntimeError(f"the results of {pages.next.step} have changed while they were read")
        done([self._as_new(FactRow(*row)) for row in pages.rows], facts.clock)

    def _as_new(self, row: FactRow) -> FactRow:
        """A handler that the test has declared since it used the app is as old as the run."""
        if row.fact != "run":
            return row
        told = load_json(row.result)
        changes = dict.fromkeys(self._changes_of(self._job.type), row.until) | (told["changes"] or {})
        return row._replace(result=json.dumps({**told, "changes": changes}))

    def record(
        self, kept: Sequence[StepMemo], tries: Sequence[FailedStep], done: Recorded, *, lazy: bool
    ) -> None:
        run = steps.run_json(self._job.task_id, self._job.token, memo_json(kept, tries), lazy=lazy)
        [(verdict, _)] = self._worker.run(steps.record_steps(self._worker_id, [run]))
        done(verdict, None)

    def start(self, step: StartingStep, tasks: str, payloads: list[str] | None, done: Started) -> None:
        job = self._job
        starting = steps.start_children(
            self._worker_id, job.task_id, job.token, step=step, tasks=tasks, payloads=payloads
        )
        try:
            verdict, task_ids = self._worker.run(starting)
        except RequestRefused as error:
            done("refused", (), error)
        else:
            done(verdict, task_ids, None)


def open_run(
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
    if job.run is not None:
        return job.run
    journal = InlineJournal(worker, worker_id, job, changes_of)
    host = JobHost(job, attempts, partial(RecordedTransaction, dsn, worker_id, job))
    state = RunState(job)
    job.run = Run(state, (Awaiting if is_async else Blocking)(state, journal, host), settings)
    return job.run
