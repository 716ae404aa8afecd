"""Tasks: functions that `@app.task` has registered, and that workers run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Unpack, overload
from uuid import UUID

from typing_extensions import TypeVar

from holdfast._connections.client import Progress
from holdfast._engine import steps
from holdfast._engine.enqueue import Enqueued, NewTask, enqueue_one
from holdfast._engine.steps import Sent, sent
from holdfast._serialization.codec import ResultCodec, encode_signal
from holdfast._serialization.text import RawJson
from holdfast._telemetry import tracing
from holdfast._worker.handler import Handler
from holdfast._workflows.calls import missed_in_handlers
from holdfast.batch import Batch
from holdfast.errors import InvalidArgument
from holdfast.handle import Handle, Home, handle_of
from holdfast.options import Options, check_options, is_arranged

if TYPE_CHECKING:
    from holdfast.context import Context, SyncContext

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any], default=Callable[..., Any])

Call = Mapping[str, Any] | tuple[Any, ...] | NewTask
"""The arguments of one task of a batch, by name or in order; or a task made by `build`."""


class BuiltTask(NewTask):
    """Made by `build`: also knows how to read its result, and whose handles it has."""

    __slots__ = ("home", "result")
    home: Home
    result: ResultCodec

    @classmethod
    def of(cls, task: NewTask, home: Home, result: ResultCodec) -> BuiltTask:
        built = cls.__new__(cls)
        built.type, built.payload, built.options, built.reuse = (
            task.type,
            task.payload,
            task.options,
            task.reuse,
        )
        built.home = home
        built.result = result
        return built

    def handle(self, task_id: UUID | str) -> Handle[Any]:
        return handle_of(task_id, self.home)


class BoundTask(Generic[P, R]):
    """A task with options, returned by `Task.using`. It can be stored and used any number of times."""

    def __init__(self, home: Home, handler: Handler, given: Options) -> None:
        self.handler = handler
        self._home = home
        self._given = given
        self._tx = given.get("tx")
        # One mapping for all tasks that are enqueued with it: batches recognise it, and write it once.
        self._options: Mapping[str, Any] = {**handler.defaults, **check_options(given)}
        self._is_arranged = is_arranged(self._options)

    def __repr__(self) -> str:
        return f"<Task {self.type} using {', '.join(self._given)}>"

    @property
    def type(self) -> str:
        return self.handler.type

    def using(self, **options: Unpack[Options]) -> BoundTask[P, R]:
        """The same task with these options. An option that was given before is replaced."""
        return BoundTask(self._home, self.handler, {**self._given, **options} if self._given else options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue one task: in the caller's transaction if `tx` is given, otherwise at once."""
        client = self._home.connect()
        with self._span():
            task = self._new_task(args, kwargs)
            if self._is_arranged:
                return self._handle(client.run_in(self._tx, enqueue_one(task), "enqueue"))
            return self._handle(client.enqueue(task, self._tx))

    @missed_in_handlers("task.aenqueue")
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue one task from an event loop. Concurrent calls share round trips."""
        client = self._home.connect()
        with self._span():
            task = self._new_task(args, kwargs)
            if self._is_arranged:
                return self._handle(await client.arun_in(self._tx, enqueue_one(task), "enqueue"))
            return self._handle(await client.aenqueue(task, self._tx))

    def enqueue_many(self, calls: Iterable[Call], *, progress: Progress | None = None) -> list[Handle[R]]:
        """Enqueue a task for each call, all or nothing.

        A call is a dict or a tuple of arguments. For arguments that type checkers see, and for options of
        single tasks, make it with `build`: `task.using(key=f"invoice-{n}").build(n)`.
        """
        batch = _Batch(self, calls)
        with self._span(len(batch)):
            return self._handles(self._home.connect().enqueue_many(batch, self._tx, progress))

    @missed_in_handlers("task.aenqueue_many")
    async def aenqueue_many(
        self, calls: Iterable[Call], *, progress: Progress | None = None
    ) -> list[Handle[R]]:
        """Enqueue a task for each call, all or nothing, from an event loop."""
        batch = _Batch(self, calls)
        with self._span(len(batch)):
            return self._handles(await self._home.connect().aenqueue_many(batch, self._tx, progress))

    def build(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """The task that `enqueue` would enqueue, for a batch. The batch decides on the transaction."""
        if self._tx is not None:
            raise InvalidArgument(
                "a task of a batch has no tx of its own",
                hint="Give tx to the batch: using(tx=…).enqueue_many.",
            )
        task = self._new_task(args, kwargs)
        return BuiltTask.of(task, self._home, self.handler.result)

    def handle(self, task_id: UUID | str) -> Handle[R]:
        """The handle of a task of this type that was enqueued before."""
        return handle_of(task_id, self._home)

    def _new_task(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewTask:
        handler = self.handler
        payload = RawJson(handler.arguments.check(args, kwargs))
        return NewTask.with_checked(handler.type, payload, self._traced_options(), handler.reuse)

    def _traced_options(self) -> Mapping[str, Any]:
        """The options with the caller's trace in their metadata; the same object where there is no trace."""
        if tracing.API not in sys.modules:
            return self._options
        metadata = self._options.get("metadata")
        traced = tracing.with_trace(metadata)
        return self._options if traced is metadata else {**self._options, "metadata": traced}

    def _span(self, tasks: int = 1) -> AbstractContextManager[Any]:
        if tracing.API not in sys.modules:
            return tracing.OFF
        return tracing.enqueueing(self.type, self._options.get("queue"), tasks)

    def _handle(self, enqueued: Enqueued) -> Handle[R]:
        if tracing.API in sys.modules:
            tracing.enqueued(enqueued.task_id)
        return Handle(enqueued.task_id, created=enqueued.created, home=self._home)

    def _handles(self, enqueued: Iterable[Enqueued]) -> Batch[R]:
        home = self._home
        return Batch((Handle(one.task_id, created=one.created, home=home) for one in enqueued), home)


class Task(BoundTask[P, R], Generic[P, R, F]):
    """A registered function. Calling it runs the function here; `enqueue` asks a worker to run it."""

    def __init__(self, home: Home, handler: Handler, function: F) -> None:
        super().__init__(home, handler, {})
        self._function = function
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Task {self.type}>"

    @property
    def __call__(self) -> F:
        return self._function

    def signal(
        self, key_of_run: str, name: str, payload: Any = None, *, key: str | None = None, tx: Any = None
    ) -> Sent:
        """Send a signal to the run that was enqueued with this key, as `Handle.signal` does."""
        statement = steps.signal_key(self.type, key_of_run, name, encode_signal(payload), key)
        return sent(self._home.connect().run_in(tx, statement, "signal", repeatable=key is not None), name)

    @missed_in_handlers("task.asignal")
    async def asignal(
        self, key_of_run: str, name: str, payload: Any = None, *, key: str | None = None, tx: Any = None
    ) -> Sent:
        statement = steps.signal_key(self.type, key_of_run, name, encode_signal(payload), key)
        answer = await self._home.connect().arun_in(tx, statement, "signal", repeatable=key is not None)
        return sent(answer, name)


class _Batch:
    """The calls of a batch. Each is checked when it is needed, while the server works on earlier ones."""

    def __init__(self, task: BoundTask[..., Any], calls: Iterable[Call]) -> None:
        self._task = task
        self._calls = list(calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[NewTask]:
        handler = self._task.handler
        options = self._task._traced_options()  # noqa: SLF001 - a part of BoundTask
        for position, given in enumerate(self._calls):
            if isinstance(given, NewTask):
                yield self._checked(position, given)
            else:
                payload = RawJson(_payload(handler, position, given))
                yield NewTask.with_checked(handler.type, payload, options, None)

    def _checked(self, position: int, given: NewTask) -> NewTask:
        if given.type != self._task.type:
            raise InvalidArgument(
                f"calls[{position}] is a task of type {given.type}, not {self._task.type}",
                hint="Enqueue tasks of different types with app.enqueue_many.",
            )
        if self._task._given.keys() - {"tx"}:  # noqa: SLF001 - a part of BoundTask
            raise InvalidArgument(
                f"calls[{position}] was built with its own options, and the batch has options, too",
                hint="Give all options to using(…).build(…), and only tx to the batch.",
            )
        return given


def _payload(handler: Handler, position: int, given: object) -> str:
    try:
        if isinstance(given, Mapping):
            return handler.arguments.check((), given)
        if isinstance(given, tuple):
            return handler.arguments.check(given, {})
    except InvalidArgument as error:
        raise type(error)(f"calls[{position}]: {error.message}", hint=error.hint) from None
    raise InvalidArgument(f"calls[{position}] is {given!r}; expected a dict or a tuple of arguments")


class _Unannotated:
    """Stands for any type: only a parameter without an annotation, or of Any or object, accepts it."""


class Decorator(Protocol):
    """Returned by `App.task`: tells type checkers the arguments of `enqueue` and the type of the result.

    The context is not an argument of `enqueue`. The first two overloads are for functions whose first
    parameter could be a context or an argument: their arguments are checked at run time only.
    """

    @overload
    def __call__(
        self, function: Callable[Concatenate[_Unannotated, P], Coroutine[Any, Any, R]], /
    ) -> Task[..., R, Callable[..., Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[_Unannotated, P], R], /
    ) -> Task[..., R, Callable[..., R]]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # a narrower case of those below
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[SyncContext, P], R], /
    ) -> Task[P, R, Callable[Concatenate[SyncContext, P], R]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Callable[P, Coroutine[Any, Any, R]]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, Callable[P, R]]: ...


class BatchDecorator(Protocol):
    """The same for a handler that takes many tasks at once: `enqueue` takes one item of its list."""

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /
    ) -> Task[[T], None, Callable[[list[T]], Coroutine[Any, Any, None]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R]]], /
    ) -> Task[[T], R, Callable[[list[T]], Coroutine[Any, Any, Sequence[R]]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], None], /
    ) -> Task[[T], None, Callable[[list[T]], None]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Sequence[R]], /
    ) -> Task[[T], R, Callable[[list[T]], Sequence[R]]]: ...
