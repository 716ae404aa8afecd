"""What an adapter has in common with the others. Runs in each peer's environment: only the standard library.

    install
    enqueue    {"mode": "one" or "many", "count": …, "first": 0, "batch": 1000, "bytes": 0, "driver": name}
    concurrent {"count": …, "width": 100}
               both print {"seconds": …, "caller": …}; with {"warm_up": …, "server": pid} also {"server": …}
    trickle    {"count": …, "interval": 0.02}           prints {"called": […], "returned": […]}
    worker     {"slots": path, "count": …, and the settings of the peer}   runs until SIGTERM

BENCH_COMMAND has the command, BENCH_ORDER what belongs to it, BENCH_DATABASE_URL the database.
A handler calls `hit(seq)` first of all.
"""

import asyncio
import json
import mmap
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.documents import documents
from benchmarks.peers import processes

URL = os.environ.get("BENCH_DATABASE_URL", "")
COMMAND = os.environ.get("BENCH_COMMAND", "")
ORDER: dict[str, Any] = json.loads(os.environ.get("BENCH_ORDER", "{}"))


class Producer(NamedTuple):
    one: Callable[[int], Any]
    many: Callable[[range], Any] | None = None


class AsyncProducer(NamedTuple):
    one: Callable[[int], Awaitable[Any]]
    many: Callable[[range], Awaitable[Any]] | None = None


Opening = AbstractContextManager[Producer] | AbstractAsyncContextManager[AsyncProducer]


def hits(path: str, count: int) -> Callable[[int], None]:
    """A function that notes when a job started, or that it started again."""
    with Path(path).open("r+b") as file:
        slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    now = time.time_ns

    def hit(seq: int) -> None:
        if slots[seq]:
            slots[count] += 1
        else:
            slots[seq] = now()

    return hit


def document_of(seq: int) -> dict[str, Any] | None:
    """The document to enqueue with a job, where the order asks for documents of some size."""
    size = ORDER.get("bytes")
    if not size:
        return None
    found = documents(size)
    return found[seq % len(found)]


def hits_of_worker() -> Callable[[int], None]:
    return hits(ORDER["slots"], ORDER["count"])


def ready() -> None:
    Path(ORDER["slots"] + ".ready").touch()


def main(
    *,
    install: Callable[[], Any],
    producer: Callable[[], Opening],
    worker: Callable[[], Any],
    run: Callable[[Any], Any] = asyncio.run,
) -> None:
    """Do what the command line asks for. What is asynchronous goes through `run`."""
    match COMMAND:
        case "install":
            _do(install(), run)
        case "worker":
            _do(worker(), run)
        case _:
            opened = producer()
            if isinstance(opened, AbstractAsyncContextManager):
                answer = run(_ask_async(opened))
            else:
                with opened as made:
                    answer = _ask(made)
            print(json.dumps(answer), flush=True)


def _do(called: Any, run: Callable[[Any], Any]) -> None:
    if asyncio.iscoroutine(called):
        run(called)


class _Clock:
    """Seconds since now, and the CPU seconds of this process and of the server in them."""

    def __init__(self) -> None:
        self.began = self._now()

    def read(self) -> dict[str, float]:
        names = ("seconds", "caller", "server")
        return {name: now - began for name, now, began in zip(names, self._now(), self.began, strict=False)}

    def _now(self) -> tuple[float, ...]:
        server = (processes.cpu_seconds([ORDER["server"]]),) if "server" in ORDER else ()
        return (time.perf_counter(), time.process_time(), *server)


def _ask(producer: Producer) -> dict[str, Any]:
    if COMMAND == "trickle":
        return _trickle(producer)
    clock = _Clock()
    if ORDER["mode"] == "one":
        for seq in _numbers():
            producer.one(seq)
    else:
        assert producer.many is not None
        for seqs in _batches():
            producer.many(seqs)
    return clock.read()


async def _ask_async(opening: AbstractAsyncContextManager[AsyncProducer]) -> dict[str, Any]:
    async with opening as producer:
        if COMMAND == "trickle":
            return await _trickle_async(producer)
        for seq in range(ORDER.get("warm_up", 0)):
            await producer.one(seq)
        clock = _Clock()
        if COMMAND == "concurrent":
            for seqs in _batches(ORDER["width"]):
                await asyncio.gather(*(producer.one(seq) for seq in seqs))
        elif ORDER["mode"] == "one":
            for seq in _numbers():
                await producer.one(seq)
        else:
            assert producer.many is not None
            for seqs in _batches():
                await producer.many(seqs)
        return clock.read()


def _trickle(producer: Producer) -> dict[str, Any]:
    called, returned = [], []
    for seq, pause in _paced():
        time.sleep(pause)
        called.append(time.time_ns())
        producer.one(seq)
        returned.append(time.time_ns())
    return {"called": called, "returned": returned}


async def _trickle_async(producer: AsyncProducer) -> dict[str, Any]:
    called, returned = [], []
    for seq, pause in _paced():
        await asyncio.sleep(pause)
        called.append(time.time_ns())
        await producer.one(seq)
        returned.append(time.time_ns())
    return {"called": called, "returned": returned}


def _paced() -> Iterator[tuple[int, float]]:
    due = time.perf_counter()
    for seq in range(ORDER["count"]):
        now = time.perf_counter()
        yield seq, max(0.0, due - now)
        due = max(due + ORDER["interval"], now)


def _numbers() -> range:
    first = ORDER.get("first", 0)
    return range(first, first + ORDER["count"])


def _batches(size: int | None = None) -> Iterator[range]:
    numbers, size = _numbers(), size or ORDER.get("batch", 1000)
    return (numbers[start : start + size] for start in range(0, len(numbers), size))
