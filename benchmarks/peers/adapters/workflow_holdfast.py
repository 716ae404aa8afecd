"""Runs with steps in Holdfast: an app, and `holdfast worker` on it."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers.adapters import common
from benchmarks.peers.adapters import holdfast as plain
from holdfast import App, Context
from holdfast._engine.health import clock

RESULT = "r" * 58
IN_TURN = 20

app = App(common.URL)
hit = common.hits_of_worker() if common.COMMAND == "worker" else None
if hit:
    common.ready()


def _hit(slot: int) -> None:
    assert hit is not None
    hit(slot)


async def work(slot: int) -> str:
    _hit(slot)
    return RESULT


@app.task("bench.run")
async def run(ctx: Context, seq: int, steps: int) -> None:
    for number in range(steps):
        await ctx.step(work, seq * steps + number)


@app.task("bench.empty")
async def empty(ctx: Context, seq: int, steps: int) -> None:
    """A run without steps, for what the run itself costs."""
    assert steps
    assert ctx.attempt
    _hit(seq)


@app.task("bench.wait")
async def wait(ctx: Context, seq: int, steps: int) -> None:
    assert steps
    await ctx.wait("go", int)
    _hit(seq)


@app.task("bench.child")
async def child(seq: int) -> int:
    _hit(seq)
    return seq


@app.task("bench.join")
async def join(ctx: Context, seq: int, steps: int) -> None:
    """`steps` children, and their results."""
    results = await ctx.map(child, range(steps))
    assert len(results) == steps
    _hit(steps + seq)


@app.task("bench.pair")
async def pair(ctx: Context, seq: int, steps: int) -> dict[str, float]:
    """Steps and commits of one small row in turns, 20 at a time: the median of both, in milliseconds."""
    starts: list[float] = []
    gaps: list[float] = []
    commits: list[float] = []

    async def stamped(slot: int) -> str:
        starts.append(time.perf_counter())
        return await work(slot)

    with psycopg.connect(common.URL, autocommit=True) as connection:
        connection.execute("create table public.floor (n integer primary key, result text)")
        for first in range(seq, steps, IN_TURN):
            starts.clear()
            for number in range(first, first + IN_TURN):
                await ctx.step(stamped, number)
            gaps += [after - before for before, after in pairwise(starts)]
            for number in range(first, first + IN_TURN):
                began = time.perf_counter()
                connection.execute("insert into public.floor values (%s, %s)", (number, RESULT))
                commits.append(time.perf_counter() - began)
    return {"step": statistics.median(gaps) * 1000, "commit": statistics.median(commits) * 1000}


TASKS: dict[str, Any] = {"run": run, "empty": empty, "wait": wait, "join": join, "pair": pair}


@contextmanager
def producer() -> Iterator[common.Producer]:
    app.connect().run(clock(), "clock")  # connected before the time is taken, as the others are
    if common.ORDER.get("task") == "child":
        yield common.Producer(
            lambda seq: child.enqueue(seq=seq),
            lambda seqs: child.enqueue_many({"seq": seq} for seq in seqs),
        )
    else:
        task, steps = TASKS[common.ORDER.get("task", "run")], common.ORDER["steps"]
        yield common.Producer(lambda seq: task.enqueue(seq=seq, steps=steps), _many(task, steps))
    app.close()


def _many(task: Any, steps: int) -> Callable[[range], Any]:
    return lambda seqs: task.enqueue_many({"seq": seq, "steps": steps} for seq in seqs)


def worker() -> None:
    os.environ["WORKER_CONCURRENCY"] = str(common.ORDER["concurrency"])
    os.environ["WORKER_QUEUES"] = "bench"
    os.environ["DATABASE_URL"] = common.URL
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    command = [holdfast, "worker", "benchmarks.peers.adapters.workflow_holdfast:app"]
    os.execv(holdfast, command)  # noqa: S606 - the same process goes on as the worker


if __name__ == "__main__":
    common.main(install=plain.install, producer=producer, worker=worker)
