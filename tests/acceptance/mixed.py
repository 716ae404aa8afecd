"""Work of every kind at the same time, from clients that repeat each call until it is acknowledged."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from time import monotonic, sleep
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from holdfast._engine import Engine, enqueue, limits, steps
from holdfast._engine.enqueue import NewTask
from holdfast.errors import DatabaseUnavailable, TransactionConflict
from support.engine import Connection

T = TypeVar("T")
Session = psycopg.Connection[Any]

SIGNALS, PARTS = 3, 3
MEMBERS, ADDED = 4, 2
GENERATIONS = 4
DEBOUNCED, DEBOUNCE = 6, timedelta(seconds=0.1)
KEYS, PER_KEY, MAX_RUNNING = 4, 1, 3
ATTEMPTS = 50
PATIENCE_SECONDS = 60.0


@dataclass
class Case:
    """A piece of work that a client began, and the tasks that it was told of."""

    kind: str
    label: str
    tasks: list[UUID] = field(default_factory=list)
    asked_at: float = 0.0
    """When its first task was acknowledged."""


def prepare(conn: Connection) -> None:
    """A table for transactions of steps, with two rows for what happens twice, and limits that bind."""
    conn.execute("create table ledger (task_id uuid, name text)")
    conn.execute("grant insert on ledger to holdfast_worker")
    limit = limits.set_limit("type", "acceptance.limited", max_running=MAX_RUNNING, per_key=PER_KEY)
    Engine(conn).run(limit)


class Mixed:
    """A client for each kind of work, which begins the next case after a pause."""

    def __init__(self, url: str, pauses: dict[str, float] | None = None, first: int = 1) -> None:
        """The numbers in the labels begin with `first`."""
        self.cases: list[Case] = []
        self.repeated = 0
        self.held_back = False
        """While this is set, clients begin nothing new."""
        self._url = url
        self._pauses = pauses or {}
        self._numbers = count(first)
        self._ended = threading.Event()
        self._failures: list[BaseException] = []
        self._kinds: dict[str, Callable[[_Client, Case], None]] = {
            "plain": self._plain,
            "flow": self._flow,
            "chain": self._chain,
            "batch": self._batch,
            "bulk": self._bulk,
            "debounced": self._debounced,
            "keyed": self._keyed,
        }

    @contextmanager
    def working(self) -> Iterator[None]:
        self._ended.clear()
        with ExitStack() as stack:
            for kind in self._kinds:
                client = threading.Thread(target=self._work, args=[kind], daemon=True)
                client.start()
                stack.callback(client.join)
            stack.callback(self._ended.set)
            yield
        assert not self._failures, self._failures

    def take_cases(self) -> list[Case]:
        """Those that were begun since it was last called."""
        taken, self.cases = self.cases, []
        return taken

    def _work(self, kind: str) -> None:
        client = _Client(self, self._url)
        try:
            while not self._ended.wait(self._pauses.get(kind, 0.2)):
                if not self.held_back:
                    case = Case(kind, f"{kind}-{next(self._numbers)}")
                    self._kinds[kind](client, case)
                    self.cases.append(case)
        except BaseException as error:  # noqa: BLE001 - reported by the thread of the test
            self._failures.append(error)
        finally:
            client.close()

    def _plain(self, client: "_Client", case: Case) -> None:
        tasks = [_task("work", f"{case.label}.{n}", seconds=[0.005 * n]) for n in range(5)]
        case.tasks += client.enqueue_many(tasks)
        case.asked_at = monotonic()

    def _flow(self, client: "_Client", case: Case) -> None:
        task = _task("flow", case.label, signals=SIGNALS, parts=PARTS)
        case.tasks += client.enqueue_many([task])
        for number in range(SIGNALS):
            signal = steps.signal(case.tasks[0], "next", number, f"{case.label}-{number}")
            client.insist(lambda session: Engine(session).run(signal))  # noqa: B023 - called at once

    def _chain(self, client: "_Client", case: Case) -> None:
        case.tasks += client.enqueue_many([_task("chain", case.label, left=GENERATIONS - 1)])

    def _batch(self, client: "_Client", case: Case) -> None:
        members = [_task("member", f"{case.label}.{n}", more=ADDED if n == 0 else 0) for n in range(MEMBERS)]

        def work(session: Session) -> list[UUID]:
            with session.transaction():
                first = [one.task_id for one in Engine(session).run(enqueue.enqueue_many(members))]
                after = enqueue.enqueue_after([_task("last", case.label)], first, None)
                return [*first, *(one.task_id for one in Engine(session).run(after))]

        case.tasks += client.insist(work)

    def _bulk(self, client: "_Client", case: Case) -> None:
        labels = [f"{case.label}.{n}" for n in range(10)]
        options: dict[str, Any] = {"max_attempts": ATTEMPTS}
        case.tasks += client.enqueue_many(
            [NewTask("acceptance.bulk", {"labels": one}, idempotency_key=one, **options) for one in labels]
        )

    def _debounced(self, client: "_Client", case: Case) -> None:
        for number in range(DEBOUNCED):
            payload = {"label": f"{case.label}.{number}", "seconds": [0.0]}
            options: dict[str, Any] = {"debounce": DEBOUNCE, "debounce_max": 3 * DEBOUNCE}
            task = NewTask(
                "acceptance.work", payload, idempotency_key=case.label, max_attempts=ATTEMPTS, **options
            )
            enqueued = client.insist(lambda session: Engine(session).run(enqueue.enqueue_one(task)))  # noqa: B023
            case.tasks.append(enqueued.task_id)
            self._ended.wait(0.05)

    def _keyed(self, client: "_Client", case: Case) -> None:
        case.tasks += client.enqueue_many(
            [
                _task("limited", f"{case.label}.{n}", {"concurrency_key": f"key-{n}"}, seconds=[0.02])
                for n in range(KEYS)
            ]
        )


def _task(name: str, label: str, options: dict[str, Any] | None = None, **payload: Any) -> NewTask:
    return NewTask(
        f"acceptance.{name}",
        {"label": label, **payload},
        idempotency_key=label,
        max_attempts=ATTEMPTS,
        **(options or {}),
    )


class _Client:
    """One connection, made again after it broke."""

    def __init__(self, load: Mixed, url: str) -> None:
        self._load = load
        self._url = url
        self._session: Session | None = None

    def enqueue_many(self, tasks: list[NewTask]) -> list[UUID]:
        statement = enqueue.enqueue_many(tasks)
        return [one.task_id for one in self.insist(lambda session: Engine(session).run(statement))]

    def insist(self, call: Callable[[Session], T]) -> T:
        """Also after the load has ended: what was begun is brought to its end."""
        deadline = monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call(self._connected())
            except (DatabaseUnavailable, TransactionConflict, psycopg.OperationalError):
                if monotonic() > deadline:
                    raise
                self._load.repeated += 1
                self.close()
                sleep(0.05)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connected(self) -> Session:
        if self._session is None:
            self._session = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
        return self._session
