"""What a claim costs while tasks of many keys, types or priorities wait, against tasks of one."""

import json
import random
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.engine import Bench, Connection

CLAIMS = 300
WARM_UP = 20
FILL = 5000
CLAIM = "select task_id::text, token from queues.claim('w1', %s, array[%s])"


class Queue:
    """One queue with its tasks, and the times that claims from it took."""

    def __init__(self, connection: "Connection", name: str, tasks: Iterator[dict[str, Any]]) -> None:
        self.connection, self.name = connection, name
        self.claims: list[float] = []
        self.finishes: list[float] = []
        waiting = [{"type": f"{name}.noop", "queue": name, "payload": {"n": 1}} | task for task in tasks]
        for start in range(0, len(waiting), FILL):
            batch = json.dumps(waiting[start : start + FILL])
            connection.execute("select count(*) from queues.enqueue_many(%s)", (batch,))

    def claim_and_finish(self, size: int) -> None:
        started = time.perf_counter()
        claimed = self.connection.execute(CLAIM, (size, self.name)).fetchall()
        between = time.perf_counter()
        assert claimed, f"nothing to claim in {self.name}"
        results = [{"task_id": row[0], "token": row[1], "status": "succeeded"} for row in claimed]
        self.connection.execute("select queues.finish('w1', %s)", (json.dumps(results),))
        self.finishes.append((time.perf_counter() - between) / len(claimed))
        self.claims.append((between - started) / len(claimed))


def keys(count: int, tasks: int) -> Iterator[dict[str, Any]]:
    chosen = random.Random(7)
    return ({"concurrency_key": f"k{n if n < count else chosen.randrange(count)}"} for n in range(tasks))


def types(count: int, tasks: int) -> Iterator[dict[str, Any]]:
    return ({"type": f"many.t{n % count}"} for n in range(tasks))


def priorities(count: int, tasks: int) -> Iterator[dict[str, Any]]:
    return ({"priority": 100 - n % count} for n in range(tasks))


def scattered(count: int, tasks: int) -> Iterator[dict[str, Any]]:
    """Of one priority. The order in which they are due is that of `priorities`: far apart in the table."""
    began = datetime.now(UTC) - timedelta(hours=1)
    return ({"run_at": (began + timedelta(seconds=n % count)).isoformat()} for n in range(tasks))


def used_once(count: int, tasks: int) -> Iterator[dict[str, Any]]:
    """Each of these priorities has one task, which is claimed first."""
    return ({"priority": 100 - n if n < count else -100} for n in range(tasks))


def remove_idle_lanes(connection: "Connection") -> None:
    """As the leader does, a minute later."""
    connection.execute("update queues.lane set made_at = made_at - interval '1 hour'")
    while connection.execute("select queues.tidy_lanes()").fetchone() != (0,):
        pass


def waiting(bench: "Bench") -> None:
    print("Claim tasks while others of many keys, types or priorities wait, against those of one")
    one_key, one_type = partial(keys, 1, 2000), partial(types, 1, 20_000)
    # A claim of tasks with keys also locks and counts each key.
    for label, size, most, one, many in (
        ("10 concurrency keys, claims of 1", 1, 1.5, one_key, keys(10, 2000)),
        ("1,000 concurrency keys, claims of 1", 1, 1.5, one_key, keys(1000, 5000)),
        ("50,000 concurrency keys, claims of 1", 1, 1.5, one_key, keys(50_000, 60_000)),
        ("50,000 concurrency keys, claims of 50, against no key", 50, 3.0, one_type, keys(50_000, 60_000)),
        ("20,000 types, claims of 50", 50, 1.5, one_type, types(20_000, 20_000)),
        ("200 priorities that were used once, claims of 50", 50, 1.5, one_type, used_once(200, 20_000)),
        (
            "201 priorities in use, claims of 50, against one with tasks in the same places",
            50,
            1.1,
            partial(scattered, 201, 20_000),
            priorities(201, 20_000),
        ),
    ):
        with bench.database("bench_waiting") as connection:
            sides = (Queue(connection, "one", one()), Queue(connection, "many", many))
            if "used once" in label:
                sides[1].claim_and_finish(200)
                remove_idle_lanes(connection)
            connection.execute("vacuum analyze")
            for number in range(WARM_UP + CLAIMS):
                for side in sides if number % 2 else reversed(sides):
                    side.claim_and_finish(size)
            first, other = (statistics.median(side.claims[WARM_UP:]) for side in sides)
            goal = 1.1 if most == 1.5 else None
            bench.report(label, other / first, most, goal, at_least=False)
            ended, ended_other = (statistics.median(side.finishes[WARM_UP:]) for side in sides)
            print(
                f"    claim {first * 1e6:.0f} us and {other * 1e6:.0f} us per task ({other / first:.2f} x), "
                f"finish {ended * 1e6:.0f} us and {ended_other * 1e6:.0f} us"
            )
