"""A function that can be called later, elsewhere: what `@app.task` makes of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Generic, ParamSpec
from uuid import UUID

from typing_extensions import TypeVar

from holdfast.client import Progress, with_trace
from holdfast.client.span import seconds
from holdfast.engine.documents import RawJson
from holdfast.engine.enqueue import Enqueued, NewTask
from holdfast.errors import InvalidArgument
from holdfast.handle import Handle, Home, check_moment
from holdfast.handler import Handler

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any], default=Callable[..., Any])

_OPTIONS = frozenset(
    ("key", "run_at", "delay", "priority", "queue", "max_attempts", "timeout", "metadata", "concurrency_key")
)


class Task(Generic[P, R, F]):
    """Called directly it is the function itself; `enqueue` and its relatives ask a worker to call it.

    The options of enqueue cannot be typed together with the function's own parameters, so those are checked
    when it is called.
    """

    def __init__(self, home: Home, handler: Handler, function: F) -> None:
        self.handler = handler
        self._home = home
        self._function = function
        # Said aloud where the payload may hold a task_type, by which the engine would choose one.
        says = handler.executor != "python" or handler.may_have("task_type")
        self.executor = handler.executor if says else None
        self.lease = None if handler.lease is None else timedelta(seconds=handler.lease)
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Task {self.type}>"

    @property
    def type(self) -> str:
        return self.handler.type

    @property
    def __call__(self) -> F:
        return self._function

    def call(
        self,
        *args: Any,
        key: str | None = None,
        run_at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        metadata: Mapping[str, Any] | None = None,
        concurrency_key: str | None = None,
        **kwargs: Any,
    ) -> NewTask:
        """The task that `enqueue` would enqueue, for `enqueue_many` of the app."""
        handler = self.handler
        return NewTask(
            type=handler.type,
            payload=RawJson(handler.check(args, kwargs)),
            queue=queue or handler.queue,
            priority=(handler.priority or None) if priority is None else priority,
            run_at=run_at,
            idempotency_key=key,
            max_attempts=handler.max_attempts if max_attempts is None else max_attempts,
            timeout=None if timeout is None else seconds("timeout", timeout),
            lease=self.lease,
            executor=self.executor,
            metadata=with_trace(metadata),
            delay=check_moment(run_at, delay),
            concurrency_key=concurrency_key,
            reuse=handler.reuse,
        )

    def enqueue(
        self,
        *args: Any,
        key: str | None = None,
        run_at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        metadata: Mapping[str, Any] | None = None,
        concurrency_key: str | None = None,
        tx: Any = None,
        **kwargs: Any,
    ) -> Handle[R]:
        """Ask for it to be run: in the transaction `tx`, or at once on a connection of our own."""
        task = self.call(
            *args,
            key=key,
            run_at=run_at,
            delay=delay,
            priority=priority,
            queue=queue,
            max_attempts=max_attempts,
            timeout=timeout,
            metadata=metadata,
            concurrency_key=concurrency_key,
            **kwargs,
        )
        return self._handle(self._home.connect().enqueue(task, tx))

    async def aenqueue(
        self,
        *args: Any,
        key: str | None = None,
        run_at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the task, not of this call
        metadata: Mapping[str, Any] | None = None,
        concurrency_key: str | None = None,
        tx: Any = None,
        **kwargs: Any,
    ) -> Handle[R]:
        """The same in an event loop. Calls that come while one is under way go together in the next."""
        task = self.call(
            *args,
            key=key,
            run_at=run_at,
            delay=delay,
            priority=priority,
            queue=queue,
            max_attempts=max_attempts,
            timeout=timeout,
            metadata=metadata,
            concurrency_key=concurrency_key,
            **kwargs,
        )
        return self._handle(await self._home.connect().aenqueue(task, tx))

    def enqueue_many(
        self,
        calls: Iterable[Mapping[str, Any] | tuple[Any, ...]],
        *,
        tx: Any = None,
        progress: Progress | None = None,
    ) -> list[Handle[R]]:
        """All or nothing. Each is a tuple of arguments, or a dict of arguments and options of `enqueue`."""
        return self._handles(self._home.connect().enqueue_many(_Calls(self, calls), tx, progress))

    async def aenqueue_many(
        self,
        calls: Iterable[Mapping[str, Any] | tuple[Any, ...]],
        *,
        tx: Any = None,
        progress: Progress | None = None,
    ) -> list[Handle[R]]:
        return self._handles(await self._home.connect().aenqueue_many(_Calls(self, calls), tx, progress))

    def handle(self, task_id: UUID | str) -> Handle[R]:
        """The handle of a task of this type that was enqueued before."""
        return Handle(UUID(str(task_id)), created=None, home=self._home)

    def _handle(self, enqueued: Enqueued) -> Handle[R]:
        return Handle(enqueued.task_id, created=enqueued.created, home=self._home)

    def _handles(self, enqueued: Iterable[Enqueued]) -> list[Handle[R]]:
        home = self._home
        return [Handle(one.task_id, created=one.created, home=home) for one in enqueued]


class _Calls:
    """Calls of one task, each checked when it is asked for: the server works on the first ones meanwhile."""

    def __init__(
        self, task: "Task[..., Any, Any]", calls: Iterable[Mapping[str, Any] | tuple[Any, ...]]
    ) -> None:
        self._task = task
        self._calls = list(calls)
        # Calls that give arguments only, as most do, differ in their payload only.
        self._arguments = frozenset(task.handler.arguments.names) - _OPTIONS

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[NewTask]:
        return (self._one(place, given) for place, given in enumerate(self._calls))

    def _one(self, place: int, given: object) -> NewTask:
        try:
            if isinstance(given, Mapping):
                return self._plain(given) if given.keys() <= self._arguments else self._task.call(**given)
            if isinstance(given, tuple):
                return self._task.call(*given)
        except InvalidArgument as error:
            raise type(error)(f"calls[{place}]: {error.message}", hint=error.hint) from None
        raise InvalidArgument(f"calls[{place}] is {given!r}: give a dict or a tuple of arguments")

    def _plain(self, arguments: Mapping[str, Any]) -> NewTask:
        handler = self._task.handler
        return NewTask(
            handler.type,
            RawJson(handler.check((), arguments)),
            queue=handler.queue,
            priority=handler.priority or None,
            max_attempts=handler.max_attempts,
            lease=self._task.lease,
            executor=self._task.executor,
            metadata=with_trace(None),
        )
