"""How throughput grows with the number of shards: enqueueing through a front, and draining on the shards.

Each shard is a PostgreSQL 15 with a fixed share of one core (a cgroup), so that two cores can show what
four servers would do: the share is what limits a shard, not the machine. Needs root and Debian's
postgresql-15-plproxy.

On a busy machine the shards do not get their share, and tasks per second say nothing. So the table also has
tasks per second of processor time: all tasks, by the time that the busiest shard took for its part. That is
what the shards could do with a core each. It decides where a shard used less than 80 % of its share.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from holdfast import schema
from holdfast.postgres import EmbeddedServer
from holdfast.shards.migration import migrate_shards
from holdfast.testing.server import disposable_server

COUNTS = (1, 2, 4)
BATCH = 200
CLIENTS_PER_SHARD = 5
PROMISED = {2: 1.7, 4: 3.3}
V1, V1_ACCOUNTS = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpuacct")
V2 = Path("/sys/fs/cgroup")
PERIOD_MICROSECONDS = 20_000
LEAST_USED = 0.8
WARM_UP = 12
"""Batches of each client before the measurement: enough to have used every shard."""
TASKS = json.dumps([{"type": "bench.work", "payload": {"n": n, "text": "x" * 60}} for n in range(BATCH)])


class Quota:
    """A share of one core for a server and every process that it starts, and what they used of it."""

    def __init__(self, name: str, share: float) -> None:
        self._old = (V1 / "cpu.cfs_quota_us").exists()
        roots = [V1, V1_ACCOUNTS] if self._old else [V2]
        self._groups = [root / f"holdfast-bench-{name}" for root in roots]
        for group in self._groups:
            group.mkdir()
        self._share = share
        if self._old:
            (self._groups[0] / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))

    def apply(self, *, limited: bool) -> None:
        quota = int(PERIOD_MICROSECONDS * self._share)
        if self._old:
            (self._groups[0] / "cpu.cfs_quota_us").write_text(str(quota if limited else -1))
        else:
            (self._groups[0] / "cpu.max").write_text(f"{quota if limited else 'max'} {PERIOD_MICROSECONDS}")

    def limit(self, pid: int) -> None:
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
        for one in [pid, *map(int, children.stdout.split())]:
            for group in self._groups:
                (group / "cgroup.procs").write_text(str(one))

    def used_seconds(self) -> float:
        if self._old:
            return int((self._groups[1] / "cpuacct.usage").read_text()) / 1e9
        return int((self._groups[0] / "cpu.stat").read_text().split()[1]) / 1e6

    def remove(self) -> None:
        for group in self._groups:
            group.rmdir()


@dataclass(frozen=True)
class House:
    """A front with this many shards, as addresses, and the quotas of the shards."""

    front: str
    shards: list[str]
    quotas: list[Quota]


@dataclass(frozen=True)
class Figure:
    per_second: float
    per_processor_second: float
    used: float
    """The processor time of the least busy shard, of one core."""


@contextmanager
def servers(count: int, share: float | None) -> Iterator[tuple[list[EmbeddedServer], list[Quota]]]:
    """The first one is for fronts, and unlimited."""
    with ExitStack() as stack:
        front = stack.enter_context(disposable_server(15))
        shards: list[EmbeddedServer] = []
        quotas: list[Quota] = []
        for n in range(count):
            if share is not None:
                quotas.append(Quota(str(n), share))
                stack.callback(quotas[-1].remove)
            shards.append(stack.enter_context(disposable_server(15)))
            if share is not None:
                quotas[-1].limit(shards[-1].status().pid or 0)
        yield [front, *shards], quotas


def build(found: list[EmbeddedServer], quotas: list[Quota]) -> dict[int, House]:
    front, *shards = found
    houses = {}
    for count in COUNTS:
        name = f"bench_{count}"
        for server in [front, *shards[:count]]:
            with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                admin.execute(f"create database {name}")
        for server in shards[:count]:
            schema.migrate(server.url(name))
        addresses = [server.url(name) for server in shards[:count]]
        migrate_shards(front.url(name), {f"s{n:02}": url for n, url in enumerate(addresses)})
        houses[count] = House(front.url(name), addresses, quotas[:count])
    return houses


def for_a_while(house: House, seconds: float, works: list[Callable[[], int]]) -> Figure:
    """Call each again and again in a thread of its own, and return what they did."""
    done = [0] * len(works)

    def loop(n: int, work: Callable[[], int]) -> None:
        while time.monotonic() < end:
            done[n] += work()

    for work in works * WARM_UP:  # a new session plans every statement first
        work()
    for quota in house.quotas:
        quota.apply(limited=True)
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=loop, args=pair) for pair in enumerate(works)]
    before, started = [quota.used_seconds() for quota in house.quotas], time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - started
    for quota in house.quotas:
        quota.apply(limited=False)
    used = [quota.used_seconds() - earlier for quota, earlier in zip(house.quotas, before, strict=True)]
    return Figure(
        sum(done) / elapsed, sum(done) / max(used, default=elapsed), min(used, default=0.0) / elapsed
    )


def enqueue(house: House, seconds: float, connect: Callable[[str], psycopg.Connection]) -> Figure:
    def client() -> Callable[[], int]:
        connection = connect(house.front)
        return lambda: len(connection.execute("select from queues.enqueue_many(%s)", [TASKS]).fetchall())

    return for_a_while(house, seconds, [client() for _ in house.shards * CLIENTS_PER_SHARD])


def drain(house: House, seconds: float, connect: Callable[[str], psycopg.Connection]) -> Figure:
    def worker(url: str, name: str) -> Callable[[], int]:
        connection = connect(url)

        def work() -> int:
            claimed = connection.execute(
                "select task_id::text, token from queues.claim(%s, %s, type_prefixes => '{bench}')",
                [name, BATCH],
            ).fetchall()
            report = [
                {"task_id": task_id, "token": token, "status": "succeeded"} for task_id, token in claimed
            ]
            connection.execute("select from queues.finish(%s, %s)", [name, json.dumps(report)])
            return len(claimed)

        return work

    return for_a_while(house, seconds, [worker(url, f"w{n}") for url in house.shards for n in range(2)])


def measure(houses: dict[int, House], rounds: int, seconds: float) -> dict[str, dict[int, list[Figure]]]:
    figures: dict[str, dict[int, list[Figure]]] = {"enqueue": {}, "drain": {}}
    for _ in range(rounds):
        for count, house in houses.items():
            opened: list[psycopg.Connection] = []

            def connect(url: str, opened: list[psycopg.Connection] = opened) -> psycopg.Connection:
                opened.append(psycopg.connect(url, autocommit=True))
                return opened[-1]

            for name, run in (("enqueue", enqueue), ("drain", drain)):
                found = run(house, seconds, connect)
                figures[name].setdefault(count, []).append(found)
                print(f"  {name:8} {count} shards {found.per_second:10,.0f}/s", flush=True)
            for connection in opened:
                connection.close()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=0.08, help="of one core, for each shard")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ensure = Path(__file__).parents[1] / "tools" / "ensure-plproxy"
    if subprocess.run([ensure], check=False).returncode:
        return 1
    share: float | None = given.share
    try:
        Quota("probe", given.share).remove()
    except OSError as error:
        print(f"No cgroup can be made ({error.strerror}): without limits, all shards share the cores.")
        share = None
    with servers(max(COUNTS), share) as (found, quotas):
        figures = measure(build(found, quotas), given.rounds, given.seconds)
    return report(figures, share)


def report(figures: dict[str, dict[int, list[Figure]]], share: float | None) -> int:
    print(f"\nEach shard has {share:.0%} of a core." if share else "\nNo limits.")
    print(f"{'':10}{'shards':>8}{'tasks/s':>12}{'times':>8}{'tasks/cpu s':>14}{'times':>8}")
    kept = True
    busy = share is None
    for name, found in figures.items():
        for count, measured in found.items():
            times = ratio(measured, found[1], lambda one: one.per_second)
            by_processor = ratio(measured, found[1], lambda one: one.per_processor_second)
            used = statistics.median(one.used for one in measured)
            starved = share is None or used < LEAST_USED * share
            busy = busy or starved
            kept = kept and (by_processor if starved else times) >= PROMISED.get(count, 0)
            rate = statistics.median(one.per_second for one in measured)
            efficiency = statistics.median(one.per_processor_second for one in measured)
            print(f"{name:10}{count:8}{rate:12,.0f}{times:8.2f}{efficiency:14,.0f}{by_processor:8.2f}")
    if busy:
        print(
            "The shards did not get their share of the processor everywhere; there, processor time decides."
        )
    print("At least 1.7 times with 2 shards and 3.3 times with 4: " + ("yes" if kept else "NO"))
    return 0 if kept else 1


def ratio(measured: list[Figure], first: list[Figure], value: Callable[[Figure], float]) -> float:
    return statistics.median(value(many) / value(one) for many, one in zip(measured, first, strict=True))


if __name__ == "__main__":
    sys.exit(main())
