"""The states of a database that a claim must not notice."""

from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

FINISHED = """
with made as (
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
    enqueued_by, spec_hash, payload)
  select queues.nth_task_id(gen_random_uuid(), n), now(), now(), 0, 3, 'bench.noop', 'bench', 'python',
    'bench', '\\x00'::bytea, '{"n": 1}'
  from generate_series(1, %s) n returning task_id)
insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id)
select task_id, 1, now(), now(), now(), 1, 'succeeded', 'w0' from made
"""
WAITING = """
with lanes as (
  insert into queues.lane (queue, type, priority)
  select q, q || '.noop', %(priority)s from unnest(%(queues)s::text[]) q returning lane_id, queue, type),
made as (
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
    enqueued_by, spec_hash, payload)
  select queues.nth_task_id(gen_random_uuid(), n), now(), now() + %(later)s::interval, %(priority)s, 3,
    l.type, l.queue, 'python', 'bench', '\\x00'::bytea, '{"n": 1}'
  from lanes l, generate_series(1, %(count)s) n returning task_id, run_at, queue)
insert into queues.ready (task_id, run_at, lane_id, attempt)
select m.task_id, m.run_at, l.lane_id, 0 from made m join lanes l on l.queue = m.queue
"""


def nothing(_connection: Connection) -> None:
    """A database that has never worked."""


def a_million_finished(connection: Connection) -> None:
    connection.execute(FINISHED, (1_000_000,))


def a_million_for_tomorrow(connection: Connection) -> None:
    later = {"queues": ["bench"], "priority": 9, "later": "1 day", "count": 1_000_000}
    connection.execute(WAITING, later)


def two_hundred_other_queues(connection: Connection) -> None:
    names = [f"other{number}" for number in range(200)]
    connection.execute(WAITING, {"queues": names, "priority": 0, "later": "0", "count": 1000})
