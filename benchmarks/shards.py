"""How throughput grows with the number of shards: enqueueing through a front, and draining on the shards.

Each shard is a PostgreSQL 15 with a fixed share of one core (a cgroup), so that two cores can show what
four servers would do: the share is what limits a shard, not the machine, the front or the clients. Needs root
and Debian's postgresql-15-plproxy.

What varies from minute to minute must not decide. So each round measures one, two and four shards shortly
after each other, forwards and backwards in turn, and the result is the median of the ratios within a round.
One shard is another server in each round, so that all servers have had the same load. Vacuum and checkpoints
run between the measurements, without the limit, and not during them.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg

from benchmarks.quota import Quota
from holdfast._install import schema
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.shards.migration import migrate_shards
from holdfast.testing.server import disposable_server

COUNTS = (1, 2, 4)
BATCH = 200
CLIENTS_PER_SHARD = 10
"""Enough that chance leaves no shard without a call: of n clients and m shards, n / (n + m - 1) are busy."""
WORKERS_PER_SHARD = 2
PROMISED = {2: 1.7, 4: 3.3}
LEAST_USED = 0.8
WARM_UP = 24
"""Calls of each client before a measurement, with one task each: a new session plans its statements first."""
BACKLOG = 12_000
"""Due tasks of each shard before they are drained: more than it can drain."""
SETTINGS = ("autovacuum = off", "checkpoint_timeout = '1h'", "max_wal_size = '1GB'", "jit = off")
Connect = Callable[[str], "psycopg.Connection"]
Work = Callable[[int], int]
"""Runs up to the given number of tasks, and returns how many it ran."""


def batch(size: int) -> str:
    return json.dumps([{"type": "bench.work", "payload": {"n": n, "text": "x" * 60}} for n in range(size)])


BATCHES = {size: batch(size) for size in (1, BATCH)}


@dataclass(frozen=True)
class House:
    """A front with some shards, as addresses, and the quotas of the shards."""

    front: str
    shards: list[str]
    quotas: list[Quota]


@dataclass(frozen=True)
class Figure:
    per_second: float
    per_processor_second: float
    used: float
    """The processor time of the least busy shard, of one core."""


Figures = dict[str, dict[int, list[Figure]]]


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
            with psycopg.connect(shards[-1].url("postgres"), autocommit=True) as admin:
                for setting in SETTINGS:
                    admin.execute(f"alter system set {setting}")
                admin.execute("select pg_reload_conf()")
            if share is not None:
                quotas[-1].limit(shards[-1].status().pid or 0)
        yield [front, *shards], quotas


def build(found: list[EmbeddedServer], quotas: list[Quota]) -> dict[int, list[House]]:
    """For each number of shards as many houses as there are servers for."""
    front, *shards = found
    houses: dict[int, list[House]] = {}
    for count in COUNTS:
        for first in range(0, len(shards), count):
            name, used = f"bench_{count}_{first}", slice(first, first + count)
            for server in [front, *shards[used]]:
                with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                    admin.execute(f"create database {name}")
            addresses = [server.url(name) for server in shards[used]]
            for address in addresses:
                schema.migrate(address)
            migrate_shards(front.url(name), {f"s{n:02}": url for n, url in enumerate(addresses)})
            houses.setdefault(count, []).append(House(front.url(name), addresses, quotas[used]))
    return houses


def prepare(house: House, backlog: int) -> None:
    """Let each shard have this many due tasks, and no work of its own to do."""
    for address in house.shards:
        with psycopg.connect(address, autocommit=True) as connection:
            found = connection.execute(
                "select coalesce(sum(due), 0)::int from queues.queue_status"
            ).fetchone()
            missing = backlog - (found[0] if found else 0)
            for _ in range(0, missing, BATCH):
                connection.execute("select from queues.enqueue_many(%s)", [BATCHES[BATCH]])
            connection.execute("vacuum (analyze)")
            connection.execute("checkpoint")


def started(works: Sequence[Callable[[], None]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


def for_a_while(house: House, seconds: float, works: list[Work]) -> Figure:
    """Call each again and again in a thread of its own, and return what they have done in this time."""
    done = [0] * len(works)
    over = threading.Event()

    def warm_up(work: Work) -> None:
        for _ in range(WARM_UP):
            work(1)

    def loop(n: int, work: Work) -> None:
        while not over.is_set():
            done[n] += work(BATCH)

    for thread in started([partial(warm_up, work) for work in works]):
        thread.join()
    for quota in house.quotas:
        quota.apply(limited=True)
    before, start = [quota.used_seconds() for quota in house.quotas], time.monotonic()
    threads = started([partial(loop, n, work) for n, work in enumerate(works)])
    time.sleep(seconds)
    total, elapsed = sum(done), time.monotonic() - start
    used = [quota.used_seconds() - earlier for quota, earlier in zip(house.quotas, before, strict=True)]
    over.set()
    for quota in house.quotas:
        quota.apply(limited=False)
    for thread in threads:
        thread.join()
    return Figure(total / elapsed, total / max(used, default=elapsed), min(used, default=0.0) / elapsed)


def enqueue(house: House, seconds: float, connect: Connect) -> Figure:
    def client() -> Work:
        connection = connect(house.front)
        return lambda size: len(
            connection.execute("select from queues.enqueue_many(%s)", [BATCHES[size]]).fetchall()
        )

    prepare(house, 0)
    return for_a_while(house, seconds, [client() for _ in house.shards * CLIENTS_PER_SHARD])


def drain(house: House, seconds: float, connect: Connect) -> Figure:
    def worker(url: str, name: str) -> Work:
        connection = connect(url)

        def work(size: int) -> int:
            claimed = connection.execute(
                "select task_id::text, token from queues.claim(%s, %s, type_prefixes => '{bench}')",
                [name, size],
            ).fetchall()
            report = [
                {"task_id": task_id, "token": token, "status": "succeeded"} for task_id, token in claimed
            ]
            connection.execute("select from queues.finish(%s, %s)", [name, json.dumps(report)])
            return len(claimed)

        return work

    prepare(house, BACKLOG)
    return for_a_while(
        house, seconds, [worker(url, f"w{n}") for url in house.shards for n in range(WORKERS_PER_SHARD)]
    )


def measure(houses: dict[int, list[House]], rounds: int, seconds: float) -> Figures:
    figures: Figures = {"enqueue": {}, "drain": {}}
    for number in range(rounds):
        for count in COUNTS if number % 2 == 0 else COUNTS[::-1]:
            house = houses[count][number % len(houses[count])]
            for name, run in (("enqueue", enqueue), ("drain", drain)):
                with ExitStack() as opened:
                    found = run(
                        house,
                        seconds,
                        lambda url, opened=opened: opened.enter_context(  # type: ignore[misc]
                            psycopg.connect(url, autocommit=True)
                        ),
                    )
                figures[name].setdefault(count, []).append(found)
                print(
                    f"  {name:8} {count} shards {found.per_second:10,.0f}/s, {found.used:.1%} of a core each",
                    flush=True,
                )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=0.08, help="of one core, for each shard")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=8)
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


def report(figures: Figures, share: float | None) -> int:
    print(f"\nEach shard has {share:.0%} of a core. Medians of the rounds." if share else "\nNo limits.")
    print(f"{'':10}{'shards':>8}{'tasks/s':>12}{'times':>8}{'least-most':>14}{'tasks/cpu s':>14}{'times':>8}")
    kept = True
    busy = share is None
    for name, found in figures.items():
        for count in COUNTS:
            measured = found[count]
            ratios = ratios_of(measured, found[1], lambda one: one.per_second)
            by_processor = statistics.median(
                ratios_of(measured, found[1], lambda one: one.per_processor_second)
            )
            used = statistics.median(one.used for one in measured)
            starved = share is None or used < LEAST_USED * share
            busy = busy or starved
            times = statistics.median(ratios)
            kept = kept and (by_processor if starved else times) >= PROMISED.get(count, 0)
            rate = statistics.median(one.per_second for one in measured)
            efficiency = statistics.median(one.per_processor_second for one in measured)
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            print(
                f"{name:10}{count:8}{rate:12,.0f}{times:8.2f}{spread:>14}{efficiency:14,.0f}{by_processor:8.2f}"
            )
    if busy:
        print(
            "The shards did not get their share of the processor everywhere; there, processor time decides."
        )
    print("At least 1.7 times with 2 shards and 3.3 times with 4: " + ("yes" if kept else "NO"))
    return 0 if kept else 1


def ratios_of(measured: list[Figure], first: list[Figure], value: Callable[[Figure], float]) -> list[float]:
    """Each with the one shard of the same round."""
    return [value(many) / value(one) for many, one in zip(measured, first, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
