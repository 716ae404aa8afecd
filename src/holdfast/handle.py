"""The handle of a task that was enqueued: its status, its result, and the actions on it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from holdfast._connections.client import Client
from holdfast._connections.wait_ticket import WAIT_TTL, issue, wait_url
from holdfast._connections.waiting import not_found
from holdfast._engine import Statement, steps, tasks
from holdfast._engine.steps import RecordedStep, Sent, SignalAnswer, sent, steps_of
from holdfast._engine.tasks import Status, TaskError, TaskSnapshot, TaskStatus
from holdfast._serialization.codec import encode_signal
from holdfast._serialization.text import load_json
from holdfast._worker.handler import Handler
from holdfast._workflows.calls import missed_in_handlers
from holdfast.errors import AttemptError, InvalidArgument, TaskCancelled, TaskFailed
from holdfast.options import check_duration
from holdfast.outcome import Outcome

if TYPE_CHECKING:
    from holdfast.settings import Settings

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Home(Protocol):
    """What a handle needs of its app."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def settings(self) -> "Settings": ...
    def connect(self) -> Client: ...


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The details of a task, as of when they were read."""

    task_id: UUID
    type: str
    queue: str
    status: Status
    priority: int
    attempt: int
    """The number of the current or last attempt; 0 before the first."""
    max_attempts: int
    generation: int
    """How often the run has begun: once, and once more with each `ctx.continue_as`."""
    progress: Any
    """What the handler reported last: `done`, `total` and `note`; None if it reported nothing."""
    errors: tuple[AttemptError, ...]
    """How attempts and tries of steps failed so far, the first of them first; at most the last 1,000."""
    reason: str | None
    """Why the task was cancelled, failed or retried, if somebody or the handler gave a reason."""
    worker_id: str | None
    key: str | None
    metadata: Mapping[str, Any]
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


class Handle(Generic[R_co]):
    """A task that was enqueued. It holds no connection, and `app.handle` makes it again from the task_id."""

    __slots__ = ("_home", "created", "task_id")

    def __init__(self, task_id: UUID, *, created: bool | None, home: Home) -> None:
        self.task_id = task_id
        self.created = created
        """False if the key already belonged to this task; None for a handle made from a task_id."""
        self._home = home

    def __repr__(self) -> str:
        return f"<Handle of task {self.task_id}>"

    def status(self) -> Status:
        return self._found(self._run(tasks.task_status(self.task_id), "status")).status

    async def astatus(self) -> Status:
        return self._found(await self._arun(tasks.task_status(self.task_id))).status

    def info(self) -> TaskInfo:
        """The status, progress, attempts, errors and times of the task."""
        found = self._found(self._run(tasks.task_status(self.task_id), "info"))
        return _info(found, self._run(tasks.task_errors(self.task_id), "info"))

    async def ainfo(self) -> TaskInfo:
        found = self._found(await self._arun(tasks.task_status(self.task_id)))
        return _info(found, await self._arun(tasks.task_errors(self.task_id)))

    # Outcomes that a handler is annotated with besides its result are not part of the result.
    def result(self: "Handle[T | Outcome]", timeout: float | timedelta | None = None) -> T:
        """Wait for the end. Raises TaskFailed, TaskCancelled, or TimeoutError after that many seconds."""
        return self._home.connect().run_async(self.aresult(timeout), "result", "aresult")

    async def aresult(
        self: "Handle[T | Outcome]",
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - part of the API
    ) -> T:
        end = await self._home.connect().await_end(self.task_id, timeout)
        if end.status == "succeeded":
            result: T = self._loaded(end)
            return result
        if end.status == "cancelled":
            raise TaskCancelled(
                f"task {self.task_id} of type {end.type} was cancelled{_because(end.reason)}",
                task_id=self.task_id,
                status=end.status,
            )
        raise _failed(end, await self._arun(tasks.task_errors(self.task_id)))

    def cancel(self, reason: str | None = None) -> Status:
        """Cancel the task. Returns its status: `cancelled`, or how it had already ended."""
        return self._run(tasks.cancel(self.task_id, reason), "cancel")

    @missed_in_handlers("handle.acancel")
    async def acancel(self, reason: str | None = None) -> Status:
        return await self._arun(tasks.cancel(self.task_id, reason))

    def retry(self, reason: str | None = None) -> Status:
        """Run a task again that has failed or was cancelled. Returns its status."""
        return self._run(tasks.retry(self.task_id, reason), "retry", repeatable=False)

    @missed_in_handlers("handle.aretry")
    async def aretry(self, reason: str | None = None) -> Status:
        return await self._arun(tasks.retry(self.task_id, reason), repeatable=False)

    def delete(self, reason: str | None = None) -> None:
        """Delete the task, whatever its status. Listings no longer show it; an operator can restore it."""
        self._run(tasks.delete_task(self.task_id, reason), "delete", repeatable=False)

    @missed_in_handlers("handle.adelete")
    async def adelete(self, reason: str | None = None) -> None:
        await self._arun(tasks.delete_task(self.task_id, reason), repeatable=False)

    def reschedule(self, run_at: datetime | None = None, *, delay: float | timedelta | None = None) -> Status:
        """Move a waiting task to another time. A task that is not waiting is left unchanged."""
        return self._run(self._reschedule(run_at, delay), "reschedule")

    @missed_in_handlers("handle.areschedule")
    async def areschedule(
        self, run_at: datetime | None = None, *, delay: float | timedelta | None = None
    ) -> Status:
        return await self._arun(self._reschedule(run_at, delay))

    def signal(self, name: str, payload: Any = None, *, key: str | None = None, tx: Any = None) -> Sent:
        """Send a signal to the run, which takes it with `ctx.wait(name)`, now or later.

        Returns `kept`, or `ended` if the run has ended. A signal with a key is kept once: `replayed` if it is
        repeated; with another payload, it raises KeyConflict. With `tx`, it is part of that transaction.
        """
        statement = self._signal(name, payload, key)
        return sent(self._home.connect().run_in(tx, statement, "signal", repeatable=key is not None), name)

    @missed_in_handlers("handle.asignal")
    async def asignal(
        self, name: str, payload: Any = None, *, key: str | None = None, tx: Any = None
    ) -> Sent:
        statement = self._signal(name, payload, key)
        answer = await self._home.connect().arun_in(tx, statement, "signal", repeatable=key is not None)
        return sent(answer, name)

    def steps(self) -> list[RecordedStep]:
        """The steps of the current generation that have come to an end, in the order of their calls."""
        return self._run(steps_of(self.task_id), "steps")

    async def asteps(self) -> list[RecordedStep]:
        return await self._arun(steps_of(self.task_id))

    def fork(self, before: str | None = None, *, reason: str | None = None) -> "Handle[R_co]":
        """Run the task again as a new one that remembers the steps before this one, or all of them."""
        forked = self._run(steps.fork(self.task_id, before, reason), "fork", repeatable=False)
        return Handle(forked, created=True, home=self._home)

    @missed_in_handlers("handle.afork")
    async def afork(self, before: str | None = None, *, reason: str | None = None) -> "Handle[R_co]":
        forked = await self._arun(steps.fork(self.task_id, before, reason), repeatable=False)
        return Handle(forked, created=True, home=self._home)

    def wait_url(self, ttl: float | timedelta = WAIT_TTL) -> str:
        """A URL at which a front end can wait for this task and no other, until the ttl is over."""
        settings = self._home.settings
        ticket = issue(settings.web_secrets, self.task_id, check_duration("ttl", ttl), time.time())
        return wait_url(settings.web_url, self.task_id, ticket)

    def _run(self, statement: Statement[T], method: str, *, repeatable: bool = True) -> T:
        return self._home.connect().run(statement, method, repeatable=repeatable)

    async def _arun(self, statement: Statement[T], *, repeatable: bool = True) -> T:
        return await self._home.connect().arun(statement, repeatable=repeatable)

    def _signal(self, name: str, payload: Any, key: str | None) -> Statement[SignalAnswer]:
        return steps.signal(self.task_id, name, encode_signal(payload), key)

    def _reschedule(self, run_at: datetime | None, delay: float | timedelta | None) -> Statement[Status]:
        if (run_at is None) == (delay is None):
            raise InvalidArgument(
                "give run_at or delay" if run_at is None else "give run_at or delay, not both"
            )
        after = None if delay is None else check_duration("delay", delay)
        return tasks.reschedule(self.task_id, run_at, delay=after)

    def _found(self, task: TaskStatus | None) -> TaskStatus:
        if task is None:
            raise not_found(self.task_id)
        return task

    def _loaded(self, end: TaskSnapshot) -> Any:
        handler = self._home.handlers.get(end.type)
        return handler.result.load(end.result_json) if handler else load_json(end.result_json)


def handle_of(task_id: UUID | str, home: Home) -> Handle[Any]:
    """The handle of a task that was enqueued before."""
    try:
        return Handle(UUID(str(task_id)), created=None, home=home)
    except ValueError:
        raise InvalidArgument(f"task_id {task_id!r} is not a UUID") from None


def _info(task: TaskStatus, errors: list[TaskError]) -> TaskInfo:
    return TaskInfo(
        task_id=task.task_id,
        type=task.type,
        queue=task.queue,
        status=task.status,
        priority=task.priority,
        attempt=task.attempt,
        max_attempts=task.max_attempts,
        generation=task.generation,
        progress=task.progress,
        errors=_attempt_errors(errors),
        reason=task.reason,
        worker_id=task.worker_id,
        key=task.idempotency_key,
        metadata=task.metadata or {},
        created_at=task.created_at,
        run_at=task.run_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        updated_at=task.updated_at,
    )


def _failed(end: TaskSnapshot, errors: list[TaskError]) -> TaskFailed:
    attempts = _attempt_errors([error for error in errors if error.step is None])
    tried = f" after {len(attempts)} attempts" if len(attempts) > 1 else ""
    last = attempts[-1].message if attempts else end.reason
    return TaskFailed(
        f"task {end.task_id} of type {end.type} failed{tried}{_because(last)}",
        task_id=end.task_id,
        status=end.status,
        errors=attempts,
    )


def _attempt_errors(errors: list[TaskError]) -> tuple[AttemptError, ...]:
    return tuple(
        AttemptError(
            error.attempt, error.kind, error.message, _traceback(error.detail), error.step, error.step_try
        )
        for error in errors
    )


def _traceback(detail: Any) -> str | None:
    found = detail.get("traceback") if isinstance(detail, dict) else None
    return found if isinstance(found, str) else None


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
