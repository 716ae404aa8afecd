"""No call reads a large table from end to end, and none gets dearer by what it has nothing to do with.

Each backlog is one test, because a million rows are loaded once. A session that has planned its statements
while the tables were almost empty meets the backlog without new statistics, then with them; then a new one.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import pytest

from support import backlog, engine
from support.database import Database
from support.engine import Connection, Row
from support.query_cost import Effort, Meter, nodes

LARGE = {"task", "ready", "lease", "outcome", "error", "act", "deletion", "task_key"}
FEW, STALE = "with few rows", "with stale statistics"
TAIL = 50  # pages that a call may touch whatever it does: catalogs, settings, lanes


def nothing_before(conn: Connection) -> Row:
    return {}


@dataclass(frozen=True)
class Call:
    name: str
    statement: str
    units: int = 1  # tasks that the call is about
    pages: int = 20  # that it may touch for each of them
    growth: int = 2  # times as many when indexes have three levels instead of one
    planned_anew: bool = False  # at every call, by what the statistics say then
    whole: frozenset[str] = frozenset()  # tables that it may read to the end, because they are never large
    before: Callable[[Connection], Row] = nothing_before


def tickets(conn: Connection) -> Row:
    """A hundred tasks that this session holds."""
    held = engine.held(*engine.claim(conn, "m", max_tasks=100, queues=["solo"]))
    mixed = ["succeeded", "failed", "retry", "snooze", "cancelled"]
    return {
        "id": held[0]["task_id"],
        "held": _json(held),
        "succeeded": _json([{**each, "status": "succeeded"} for each in held]),
        "mixed": _json([{**each, "status": mixed[n % 5], "error": "no"} for n, each in enumerate(held)]),
    }


def limited(conn: Connection) -> Row:
    """For a while: at first, claims also count what was claimed when nobody knew the limits."""
    for subject, name in (("queue", "solo"), ("type", "work.a")):
        limit = {"subject": subject, "name": name, "max_running": 1000, "rate": 1000, "per": "1 s"}
        engine.call(conn, "queues.set_limit", limit)
    conn.execute("update queues.test_clock set shifted_by = '1 minute'")
    return {}


def stale_tickets(conn: Connection) -> Row:
    given = tickets(conn)
    engine.finish(conn, json.loads(given["mixed"]), "m")
    return given


def expired(conn: Connection) -> Row:
    given = tickets(conn)
    conn.execute("update queues.test_clock set shifted_by = '2 hours'")
    return given


def old(conn: Connection) -> Row:
    """A hundred ended tasks that retention removes; the backlog beside them stays."""
    given = tickets(conn)
    engine.finish(conn, json.loads(given["succeeded"]), "m")
    conn.execute("select queues.set_retention('succeeded', '1 hour', 'solo.')")
    conn.execute("update queues.test_clock set shifted_by = '2 hours'")
    return {"past": _uuid_before(given["id"])}


def deleted_long_ago(conn: Connection) -> Row:
    given = deleted(conn)
    conn.execute("select queues.set_retention('deleted', '1 hour')")
    conn.execute("update queues.test_clock set shifted_by = '2 hours'")
    return given


def _uuid_before(task_id: object) -> UUID:
    return UUID(int=UUID(str(task_id)).int - 1)


def due(conn: Connection) -> Row:
    found = engine.rows(
        conn, "select task_id from queues.task_status where type = 'solo.x' order by task_id limit 1"
    )
    return {"id": found[0]["task_id"]}


def failed(conn: Connection) -> Row:
    task = engine.claim_one(conn, "m", queues=["solo"])
    engine.end(conn, task, "failed", "m")
    return {"id": task["task_id"]}


def deleted(conn: Connection) -> Row:
    given = due(conn)
    engine.act(conn, "delete_task", given["id"])
    return given


def _json(value: object) -> str:
    return json.dumps(value, default=str)


def _batch(size: int, **more: str) -> str:
    return _json(
        [{"type": "solo.x", **{name: f"{key} {n}" for name, key in more.items()}} for n in range(size)]
    )


CALLS = [
    Call("claim from one lane", "select * from queues.claim('m', 100, array['solo'])", 100),
    Call("claim from many lanes", "select * from queues.claim('m', 100, array['work'])", 100),
    Call("claim by prefix", "select * from queues.claim('m', 100, null, array['work.'])", 100),
    Call("claim under a limit", "select * from queues.claim('m', 100, array['solo'])", 100, before=limited),
    Call(
        "claim where one type has a limit",
        "select * from queues.claim('m', 100, array['work'])",
        100,
        before=limited,
    ),
    Call("claim one", "select * from queues.claim('m', 1, array['work'])", pages=100),
    Call("ring", "select queues.notify_idle(array['work', 'solo'])", pages=200),
    Call("claim nothing", "select * from queues.claim('m', 100, array['empty'])"),
    Call("heartbeat", "select * from queues.heartbeat('m', '{held}')", 100, before=tickets),
    Call("heartbeat, late", "select * from queues.heartbeat('m', '{held}')", 100, before=stale_tickets),
    Call("finish", "select * from queues.finish('m', '{succeeded}')", 100, before=tickets),
    Call("finish, mixed", "select * from queues.finish('m', '{mixed}')", 100, 30, before=tickets),
    Call("finish, late", "select * from queues.finish('m', '{mixed}')", 100, 30, before=stale_tickets),
    Call("release", "select * from queues.release('m', '{held}')", 100, 40, before=tickets),
    Call("release, late", "select * from queues.release('m', '{held}')", 100, 40, before=stale_tickets),
    # Also reads the worker of each task, and steps over what the calls above have rolled back.
    Call("sweep", "select * from queues.sweep(100)", 100, 60, whole=frozenset({"lease"}), before=expired),
    Call(
        "recover_workers",
        "select * from queues.recover_workers(100)",
        100,
        60,  # as a sweep, which recovers in the same way
        3,
        whole=frozenset({"lease"}),
        before=expired,
    ),
    Call("prune", "select * from queues.prune('succeeded', 100, '{past}')", 100, 50, before=old),
    # There is little to look at in a small backlog; in a large one, five times as much as may go.
    Call("prune from the start", "select * from queues.prune('succeeded', 100)", 500, 25, 100, before=old),
    Call("prune failed", "select * from queues.prune('failed', 100)", 500, 25, 1000, before=old),
    Call("prune deleted", "select * from queues.prune('deleted', 100)", 1, 300, before=deleted_long_ago),
    Call("enqueue", "select queues.enqueue('solo.x')", pages=50),
    Call("enqueue, keyed", "select queues.enqueue('solo.x', idempotency_key => 'new')", pages=50),
    Call("enqueue, known key", "select queues.enqueue('solo.x', idempotency_key => 'k 1')", pages=50),
    Call("enqueue_many", f"select * from queues.enqueue_many('{_batch(100)}')", 100),
    Call(
        "enqueue_many, keyed",
        f"select * from queues.enqueue_many('{_batch(100, idempotency_key='new')}')",
        100,
        30,
    ),
    Call(
        "enqueue_many, known keys",
        f"select * from queues.enqueue_many('{_batch(100, idempotency_key='k')}')",
        100,
        30,
    ),
    Call("cancel, due", "select queues.cancel('{id}')", pages=100, before=due),
    Call("cancel, leased", "select queues.cancel('{id}')", pages=100, before=tickets),
    Call("cancel, ended", "select queues.cancel('{id}')", pages=100, before=failed),
    Call("retry", "select queues.retry('{id}')", pages=100, before=failed),
    Call("delete, due", "select queues.delete_task('{id}')", pages=100, before=due),
    Call("delete, leased", "select queues.delete_task('{id}')", pages=100, before=tickets),
    Call("delete, ended", "select queues.delete_task('{id}')", pages=100, before=failed),
    Call("restore", "select queues.restore_task('{id}')", pages=100, before=deleted),
    Call("reschedule", "select queues.reschedule('{id}', queues.clock())", pages=100, before=due),
    Call("watch", "select queues.watch('{id}')", pages=100, before=due),
    # It counts those before it, and steps over what the calls above have put there and rolled back.
    Call("explain, due", "select queues.explain('{id}')", pages=1000, growth=10, before=due),
    Call("explain, leased", "select queues.explain('{id}')", pages=100, before=tickets),
    Call("explain, ended", "select queues.explain('{id}')", pages=100, before=failed),
    Call("health", "select * from queues.health()", 2000, 10, growth=100),
    Call("due schedules", "select * from queues.due_schedules()"),
    Call("list the newest", "select * from queues.list_tasks()", 50, 40, growth=3),
    Call("list a rare status", "select * from queues.list_tasks(status => 'failed')", 50, 40, growth=3),
    Call("list a common status", "select * from queues.list_tasks(status => 'succeeded')", 50, 60, growth=3),
    Call("list what runs", "select * from queues.list_tasks(status => 'claimed')", 50, 40, growth=3),
    Call("list what is due", "select * from queues.list_tasks(status => 'pending')", 50, 60, growth=3),
    Call("list a type", "select * from queues.list_tasks(type_prefix => 'solo.')", 50, 40, growth=3),
    # However many tasks there are, 50,000 are examined.
    Call(
        "list a type that no task has", "select * from queues.list_tasks(type_prefix => 'no.')", 6000, 1, 1000
    ),
    Call("find a type that none has", "select queues.find_tasks('succeeded', 'no')", 50_000, 10, 100_000),
    Call("search", "select * from queues.list_tasks(words => 'solo')", 20_000, 1, 1000),
    Call("search in vain", "select * from queues.list_tasks(words => 'nothing')", 10_000, 8, 100_000),
    Call("search a path", "select queues.find_tasks(payload_path => '$.nothing')", 10_000, 5, 100_000),
    Call("search a group", f"select queues.find_tasks(error_group => '{'0' * 32}')", 10_000, 10, 100_000),
    Call("count by status", "select * from queues.count_tasks()", 60_000, 1, 100_000),
    Call("count a type", "select * from queues.count_tasks(type_prefix => 'no.')", 60_000, 10, 100_000),
    Call("error groups", "select * from queues.list_error_groups()", 100, 10, 10),
    Call(
        "act on many",
        "select queues.act_on_tasks('cancel', array['{id}'::uuid])",
        pages=200,
        before=due,
    ),
    Call("list a queue", "select * from queues.list_tasks(queue => 'solo')", 50, 40, growth=3),
    Call(
        "status of one",
        "select * from queues.task_status where task_id = '{id}'",
        pages=50,
        planned_anew=True,
        before=failed,
    ),
    Call(
        "events of one",
        "select * from queues.task_event where task_id = '{id}'",
        pages=200,
        planned_anew=True,
        before=failed,
    ),
]


def furnish(conn: Connection) -> None:
    """A few tasks to work with: one queue has one lane, the other many, and one of them is for tomorrow."""
    engine.call(conn, "queues.register_worker", {"worker_id": "m", "queues": ["work", "solo"]})
    engine.enqueue(conn, "work.a", priority=9)
    engine.claim(conn, "m", queues=["work"])
    for type_, priority in [("work.a", 0), ("work.b", 0), ("work.c", 5), ("work.a", 5), ("work.d", -1)]:
        engine.enqueue_many(conn, [{"type": type_, "priority": priority}] * 60)
    engine.enqueue_many(conn, [{"type": "solo.x", "idempotency_key": f"k {n}"} for n in range(300)])


def efforts(meter: Meter, calls: list[Call] = CALLS) -> dict[str, Effort]:
    """Each call twice, because the first may still have to plan."""
    measured = {}
    for call in calls * 2:
        with meter.conn.transaction(force_rollback=True):
            given = {name: str(value) for name, value in call.before(meter.conn).items()}
            statement = call.statement.format(**given) if given else call.statement
            measured[call.name] = meter.measure(statement)
    return measured


def problems(when: str, found: dict[str, Effort], at_first: dict[str, Effort]) -> list[str]:
    """What is not as it should be, in words."""
    told = []
    for call in [call for call in CALLS if call.name in found]:
        effort, first = found[call.name], at_first[call.name]
        if call.planned_anew and when in {FEW, STALE}:
            continue
        if whole := {table for table, rows in effort.read_whole.items() if rows or not call.planned_anew} & (
            LARGE - call.whole
        ):
            told.append(f"{call.name} {when} reads all of {', '.join(sorted(whole))}{_culprits(effort)}")
        if effort.pages > call.units * call.pages + TAIL:
            told.append(f"{call.name} {when} touches {effort.pages} pages for {call.units} tasks")
        if effort.answered == first.answered and effort.pages > call.growth * first.pages + TAIL:
            told.append(f"{call.name} {when} touches {effort.pages} pages, and {first.pages} at first")
    return told


def _culprits(effort: Effort) -> str:
    whole = {
        plan["Query Text"]
        for plan in effort.plans
        for node in nodes(plan["Plan"])
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE
    }
    return "".join(f"\n  {text}" for text in whole)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "size", [0, *(pytest.param(size, marks=pytest.mark.full) for size in (100_000, 1_000_000))]
)
def test_work_does_not_depend_on_the_backlog(db: Database, size: int) -> None:
    admin, early = db.connect(), Meter(db.connect())
    backlog.prepare(admin)
    nothing = efforts(early, [call for call in CALLS if call.before is nothing_before])
    told = problems("with empty tables", nothing, nothing)
    furnish(admin)
    backlog.analyze(admin)
    at_first = efforts(early)
    told += problems(FEW, at_first, at_first)
    if size:
        backlog.load(admin, size)
        told += problems(STALE, efforts(early), at_first)
        backlog.analyze(admin)
        told += problems("with new statistics", efforts(early), at_first)
        told += problems("in a new session", efforts(Meter(db.connect())), at_first)
    assert not told, "\n".join(told)
