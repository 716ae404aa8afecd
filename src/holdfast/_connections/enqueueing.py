"""Enqueueing in few round trips: batches of bounded size, and one batch for concurrent callers."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from holdfast._connections.acknowledged import (
    About,
    AcknowledgedBatches,
    Failure,
    in_batches,
    own_copy,
    what_is_wrong,
)
from holdfast._engine.enqueue import Enqueued, NewTask, enqueue_many, enqueue_one
from holdfast._engine.statement import Statement
from holdfast._serialization.text import RawJson
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    PartialBatchError,
    RequestRefused,
    TransactionConflict,
    UnexpectedDatabaseError,
)
from holdfast.options import is_arranged

MAX_TASKS = 10_000
MAX_TASKS_AHEAD = 500
"""For statements that are sent ahead: few enough that one is built while the server works on another."""
MAX_CHARACTERS = 32 * 1024 * 1024
MAX_TASKS_TOGETHER = 1000
"""Of concurrent callers: enough to make the round trip cheap, few enough to bound latency."""
LOCK_MILLISECONDS = 100
"""How long a statement that several callers share waits for the transaction of one key."""


class Tasks(Protocol):
    """The tasks of a batch. They may be built while they are iterated, and again each time."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[NewTask]: ...


Progress = Callable[[int, int], object]
"""Called after each round trip with the number of tasks enqueued so far, and of all tasks."""
RunBatch = Callable[[Statement[list[Enqueued]]], list[Enqueued]]
ARunBatch = Callable[[Statement[list[Enqueued]]], Awaitable[list[Enqueued]]]


def batches(tasks: Iterable[NewTask], max_tasks: int = MAX_TASKS) -> Iterator[list[NewTask]]:
    """The tasks in lists that one statement can carry."""
    return in_batches(tasks, _size, max_tasks, MAX_CHARACTERS)


def _size(task: NewTask) -> int:
    return len(task.payload) if isinstance(task.payload, RawJson) else 0


def statements(tasks: Tasks) -> Iterator[Statement[list[Enqueued]]]:
    """The statements of a batch that is sent ahead, each built when it is needed."""
    return map(enqueue_many, batches(tasks, MAX_TASKS_AHEAD))


def one_or_many(tasks: Sequence[NewTask]) -> Statement[list[Enqueued]]:
    """The shortest statement for tasks of concurrent callers."""
    if len(tasks) > 1:
        return enqueue_many(tasks)
    alone = enqueue_one(tasks[0])
    return Statement(alone.sql, alone.params, lambda rows: [alone.decode(rows)])


def may_wait(task: NewTask) -> bool:
    """Whether an open transaction can hold up its statement. Tasks without a key lock nothing that exists."""
    return task.idempotency_key is not None or is_arranged(task.options)


def is_repeatable(tasks: Iterable[NewTask]) -> bool:
    """Whether enqueueing again is harmless: every task has an idempotency key.

    The key of a unique or debounced task is none: it is free again when that task has begun or ended.
    """
    return all(task.idempotency_key is not None and not is_arranged(task.options) for task in tasks)


class EnqueueCounter:
    """Counts the tasks that were enqueued, and reports progress."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done = 0
        self._total = total
        self._progress = progress

    def __call__(self, enqueued: list[Enqueued]) -> list[Enqueued]:
        self.done += len(enqueued)
        if self._progress is not None:
            self._progress(self.done, self._total)
        return enqueued

    def placed(self, error: RequestRefused) -> RequestRefused:
        """The error with the position in the whole batch; the statement counts from its own first task."""
        return _placed(error, self.done)

    def told(self, error: HoldfastError, *, on_front: bool) -> HoldfastError:
        """The error of a statement as the caller of the whole batch gets it."""
        if on_front:
            return self._partly(error)
        return self.placed(error) if isinstance(error, RequestRefused) else error

    def _partly(self, error: HoldfastError) -> HoldfastError:
        """The same on a front, where the statements before this one have been written."""
        if isinstance(error, PartialBatchError):
            written = tuple((place + self.done, task_id, new) for place, task_id, new in error.enqueued)
            cause = error.cause
        elif self.done:
            written, cause = (), error
        else:
            return error
        before = f"the first {self.done} tasks were enqueued, and then: " if self.done else ""
        hint = "Tasks with a key can be enqueued again: those that exist are returned."
        return PartialBatchError(
            f"{before}{_moved(error.message, self.done)}",
            hint=hint,
            sqlstate="QF207",
            enqueued=written,
            cause=cause,
        )


def _placed(error: RequestRefused, first: int) -> RequestRefused:
    return type(error)(_moved(error.message, first), hint=error.hint, sqlstate=error.sqlstate)


def _moved(message: str, first: int) -> str:
    return re.sub(r"\btasks\[(\d+)\]", lambda position: f"tasks[{int(position[1]) + first}]", message)


def checked(tasks: Iterable[NewTask], max_tasks: int) -> Iterator[Statement[list[Enqueued]]]:
    """The statements of a batch that are all built before the first is sent: every task is valid then."""
    first = 0
    for batch in batches(tasks, max_tasks):
        try:
            statement = enqueue_many(batch)
        except RequestRefused as error:
            raise _placed(error, first) from None
        yield statement
        first += len(batch)


async def achecked(tasks: Iterable[NewTask]) -> list[Statement[list[Enqueued]]]:
    """The same in an event loop, which does other things between them."""
    built: list[Statement[list[Enqueued]]] = []
    for statement in checked(tasks, MAX_TASKS_AHEAD):
        built.append(statement)
        await asyncio.sleep(0)
    return built


def send_checked(
    tasks: Iterable[NewTask], run: RunBatch, count: EnqueueCounter, *, on_front: bool = False
) -> list[Enqueued]:
    """For a transaction that others have begun, or for a front, on which each statement commits by itself."""
    enqueued: list[Enqueued] = []
    for statement in list(checked(tasks, MAX_TASKS_AHEAD if on_front else MAX_TASKS)):
        try:
            enqueued += count(run(statement))
        except HoldfastError as error:
            raise count.told(error, on_front=on_front) from error.__cause__
    return enqueued


async def asend_checked(
    tasks: Iterable[NewTask], run: ARunBatch, count: EnqueueCounter, *, on_front: bool = False
) -> list[Enqueued]:
    enqueued: list[Enqueued] = []
    for statement in await achecked(tasks):
        try:
            enqueued += count(await run(statement))
        except HoldfastError as error:
            raise count.told(error, on_front=on_front) from error.__cause__
    return enqueued


Send = Callable[[list[NewTask]], Awaitable[list[Enqueued]]]
Waiting = tuple[NewTask, asyncio.Future[Enqueued]]


class EnqueueBatcher:
    """Lets the concurrent callers of one event loop share round trips.

    With `send_alone`, `send` gives up soon where it has to wait for another transaction. Its tasks are then
    sent one by one, and `send_alone` waits for the one that has to, while the others go on.
    """

    def __init__(self, send: Send, send_alone: Send | None = None) -> None:
        self._send_together = send
        self._send_alone = send_alone
        self._batches: AcknowledgedBatches[Waiting, Enqueued] = AcknowledgedBatches(
            self._send,
            answered=_answered,
            failed=self._failed,
            size_of=lambda waiting: _size(waiting[0]),
            most=MAX_TASKS_TOGETHER,
            largest=MAX_CHARACTERS,
        )
        self._sender: asyncio.Task[None] | None = None
        self._aside: set[asyncio.Task[None]] = set()
        self._one_by_one = asyncio.Lock()

    async def enqueue(self, task: NewTask) -> Enqueued:
        answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._batches.add((task, answer))
        if self._sender is None:
            # A task of its own: the caller that came first may be cancelled while the others still wait.
            self._sender = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._batches.has_more:
                await self._send_wanted(self._batches.take())
        finally:
            self._sender = None
            while self._batches.has_more:
                _cancel(self._batches.take())

    async def _send_wanted(self, batch: list[Waiting]) -> None:
        try:
            await self._batches.send([(task, answer) for task, answer in batch if not answer.done()])
        except BaseException:
            _cancel(batch)
            raise

    async def _send(self, batch: list[Waiting]) -> list[Enqueued]:
        return await _sent(self._send_together, batch)

    async def _failed(self, failure: Failure[Waiting]) -> list[list[Waiting]]:
        """Nothing is repeated that may have been written. An error that is about no task is told to all."""
        batch, error = failure.items, failure.error
        if isinstance(error, DatabaseUnavailable):
            return _settle_unknown(batch, error)
        if isinstance(error, PartialBatchError):
            return await self._settle_parts(failure, error)
        if isinstance(error, TransactionConflict):
            return self._settle_conflict(failure)
        if len(batch) > 1 and what_is_wrong(error) is About.ITEM:
            return failure.halves
        _raise_in(batch, error)
        return []

    def _settle_conflict(self, failure: Failure[Waiting]) -> list[list[Waiting]]:
        """It is tried once more, if possible without the tasks that have none."""
        batch = failure.items
        if self._send_alone is None:
            if failure.tries == 1:
                return [batch]
            _raise_in(batch, failure.error)
        else:
            self._set_aside(
                self._send_each(batch) if len(batch) > 1 else self._wait_for(self._send_alone, batch)
            )
        return []

    async def _send_each(self, batch: list[Waiting]) -> None:
        try:
            async with self._one_by_one:
                for waiting in batch:
                    await self._send_wanted([waiting])
        except BaseException:
            _cancel(batch)
            raise

    async def _wait_for(self, send: Send, alone: list[Waiting]) -> None:
        try:
            [enqueued] = await _sent(send, alone)
        except HoldfastError as error:
            _raise_in(alone, error)
        except BaseException:
            _cancel(alone)
            raise
        else:
            _answered(alone[0], enqueued)

    def _set_aside(self, work: Coroutine[Any, Any, None]) -> None:
        """The sender goes on with the tasks of others."""
        aside = asyncio.create_task(work)
        self._aside.add(aside)
        aside.add_done_callback(self._aside.discard)

    async def _settle_parts(self, failure: Failure[Waiting], error: PartialBatchError) -> list[list[Waiting]]:
        """Answer what some shards have written, and send the rest again."""
        written = {place: Enqueued(task_id, created) for place, task_id, created in error.enqueued}
        for place, one in written.items():
            _answered(failure.items[place], one)
        rest = [waiting for place, waiting in enumerate(failure.items) if place not in written]
        cause = error.cause
        if not written and not isinstance(cause, DatabaseUnavailable):
            cause = DatabaseUnavailable(error.message)
        if cause is not None:
            return await self._failed(replace(failure, items=rest, error=cause))
        _raise_in(rest, error)
        return []


async def _sent(send: Send, batch: list[Waiting]) -> list[Enqueued]:
    try:
        return await send([task for task, _ in batch])
    except HoldfastError:
        raise
    except Exception as error:
        raise UnexpectedDatabaseError(f"the task could not be enqueued: {error!r}") from error


def _settle_unknown(batch: list[Waiting], error: DatabaseUnavailable) -> list[list[Waiting]]:
    """It is not known whether the tasks were written: only those with a key are sent again."""
    keyed = [waiting for waiting in batch if waiting[0].idempotency_key]
    if len(keyed) == len(batch):  # the pool has sent them twice
        _raise_in(batch, error)
        return []
    _raise_in([waiting for waiting in batch if not waiting[0].idempotency_key], error)
    return [keyed]


def _answered(waiting: Waiting, enqueued: Enqueued) -> None:
    if not waiting[1].done():
        waiting[1].set_result(enqueued)


def _raise_in(batch: list[Waiting], error: HoldfastError) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(own_copy(error))


def _cancel(batch: list[Waiting]) -> None:
    for _, answer in batch:
        answer.cancel()
