"""Clients that enqueue at a rate, and write down what they were told."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast.errors import DatabaseUnavailable, PartialBatchError, TransactionConflict

T = TypeVar("T")

CLIENTS = 3
BATCH = 5
KILOBYTE = "x" * 1024


class Producer:
    """A call that ends in an unknown way is repeated under the same key until it is acknowledged."""

    def __init__(
        self,
        url: str,
        *,
        per_second: float,
        seconds: Sequence[float],
        started: Callable[[], int],
        name: str = "",
        rolls_back: bool = True,
    ) -> None:
        """Handlers take `seconds`, in turn. Waits when a second's worth of tasks has not `started` yet:
        a machine that cannot keep up would otherwise show how long its backlog is, and nothing else.
        The `name` is part of its keys. A front cannot roll back.
        """
        self.acknowledged: dict[str, UUID] = {}
        self.rolled_back: set[str] = set()
        self.repeated = 0
        self._url = url
        self._per_second = per_second
        self._seconds = seconds
        self._started = started
        self._name = name
        self._rolls_back = rolls_back
        self._numbers = count(1)
        self._ended = threading.Event()
        self._failures: list[BaseException] = []

    @contextmanager
    def producing(self) -> Iterator[None]:
        clients = [threading.Thread(target=self._produce, daemon=True) for _ in range(CLIENTS)]
        self._ended.clear()
        for client in clients:
            client.start()
        try:
            yield
        finally:
            self._ended.set()
            for client in clients:
                client.join()
        assert not self._failures, self._failures

    def burst(self, count: int) -> None:
        """Enqueue this many at once, from the test itself."""
        client = _Client(self._url)
        self._enqueue_batch(client, next(self._numbers), count)
        client.close()

    def _produce(self) -> None:
        client = _Client(self._url)
        due = monotonic()
        try:
            while not self._ended.wait(max(0.0, due - monotonic())):
                if len(self.acknowledged) - self._started() > self._per_second:
                    due = monotonic() + 0.05
                    continue
                made = self._enqueue_some(client, next(self._numbers))
                # What an outage held up is not made up for: it would come as one burst.
                due = max(due + made * CLIENTS / self._per_second, monotonic() - 0.2)
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            self._failures.append(error)
        finally:
            client.close()

    def _enqueue_some(self, client: "_Client", number: int) -> int:
        if self._rolls_back and number % 50 == 0:
            task = self._task(f"{self._name}undone-{number}")
            self._insist(client, lambda: client.undo(task))
            self.rolled_back.add(task.payload["label"])
        if number % 10:
            task = self._task(f"{self._name}single-{number}")
            self.acknowledged[task.payload["label"]] = self._insist(client, lambda: client.enqueue(task))
            return 1
        self._enqueue_batch(client, number, BATCH)
        return BATCH

    def _enqueue_batch(self, client: "_Client", number: int, count: int) -> None:
        batch = [self._task(f"{self._name}batch-{number}-{place}") for place in range(count)]
        task_ids = self._insist(client, lambda: client.enqueue_many(batch))
        self.acknowledged |= {
            task.payload["label"]: task_id for task, task_id in zip(batch, task_ids, strict=True)
        }

    def _task(self, key: str) -> NewTask:
        number = sum(int(part) for part in key.split("-")[1:])
        return NewTask(
            "acceptance.work_in_thread" if number % 4 == 0 else "acceptance.work",
            {"label": key, "seconds": [self._seconds[number % len(self._seconds)]], "padding": KILOBYTE},
            idempotency_key=key,
            max_attempts=50,
        )

    def _insist(self, client: "_Client", call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except (DatabaseUnavailable, PartialBatchError, TransactionConflict, psycopg.OperationalError):
                self.repeated += 1
                client.close()
                self._ended.wait(0.05)


class _Client:
    """One connection, made again after it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    def enqueue(self, task: NewTask) -> UUID:
        return Engine(self._connected()).run(enqueue.enqueue(task))

    def enqueue_many(self, tasks: list[NewTask]) -> list[UUID]:
        return [enqueued.task_id for enqueued in Engine(self._connected()).run(enqueue.enqueue_many(tasks))]

    def undo(self, task: NewTask) -> None:
        """Enqueue in a transaction that is rolled back."""
        connection = self._connected()
        with connection.transaction(force_rollback=True):
            Engine(connection).run(enqueue.enqueue(task))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
        return self._connection
