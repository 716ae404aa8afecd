"""Enqueueing in few round trips: batches of bounded size, and one batch for concurrent callers."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

from holdfast.engine.enqueue import Enqueued, NewTask, enqueue_many, enqueue_one
from holdfast.engine.statement import Statement
from holdfast.errors import DatabaseUnavailable, HoldfastError, PartlyEnqueued, Refused
from holdfast.options import is_arranged
from holdfast.serialization.text import RawJson

MAX_TASKS = 10_000
MAX_TASKS_AHEAD = 500
"""For statements that are sent ahead: few enough that one is built while the server works on another."""
MAX_CHARACTERS = 32 * 1024 * 1024
MAX_TASKS_TOGETHER = 1000
"""Of concurrent callers: enough to make the round trip cheap, few enough to bound latency."""


class Tasks(Protocol):
    """The tasks of a batch. They may be built while they are iterated, and again each time."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[NewTask]: ...


Progress = Callable[[int, int], object]
"""Called after each round trip with the number of tasks enqueued so far, and of all tasks."""


def batches(tasks: Iterable[NewTask], max_tasks: int = MAX_TASKS) -> Iterator[list[NewTask]]:
    """The tasks in lists that one statement can carry."""
    batch: list[NewTask] = []
    characters = 0
    for task in tasks:
        length = len(task.payload) if isinstance(task.payload, RawJson) else 0
        if len(batch) == max_tasks or (batch and characters + length > MAX_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(task)
        characters += length
    if batch:
        yield batch


def statements(tasks: Tasks) -> Iterator[Statement[list[Enqueued]]]:
    """The statements of a batch that is sent ahead, each built when it is needed."""
    return map(enqueue_many, batches(tasks, MAX_TASKS_AHEAD))


def checked_statements(tasks: Tasks) -> list[Statement[list[Enqueued]]]:
    """The same for a caller's transaction: nothing is sent before every task is known to be valid."""
    return [enqueue_many(batch) for batch in batches(list(tasks))]


def one_or_many(tasks: Sequence[NewTask]) -> Statement[list[Enqueued]]:
    """The shortest statement for tasks of concurrent callers."""
    if len(tasks) > 1:
        return enqueue_many(tasks)
    alone = enqueue_one(tasks[0])
    return Statement(alone.sql, alone.params, lambda rows: [alone.decode(rows)])


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

    def placed(self, error: Refused) -> Refused:
        """The error with the position in the whole batch; the statement counts from its own first task."""
        return type(error)(self._moved(error.message), hint=error.hint, sqlstate=error.sqlstate)

    def partly(self, error: HoldfastError) -> HoldfastError:
        """The same on a front, where the statements before this one have been written."""
        if isinstance(error, PartlyEnqueued):
            written = tuple((place + self.done, task_id, new) for place, task_id, new in error.enqueued)
            cause = error.cause
        elif self.done:
            written, cause = (), error
        else:
            return error
        before = f"the first {self.done} tasks were enqueued, and then: " if self.done else ""
        hint = "Tasks with a key can be enqueued again: those that exist are returned."
        return PartlyEnqueued(
            f"{before}{self._moved(error.message)}",
            hint=hint,
            sqlstate="QF207",
            enqueued=written,
            cause=cause,
        )

    def _moved(self, message: str) -> str:
        return re.sub(r"\btasks\[(\d+)\]", lambda position: f"tasks[{int(position[1]) + self.done}]", message)


Send = Callable[[list[NewTask]], Awaitable[list[Enqueued]]]
Waiting = tuple[NewTask, asyncio.Future[Enqueued]]


class EnqueueBatcher:
    """Lets the concurrent callers of one event loop share round trips.

    While a statement is under way, further tasks are collected; when it returns, they are sent together.
    There is no timer: a single caller does not wait.
    """

    def __init__(self, send: Send) -> None:
        self._send_together = send
        self._waiting: list[Waiting] = []
        self._sender: asyncio.Task[None] | None = None

    async def enqueue(self, task: NewTask) -> Enqueued:
        answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append((task, answer))
        if self._sender is None:
            # A task of its own: the caller that came first may be cancelled while the others still wait.
            self._sender = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                count = len(next(batches(task for task, _ in self._waiting[:MAX_TASKS_TOGETHER])))
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                await self._send([(task, answer) for task, answer in batch if not answer.done()])
        finally:
            self._sender = None
            for _, answer in self._waiting:
                answer.cancel()

    async def _send(self, batch: Sequence[Waiting]) -> None:
        if not batch:
            return
        try:
            enqueued = await self._send_together([task for task, _ in batch])
        except DatabaseUnavailable as error:
            await self._settle_unknown(batch, error)
        except PartlyEnqueued as error:
            await self._settle_parts(batch, error)
        except Exception as error:  # noqa: BLE001 - raised in the caller whose task was refused
            await self._settle_refused(batch, error)
        except BaseException:
            for _, answer in batch:
                answer.cancel()
            raise
        else:
            for (_, answer), one in zip(batch, enqueued, strict=True):
                if not answer.done():
                    answer.set_result(one)

    async def _settle_refused(self, batch: Sequence[Waiting], error: Exception) -> None:
        """Nothing was written: halves are sent until the refused task is alone."""
        if len(batch) == 1:
            _raise_in(batch[0][1], error)
            return
        middle = len(batch) // 2
        await self._send(batch[:middle])
        await self._send(batch[middle:])

    async def _settle_parts(self, batch: Sequence[Waiting], error: PartlyEnqueued) -> None:
        """Answer what some shards have written, and send the rest again."""
        written = {place: Enqueued(task_id, created) for place, task_id, created in error.enqueued}
        for place, one in written.items():
            if not batch[place][1].done():
                batch[place][1].set_result(one)
        rest = [waiting for place, waiting in enumerate(batch) if place not in written]
        if not written or isinstance(error.cause, DatabaseUnavailable):
            cause = error.cause if isinstance(error.cause, DatabaseUnavailable) else None
            await self._settle_unknown(rest, cause or DatabaseUnavailable(error.message))
        else:
            await self._settle_refused(rest, error.cause or error)

    async def _settle_unknown(self, batch: Sequence[Waiting], error: DatabaseUnavailable) -> None:
        """It is not known whether the tasks were written: only those with a key are sent again."""
        keyed = [waiting for waiting in batch if waiting[0].idempotency_key]
        again = keyed if len(keyed) < len(batch) else []
        for waiting in batch:
            if waiting not in again:
                _raise_in(waiting[1], error)
        await self._send(again)


def _raise_in(answer: asyncio.Future[Enqueued], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
