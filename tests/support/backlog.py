"""Backlogs that are written directly into the tables, because a million enqueues would take too long."""

from support.engine import Connection

_TABLES = [
    "lane",
    "task",
    "task_key",
    "ready",
    "lease",
    "outcome",
    "deletion",
    "error",
    "act",
    "worker",
    "waiter",
]

# Ids count up within a kind, and all are older than those of tasks that a test enqueues.
_ID = "('{kind:08}-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid"
_NOW = "(select queues.clock())"  # read once, not once per row
_TASK = f"""
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
      enqueued_by, namespace, payload)
    select {{id}}, {_NOW} - interval '1 day', {_NOW}, {{priority}}, 3, {{type}}, {{queue}}, 'python',
      session_user, session_user, '{{{{}}}}'
    from generate_series(1, {{size}}) i"""


def prepare(conn: Connection) -> None:
    """Keep statistics as stale as they are, and write no log, to load faster."""
    for table in _TABLES:
        conn.execute(f"alter table queues.{table} set (autovacuum_enabled = off)".encode())
        conn.execute(f"alter table queues.{table} set unlogged".encode())


def analyze(conn: Connection) -> None:
    conn.execute(f"analyze {', '.join('queues.' + table for table in _TABLES)}".encode())


def load(conn: Connection, size: int) -> None:
    """19 of 20 tasks have ended; as many again wait for tomorrow, at a higher priority than what is due."""
    _load_finished(conn, size * 19 // 20)
    _load_leased(conn, size // 50)
    _load_other_queues(conn, size // 50)
    _load_scheduled(conn, size)


def _load_finished(conn: Connection, size: int) -> None:
    ident = _ID.format(kind=1)
    _run(conn, _TASK.format(id=ident, priority=0, type="'work.a'", queue="'work'", size=size))
    _run(
        conn,
        f"""insert into queues.outcome (task_id, finished_at, attempt, status, worker_id)
            select {ident}, {_NOW}, 1,
              case when i % 1000 = 0 then 'failed' when i % 1001 = 0 then 'dead_letter' else 'succeeded' end,
              'gone'
            from generate_series(1, {size}) i""",
        f"""insert into queues.error (task_id, occurred_at, attempt, recovered, kind, message)
            select {ident}, {_NOW}, 1, false, 'handler_error', 'no'
            from generate_series(1, {size}, 20) i""",
        f"""insert into queues.act (task_id, act, occurred_at, actor)
            select {ident}, 'retried', {_NOW}, 'somebody' from generate_series(1, {size}, 20) i""",
        f"""insert into queues.task_key (type, idempotency_key, namespace, task_id)
            select 'work.a', 'old ' || i, session_user, {ident} from generate_series(1, {size}, 20) i""",
    )


def _load_leased(conn: Connection, size: int) -> None:
    ident = _ID.format(kind=2)
    _run(conn, _TASK.format(id=ident, priority=0, type="'work.b'", queue="'work'", size=size))
    _run(
        conn,
        f"""insert into queues.lease (task_id, token, claimed_at, lease_until, run_at, lane_id, attempt,
              lease_ms, deleted, worker_id)
            select {ident}, 0, {_NOW}, {_NOW} + interval '1 hour', {_NOW},
              {_lane("work.b", 0)}, 1, 3600000, false, 'somebody'
            from generate_series(1, {size}) i""",
    )


def _load_other_queues(conn: Connection, size: int) -> None:
    ident = _ID.format(kind=3)
    if not size:
        return
    _run(
        conn,
        f"""insert into queues.lane (made_at, queue, type, priority, namespace)
           select {_NOW}, 'other' || q, 'other' || q || '.' || t, p, 'somebody'
           from generate_series(1, 100) q, generate_series(1, 2) t, generate_series(0, 1) p""",
        _TASK.format(
            id=ident,
            priority=0,
            type="'other' || i % 100 + 1 || '.1'",
            queue="'other' || i % 100 + 1",
            size=size,
        ),
        """insert into queues.ready (task_id, run_at, lane_id, attempt)
            select t.task_id, t.run_at, l.lane_id, 0 from queues.task t
            join queues.lane l on l.queue = t.queue and l.type = t.type and l.priority = t.priority
            where t.queue like 'other%'""",
    )


def _load_scheduled(conn: Connection, size: int) -> None:
    """Only the newest have a task, to save time: no query should read the others."""
    ident = _ID.format(kind=4)
    _run(
        conn,
        f"""insert into queues.ready (task_id, run_at, lane_id, attempt)
            select {ident}, {_NOW} + interval '1 day', {_lane("work.a", 9)}, 0
            from generate_series(1, {size}) i""",
        _TASK.format(id=ident, priority=9, type="'work.a'", queue="'work'", size=size)
        + f" where i > {size} - 1000",
    )


def load_suspended(conn: Connection, queue: str, task_type: str, size: int) -> None:
    """Runs of a queue that wait for a signal for 30 days. The queue has tasks of this type already."""
    ident = _ID.format(kind=5)
    _run(
        conn,
        _TASK.format(id=ident, priority=0, type=f"'{task_type}'", queue=f"'{queue}'", size=size),
        f"""insert into queues.ready (task_id, run_at, lane_id, attempt)
            select {ident}, {_NOW} + interval '30 days', l.lane_id, 0
            from generate_series(1, {size}) i, queues.lane l
            where l.queue = '{queue}' and l.type = '{task_type}'""",
        f"""insert into queues.wait (task_id, name, until, signal)
            select {ident}, 'go', {_NOW} + interval '30 days', 'go' from generate_series(1, {size}) i""",
    )


def _lane(type: str, priority: int) -> str:  # noqa: A002
    return f"(select lane_id from queues.lane where type = '{type}' and priority = {priority} limit 1)"


def _run(conn: Connection, *statements: str) -> None:
    for statement in statements:
        conn.execute(statement.encode())
