"""What holds of the whole database after every committed step, whatever went wrong in between."""

from typing import Any

import psycopg

# Each query finds what must not be there.
_BROKEN = {
    "a task has exactly one of ready, lease, outcome and a deletion that parks it": """
        select t.task_id from queues.task t
        where (select count(*) from queues.ready r where r.task_id = t.task_id)
            + (select count(*) from queues.lease l where l.task_id = t.task_id)
            + (select count(*) from queues.outcome o where o.task_id = t.task_id)
            + (select count(*) from queues.deletion d
               where d.task_id = t.task_id and d.parked_run_at is not null) <> 1""",
    "every row that says where a task stands has its task": """
        select s.task_id from (
          select task_id from queues.ready union all select task_id from queues.lease
          union all select task_id from queues.outcome union all select task_id from queues.deletion
          union all select task_id from queues.task_key) s
        where not exists (select from queues.task t where t.task_id = s.task_id)""",
    "what waits or runs is in a lane of its queue, type and priority, and of its key if it has one": """
        select s.task_id from (
          select task_id, lane_id from queues.ready union all select task_id, lane_id from queues.lease) s
        join queues.task t on t.task_id = s.task_id
        left join queues.lane l on l.lane_id = s.lane_id
        where (l.queue, l.priority) is distinct from (t.queue, t.priority) or l.type not in (t.type, '')
          or (l.concurrency_key is null) <> (t.concurrency_key is null)
          or l.concurrency_key > ''
            and (l.concurrency_key <> t.concurrency_key or l.namespace <> t.namespace)""",
    "what waits for another task of its key is behind one that runs, or that can be claimed": """
        select r.task_id from queues.ready r join queues.lane l on l.lane_id = r.lane_id
        where l.concurrency_key > ''
          and not exists (
            select from queues.lease e join queues.task t on t.task_id = e.task_id
            where t.concurrency_key = l.concurrency_key and t.namespace = l.namespace and e.awaited)
          and not exists (
            select from queues.ready o
            join queues.lane n on n.lane_id = o.lane_id
            join queues.task t on t.task_id = o.task_id
            where t.concurrency_key = l.concurrency_key and t.namespace = l.namespace
              and n.concurrency_key = '')""",
    "attempts are counted within their limit": """
        select t.task_id from queues.task t
        left join queues.ready r on r.task_id = t.task_id
        left join queues.lease l on l.task_id = t.task_id
        left join queues.outcome o on o.task_id = t.task_id
        left join queues.deletion d on d.task_id = t.task_id
        where not coalesce(r.attempt, d.parked_attempt, 0) between 0 and t.max_attempts - 1
           or not coalesce(l.attempt, 1) between 1 and t.max_attempts
           or not coalesce(o.attempt, 0) between 0 and t.max_attempts""",
    "a task that is not deleted holds its key, and only such a task does": """
        select t.task_id from queues.task t
        left join queues.task_key k
          on k.type = t.type and k.idempotency_key = t.idempotency_key and k.namespace = t.namespace
            and k.task_id = t.task_id
        left join queues.deletion d on d.task_id = t.task_id
        where t.idempotency_key is not null and (k.task_id is null) <> (d.task_id is not null)""",
    "a lease has the generation of its task": """
        select l.task_id from queues.lease l join queues.task t on t.task_id = l.task_id
        where l.generation is distinct from t.generation""",
    "the first generation of a run that went on is kept, and none is later than the current one": """
        select t.task_id from queues.task t
        where (t.generation is not null) <> exists (
            select from queues.generation g where g.task_id = t.task_id and g.number = 1)
          or t.generation < 2
          or exists (
            select from queues.generation g where g.task_id = t.task_id and g.number >= t.generation)
          or exists (
            select from queues.step s
            where s.task_id = t.task_id and s.generation > coalesce(t.generation, 1))""",
    "a lease knows whether its task was deleted": """
        select l.task_id from queues.lease l left join queues.deletion d on d.task_id = l.task_id
        where l.deleted <> (d.task_id is not null)""",
    "a lease has a token that was issued": """
        select l.task_id from queues.lease l, queues.token s where l.token > s.last_value""",
}


def assert_invariant(conn: psycopg.Connection[Any]) -> None:
    """As a login that may read every table; in a transaction that sees no half of another one."""
    if conn.execute("select count(*) > 5000 from queues.task").fetchone() == (True,):
        conn.execute("analyze queues.task, queues.ready, queues.lease, queues.outcome, queues.lane")
    broken = {rule: conn.execute(query.encode()).fetchall() for rule, query in _BROKEN.items()}
    assert {rule: found for rule, found in broken.items() if found} == {}
