"""The states of a database that a claim must not notice. Ids are in order, as those of enqueued tasks are."""

from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

FINISHED = """
with made as (
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
    enqueued_by, namespace, payload)
  select (left(first.id::text, 30) || right(to_hex(16777216 + n), 6))::uuid,
    now(), now(), 0, 3, 'bench.noop', 'bench', 'python',
    'bench', 'bench', '{"n": 1}'
  from (select queues.new_task_id() as id offset 0) first, generate_series(1, %s) n returning task_id)
insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status, worker_id)
select task_id, 1, now(), now(), now(), 1, 'succeeded', 'w0' from made
"""
WAITING = """
with lanes as (
  insert into queues.lane (made_at, queue, type, priority, namespace)
  select now(), q, q || '.noop', %(priority)s, 'bench' from unnest(%(queues)s::text[]) q
  returning lane_id, queue, type),
made as (
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
    enqueued_by, namespace, payload)
  select (left(l.first_id::text, 30) || right(to_hex(16777216 + n), 6))::uuid,
    now(), now() + %(later)s::interval, %(priority)s, 3,
    l.type, l.queue, 'python', 'bench', 'bench', '{"n": 1}'
  from (select lanes.*, queues.new_task_id() as first_id from lanes offset 0) l,
    generate_series(1, %(count)s) n
  returning task_id, run_at, queue)
insert into queues.ready (task_id, run_at, lane_id, attempt)
select m.task_id, m.run_at, l.lane_id, 0 from made m join lanes l on l.queue = m.queue
"""

GREW = """
with made as (
  insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
    enqueued_by, namespace, payload)
  select (left(first.id::text, 30) || right(to_hex(16777216 + n), 6))::uuid,
    now(), now(), 0, 3, 'bench.noop', 'bench', 'python',
    'bench', 'bench', '{"n": 1}'
  from (select queues.new_task_id() as id offset 0) first, generate_series(1, %s) n
  returning task_id, run_at)
insert into queues.ready (task_id, run_at, lane_id, attempt)
select m.task_id, m.run_at, lane.id, 0
from made m, (select queues.lane_for('bench', 'bench.noop', 0, null, 'bench') as id offset 0) lane
"""
MILLION = 1_000_000


def nothing(_connection: Connection) -> None:
    """A database that has never worked."""


def a_million_finished(connection: Connection) -> None:
    connection.execute(FINISHED, (MILLION,))


def a_million_for_tomorrow(connection: Connection) -> None:
    later = {"queues": ["bench"], "priority": 9, "later": "1 day", "count": MILLION}
    connection.execute(WAITING, later)


def two_hundred_other_queues(connection: Connection) -> None:
    names = [f"other{number}" for number in range(200)]
    connection.execute(WAITING, {"queues": names, "priority": 0, "later": "0", "count": 1000})


def another_queue_limited(connection: Connection) -> None:
    connection.execute("select queues.set_limit('queue', 'elsewhere', max_running => 5)")


def at_most_a_thousand_at_once(connection: Connection) -> None:
    connection.execute("select queues.set_limit('queue', 'bench', max_running => 1000)")


def a_rate_never_reached(connection: Connection) -> None:
    connection.execute("select queues.set_limit('queue', 'bench', rate => 1000000, per => '1 second')")


def a_backlog(connection: Connection, count: int) -> None:
    """So many tasks that wait, with those that were there."""
    row = connection.execute("select count(*) from queues.ready").fetchone()
    assert row is not None
    for made in range(row[0], count, MILLION):
        connection.execute(GREW, (min(MILLION, count - made),))
