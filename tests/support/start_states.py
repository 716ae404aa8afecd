"""Start states that are made once by the engine's own functions, and put back as often as a test wants."""

import json
import re

from support import engine
from support.clock import NOON, Clock
from support.engine import Connection, Row

HOLDER = "h"
TYPE = "race.run"

_LOADS_PER_VACUUM = (
    200  # the same rows again and again leave dead ones behind, and those slow everything down
)
_KEPT = {"setting", "executor", "installation", "test_clock", "crash_detector", "limit_lock"}
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# What two histories must agree on. Times can be compared, because the clock stands still.
_PICTURE = """
    select jsonb_build_object(
      'ready', (select jsonb_agg(
        jsonb_build_array(r.task_id, r.run_at, r.attempt, l.queue, l.type, l.priority))
        from queues.ready r left join queues.lane l using (lane_id)),
      'lease', (select jsonb_agg(jsonb_build_array(l.task_id, l.worker_id, l.attempt, l.deleted,
        l.lease_until, l.started_at, l.run_at, least(l.token, %(new)s))) from queues.lease l),
      'outcome', (select jsonb_agg(jsonb_build_array(o.task_id, o.status, o.attempt, o.worker_id, o.reason,
        least(o.token, %(new)s))) from queues.outcome o),
      'deletion', (select jsonb_agg(jsonb_build_array(d.task_id, d.reason, d.parked_run_at, d.parked_attempt))
        from queues.deletion d),
      'key', (select jsonb_agg(jsonb_build_array(k.type, k.idempotency_key, k.task_id))
        from queues.task_key k),
      'task', (select jsonb_agg(jsonb_build_array(t.task_id, t.type, t.idempotency_key)) from queues.task t),
      'error', (select jsonb_agg(jsonb_build_array(e.task_id, e.kind, e.attempt, e.recovered, e.retry_at))
        from queues.error e),
      'act', (select jsonb_agg(jsonb_build_array(a.task_id, a.queue, a.act, a.attempt, a.reason))
        from queues.act a),
      'limit', (select jsonb_agg(
        jsonb_build_array(t.subject, t.name, t.max_running, t.per_key, t.rate, t.tokens))
        from queues.task_limit t),
      'paused', (select jsonb_agg(p.queue) from queues.paused_queue p),
      'worker', (select jsonb_agg(jsonb_build_array(w.worker_id, w.hostname, w.in_flight, w.idle))
        from queues.worker w),
      'loss', (select jsonb_agg(jsonb_build_array(l.worker_id, l.recovered, l.dead)) from queues.loss l),
      'leadership', (select jsonb_agg(jsonb_build_array(l.worker_id, l.term, l.leader_until))
        from queues.leadership l))::text"""


class Stage:
    """One database and its start states, each with the tasks and the tickets that calls refer to."""

    def __init__(self, admin: Connection) -> None:
        self.admin = admin
        engine.allow_changes(admin)
        self.clock = Clock(admin)
        self.names: dict[str, dict[str, str]] = {}
        self._new: dict[str, int] = {}
        self._loaded = 0
        found = engine.rows(
            admin,
            "select relname from pg_class where relnamespace = 'queues'::regnamespace and relkind = 'r'",
        )
        self._tables = sorted({row["relname"] for row in found} - _KEPT)
        columns = engine.rows(
            admin,
            """select c.relname as name, string_agg(attname, ', ' order by attnum) as columns
               from pg_attribute a join pg_class c on c.oid = a.attrelid
               where c.relnamespace = 'queues'::regnamespace and c.relkind = 'r' and attnum > 0
                 and not attisdropped and attgenerated = '' group by 1""",
        )
        self._columns = {row["name"].removeprefix("queues."): row["columns"] for row in columns}

    def save(self, state: str, tasks: dict[str, Row]) -> None:
        """Keep what is in the database now under this name; `tasks` are what calls will be about."""
        copies = [f'create table "{state}".{table} as table queues.{table}' for table in self._tables]
        back = [
            f"delete from queues.{table}; "
            f"insert into queues.{table} ({self._columns[table]}) overriding system value "
            f'select {self._columns[table]} from "{state}".{table}'
            for table in self._tables
        ]
        clock = f"update queues.test_clock set stands_at = '{self.clock.now.isoformat()}'"
        body = ";\n".join([*back, clock])
        self.admin.execute(f'create schema "{state}"'.encode())
        self.admin.execute(";\n".join(copies).encode())
        function = (
            f'create function "{state}".load() returns void language plpgsql as $$ begin {body}; end $$'
        )
        self.admin.execute(function.encode())
        self.names[state] = {
            name: str(value)
            for label, task in tasks.items()
            for name, value in ((f"{label}_id", task["task_id"]), (f"{label}_token", task.get("token", 0)))
        }
        held = [{"task_id": str(task["task_id"]), "token": task.get("token")} for task in tasks.values()]
        self.names[state] |= {"forwards": json.dumps(held), "backwards": json.dumps(held[::-1])}
        self._new[state] = engine.value(self.admin, "select last_value + 1 from queues.token")

    def clear(self) -> None:
        self.admin.execute(f"truncate {', '.join('queues.' + table for table in self._tables)}".encode())
        self.clock.set(NOON)

    def load(self, state: str) -> None:
        self._loaded += 1
        if self._loaded % _LOADS_PER_VACUUM == 0:
            self.admin.execute(f"vacuum {', '.join('queues.' + table for table in self._tables)}".encode())
        self.admin.execute(f'select "{state}".load()'.encode())

    def picture(self, state: str) -> str:
        text = engine.value(self.admin, _PICTURE, {"new": self._new[state]})
        tables = json.loads(self.anonymous(state, text))
        return "\n".join(
            f"{table}: {sorted(map(json.dumps, found or []))}" for table, found in tables.items()
        )

    def anonymous(self, state: str, text: str) -> str:
        """Tasks of the start state keep a name; those that were made since are all called new."""
        known = {value: name for name, value in self.names[state].items() if name.endswith("_id")}
        return _ID.sub(lambda found: known.get(found[0], "new"), text)
