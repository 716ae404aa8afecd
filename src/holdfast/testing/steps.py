"""Runs with steps in a drain: facts are read and recorded at once, through the connection of the drain."""

from functools import partial

from holdfast.engine import Engine, leases, steps
from holdfast.errors import Refused
from holdfast.executors.step_transaction import StepTransaction
from holdfast.worker.attempts import Attempts
from holdfast.worker.jobs import Job
from holdfast.worker.recording import JobHost
from holdfast.workflows.async_run import AsyncRun
from holdfast.workflows.blocking_run import BlockingRun
from holdfast.workflows.journal import Journal, Read, Recorded, Started
from holdfast.workflows.run import Run


class InlineJournal(Journal):
    """Asks the database in the thread of the handler, whose event loop has nothing else to do."""

    def __init__(self, worker: Engine, worker_id: str, job: Job) -> None:
        self._worker = worker
        self._worker_id = worker_id
        self._job = job

    def read(self, done: Read) -> None:
        held = leases.held_json(self._job.task_id, self._job.token)
        facts = self._worker.run(steps.read_steps(self._worker_id, [held]))
        done(facts.rows.get(self._job.task_id), facts.clock)

    def record(self, written: str, done: Recorded, *, lazy: bool) -> None:
        run = steps.run_json(self._job.task_id, self._job.token, written, lazy=lazy)
        [(verdict, _)] = self._worker.run(steps.record_steps(self._worker_id, [run]))
        done(verdict, None)

    def start(self, held: str, tasks: str, payloads: list[str] | None, done: Started) -> None:
        of = steps.run_json(self._job.task_id, self._job.token, held)
        try:
            verdict, task_ids = self._worker.run(steps.start_children(self._worker_id, of, tasks, payloads))
        except Refused as error:
            done("refused", (), error)
        else:
            done(verdict, task_ids, None)


def open_run(
    dsn: str, worker: Engine, worker_id: str, job: Job, attempts: Attempts, *, is_async: bool
) -> Run:
    if job.run is not None:
        return job.run
    journal = InlineJournal(worker, worker_id, job)
    host = JobHost(job, attempts, partial(StepTransaction, dsn, worker_id, job))
    job.run = (AsyncRun if is_async else BlockingRun)(job, journal, host)
    return job.run
