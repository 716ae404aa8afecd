"""`python -m benchmarks.retention`: a day at 5,000 tasks per second with retention, by a simulated clock.

Ended tasks are written directly into the tables, every quarter of an hour as many as end in that time. Then
the leader's duty prunes, and vacuum does what autovacuum would have done. `--scale` reduces the number of
tasks. The tables stop growing when the first tasks are old enough, and pruning takes little of the time.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from holdfast._engine import Engine
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.schema import migrate
from holdfast._telemetry.logs import configure, worker_log
from holdfast._worker.duties import Retention

PER_SECOND = 5000
HOURS = 24
KEEP_HOURS = 12
BLOCKS_PER_HOUR = 4
MIDNIGHT = datetime(2030, 1, 1, tzinfo=UTC)
MOST_GROWTH = 1.1

_CLOCK = """
create table public.simulated_clock (at timestamptz);
insert into public.simulated_clock values ('2030-01-01 00:00+00');
grant select on public.simulated_clock to public;
create or replace function queues.clock() returns timestamptz language sql volatile parallel safe
as $$ select at from public.simulated_clock $$;
"""
# One of a hundred fails, with an error. Ids grow with time, as those of enqueue do.
_ENDED = """
with ended as materialized (
  select i, s.at, (lpad(to_hex((extract(epoch from s.at) * 1000)::bigint), 12, '0') || '7' || substr(h, 1, 3)
    || '8' || substr(h, 4, 15))::uuid as task_id
  from generate_series(1, %(count)s) i,
    lateral (
      select %(start)s::timestamptz + %(span)s::interval * i / %(count)s as at, md5(random()::text) as h) s),
tasks as (
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
    enqueued_by, namespace, payload)
  select task_id, at, at, 0, 3, 'bench.day', 'bench', 'python', 'bench', 'bench',
    '{"invoice_id": 1234567, "note": "sixty bytes of payload, or so"}' from ended),
errors as (
  insert into queues.error (task_id, occurred_at, attempt, recovered, kind, message)
  select task_id, at, 3, false, 'handler_error', 'no' from ended where i %% 100 = 0)
insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id,
  result)
select task_id, 1, at, at, at, 1, case when i %% 100 = 0 then 'failed' else 'succeeded' end, 'bench', '1'
from ended
"""
_SIZE = """
select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
where c.relnamespace = 'queues'::regnamespace and c.relkind = 'r'
"""


@dataclass(frozen=True)
class Hour:
    """What the tables had at the end of this hour, and what pruning took during it."""

    number: int
    bytes: int
    tasks: int
    pruned: int
    seconds: float

    @property
    def micros_per_task(self) -> float:
        return self.seconds * 1e6 / self.pruned if self.pruned else 0.0


def simulate(url: str, scale: float, hours: int = HOURS) -> Iterator[Hour]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_CLOCK.encode())
        for status in ("succeeded", "failed"):
            connection.execute("select queues.set_retention(%s, %s)", [status, timedelta(hours=KEEP_HOURS)])
        duty = Retention(worker_log("bench"))
        for number in range(1, hours + 1):
            pruned, seconds = 0, 0.0
            for block in range(BLOCKS_PER_HOUR):
                start = MIDNIGHT + timedelta(hours=number - 1 + block / BLOCKS_PER_HOUR)
                before = _tasks(connection) + _write(connection, start, scale)
                began = time.perf_counter()
                while duty.run(Engine(connection).run) is not None:
                    pass
                seconds += time.perf_counter() - began
                pruned += before - _tasks(connection)
                connection.execute("vacuum queues.task, queues.outcome, queues.error")
            yield Hour(number, _one(connection, _SIZE), _tasks(connection), pruned, seconds)


def _write(connection: psycopg.Connection[Any], start: datetime, scale: float) -> int:
    span = timedelta(hours=1 / BLOCKS_PER_HOUR)
    count = max(100, int(PER_SECOND * span.total_seconds() * scale))
    connection.execute(_ENDED.encode(), {"count": count, "start": start, "span": span})
    connection.execute("update public.simulated_clock set at = %s", [start + span])
    return count


def _tasks(connection: psycopg.Connection[Any]) -> int:
    return _one(connection, "select count(*) from queues.task")


def _one(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row
    return int(row[0])


def growth(hours: list[Hour]) -> float:
    """How large the tables are at the end, compared with when pruning had begun."""
    begun = next(hour for hour in hours if hour.number >= KEEP_HOURS + 4)
    return hours[-1].bytes / begun.bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="how many tasks, as a part of 5,000/s")
    parser.add_argument("--pg", type=int, default=18, help="version of PostgreSQL")
    given = parser.parse_args()
    configure("console", "error")
    settings = {"shared_buffers": "512MB", "max_wal_size": "8GB", "autovacuum": "off", "fsync": "off"}
    hours = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        Path(home).chmod(0o711)  # for the account of the server to pass
        server = EmbeddedServer(Path(home), version=given.pg, settings=settings)
        url = server.start()
        try:
            migrate(url)
            for hour in simulate(url, given.scale):
                hours.append(hour)
                print(
                    f"hour {hour.number:2}: {hour.tasks:>9,} tasks, {hour.bytes / 1e6:>7.1f} MB,"
                    f" {hour.pruned:>9,} pruned at {hour.micros_per_task:.1f} us each",
                    flush=True,
                )
        finally:
            server.stop()
    grown = growth(hours)
    share = hours[-1].micros_per_task * PER_SECOND / 1e6
    holds = grown <= MOST_GROWTH and share < 1
    print(f"Hour 24 against hour {KEEP_HOURS + 4}: {grown:.2f} times as large, at most {MOST_GROWTH}")
    print(
        f"At {PER_SECOND:,} tasks/s, pruning takes {share:.1%} of the time: {'holds' if holds else 'MISSED'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
