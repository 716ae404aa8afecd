"""A task that was enqueued: where it stands, its result, and what may still be done to it."""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from holdfast.client import Client
from holdfast.client.span import WAIT_TTL, seconds
from holdfast.client.wait_ticket import issue, wait_url
from holdfast.engine import tasks
from holdfast.engine.documents import load_json
from holdfast.engine.tasks import Status, TaskError, TaskSnapshot, TaskStatus
from holdfast.errors import AttemptError, InvalidArgument, TaskCancelled, TaskFailed, TaskNotFound
from holdfast.handler import Handler
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


class Handle(Generic[R_co]):
    """Holds no connection, and may be made anew from its task_id by `app.handle`."""

    __slots__ = ("_home", "created", "task_id")

    def __init__(self, task_id: UUID, *, created: bool | None, home: Home) -> None:
        self.task_id = task_id
        self.created = created
        """False if the key already stood for this task, None if nobody asked."""
        self._home = home

    def __repr__(self) -> str:
        return f"<Handle of task {self.task_id}>"

    def status(self) -> Status:
        return self._found(
            self._home.connect().run(lambda engine: engine.run(tasks.task_status(self.task_id)))
        )

    async def astatus(self) -> Status:
        return self._found(
            await self._home.connect().arun(lambda engine: engine.run(tasks.task_status(self.task_id)))
        )

    # Outcomes that a handler is annotated with, besides its result, are not what anybody waits for.
    def result(self: "Handle[T | Outcome]", timeout: float | None = None) -> T:
        """Wait for the end. Raises TaskFailed, TaskCancelled, or TimeoutError after so many seconds."""
        return self._home.connect().run_async(self.aresult(timeout))

    async def aresult(
        self: "Handle[T | Outcome]",
        timeout: float | None = None,  # noqa: ASYNC109 - also for those who have no loop
    ) -> T:
        client = self._home.connect()
        end = await client.await_end(self.task_id, timeout)
        if end.status == "succeeded":
            result: T = self._loaded(end)
            return result
        if end.status == "cancelled":
            raise TaskCancelled(
                f"task {self.task_id} of type {end.type} was cancelled{_because(end.reason)}",
                task_id=self.task_id,
                status=end.status,
            )
        raise _failed(end, await client.arun(lambda engine: engine.run(tasks.task_errors(self.task_id))))

    def cancel(self, reason: str | None = None) -> Status:
        """Answers the status it led to: cancelled, or how the task had already ended."""
        return self._home.connect().run(lambda engine: engine.run(tasks.cancel(self.task_id, reason)))

    async def acancel(self, reason: str | None = None) -> Status:
        return await self._home.connect().arun(lambda engine: engine.run(tasks.cancel(self.task_id, reason)))

    def reschedule(self, run_at: datetime | None = None, *, delay: float | timedelta | None = None) -> Status:
        """Move a waiting task; one that does not wait is left as it is."""
        after = check_moment(run_at, delay, needed=True)
        return self._home.connect().run(
            lambda engine: engine.run(tasks.reschedule(self.task_id, run_at, delay=after))
        )

    async def areschedule(
        self, run_at: datetime | None = None, *, delay: float | timedelta | None = None
    ) -> Status:
        after = check_moment(run_at, delay, needed=True)
        return await self._home.connect().arun(
            lambda engine: engine.run(tasks.reschedule(self.task_id, run_at, delay=after))
        )

    def wait_url(self, ttl: float | timedelta = WAIT_TTL) -> str:
        """An address at which a front end may wait for this task, and for no other, until the ttl is over."""
        settings = self._home.settings
        ticket = issue(settings.web_secrets, self.task_id, seconds("ttl", ttl), time.time())
        return wait_url(settings.web_url, self.task_id, ticket)

    def _found(self, task: TaskStatus | None) -> Status:
        if task is None:
            raise TaskNotFound(
                f"there is no task {self.task_id}",
                hint="If it was enqueued in a transaction, commit that first.",
            )
        return task.status

    def _loaded(self, end: TaskSnapshot) -> Any:
        handler = self._home.handlers.get(end.type)
        return handler.load_result(end.result_json) if handler else load_json(end.result_json)


def check_moment(
    run_at: datetime | None, delay: float | timedelta | None, *, needed: bool = False
) -> timedelta | None:
    """A delay as a timedelta; refuses both at once, and a time before now that was meant as a delay."""
    if run_at is not None and delay is not None:
        raise InvalidArgument("give run_at or delay, not both")
    if delay is None:
        if needed and run_at is None:
            raise InvalidArgument("give run_at or delay")
        return None
    return seconds("delay", delay)


def _failed(end: TaskSnapshot, errors: list[TaskError]) -> TaskFailed:
    attempts = tuple(
        AttemptError(error.attempt, error.kind, error.message, _traceback(error.detail)) for error in errors
    )
    tried = f" after {len(attempts)} attempts" if len(attempts) > 1 else ""
    last = attempts[-1].message if attempts else end.reason
    return TaskFailed(
        f"task {end.task_id} of type {end.type} failed{tried}{_because(last)}",
        task_id=end.task_id,
        status=end.status,
        errors=attempts,
    )


def _traceback(detail: Any) -> str | None:
    found = detail.get("traceback") if isinstance(detail, dict) else None
    return found if isinstance(found, str) else None


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
