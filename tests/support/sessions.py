"""Several sessions at once: run them in threads, and wait for what they wait for."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

import psycopg

S = TypeVar("S")
T = TypeVar("T")
Connection = psycopg.Connection[Any]


def at_once(call: Callable[[S], T], given: Sequence[S]) -> list[T]:
    """Call it for all of them at the same time, and answer in their order."""
    with ThreadPoolExecutor(len(given)) as threads:
        return list(threads.map(call, given))


@contextmanager
def in_background(call: Callable[[], T]) -> Iterator[Future[T]]:
    """Run one call while the block goes on."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(call)


def wait_until_blocked(watcher: Connection, *sessions: Connection) -> None:
    """Return once every one of these sessions waits for a lock that another session holds."""
    pids = [session.info.backend_pid for session in sessions]
    deadline = monotonic() + 30
    while monotonic() < deadline:
        row = watcher.execute(
            "select bool_and(cardinality(pg_blocking_pids(pid)) > 0) from unnest(%s::int[]) pid", [pids]
        ).fetchone()
        if row and row[0]:
            return
    raise AssertionError(f"sessions {pids} do not wait for anybody")
