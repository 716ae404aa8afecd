"""What races with what: every call that changes something, and the states in which calls meet."""

from collections.abc import Iterator

from support import engine
from support.engine import Connection, Row
from support.interleaving import Call
from support.start_states import HOLDER, Stage

_KEYED = "select queues.enqueue('race.run', idempotency_key => '{key}'{more})"
_HELD = "jsonb_build_array(jsonb_build_object('task_id', '{t_id}', 'token', {t_token}{more}))"

BUSY = "select 'busy' from queues.lease where task_id = '{t_id}' and token = {t_token}"
BUSY_BEAT = f"""
with beaten as (
  update queues.worker set last_heartbeat = queues.clock(), in_flight = 1 where worker_id = '{HOLDER}')
{BUSY}"""
# A sweep that holds the lease has looked at the worker before this heartbeat, and takes the lease of a late
# worker. The heartbeat of a begun task that is busy sets no listed_at, so the attempt counts; then it is lost
BUSY_BEAT_TOO_LATE = f"""
with beaten as (update queues.worker set in_flight = 1 where worker_id = '{HOLDER}')
{BUSY}"""


def _enqueue(name: str, key: str, more: str = "") -> Call:
    return Call(name, _KEYED.replace("{key}", key).replace("{more}", more))


def _report(function: str, more: str = "", name: str | None = None) -> Call:
    held = _HELD.replace("{more}", more)
    statement = f"select verdict from queues.{function}('{HOLDER}', {held})"
    if function != "heartbeat":
        return Call(name or function, statement, passing=(BUSY,))
    unsaid = f"{statement}; update queues.worker set in_flight = 0 where worker_id = '{HOLDER}'"
    return Call(function, statement, passing=(BUSY, BUSY_BEAT, BUSY_BEAT_TOO_LATE, unsaid))


def _finish(status: str, more: str = "") -> Call:
    return _report("finish", f", 'status', '{status}'{more}", f"finish {status}")


def _act(function: str, more: str = ", '{side}'") -> Call:
    return Call(function, f"select queues.{function}('{{t_id}}'{more})")


LATER = (
    "'2030-02-01 00:00Z'::timestamptz + case '{side}' when 'a' then interval '1 s' else interval '2 s' end"
)
ON_KEYS = [
    _enqueue("enqueue", "k"),
    _enqueue("enqueue with a fresh key", "k2"),
    _enqueue("enqueue with a key that means something else", "k", ", payload => '[1]'"),
    Call(
        "enqueue_many",
        """select e.task_id, e.created from queues.enqueue_many('[
             {{"type": "race.run", "idempotency_key": "k2"}},
             {{"type": "race.run", "idempotency_key": "k"}}]') e""",
    ),
]
ON_TASKS = [
    *ON_KEYS,
    Call("claim", "select task_id, attempt, lease_until from queues.claim('{side}', 9, array['race'])", ""),
    _report("heartbeat", ", 'started_at', queues.clock()"),
    _finish("succeeded"),
    _finish("failed"),
    _finish("retry", ", 'run_at', queues.clock()"),
    _finish("snooze", ", 'run_at', queues.clock() + interval '1 minute'"),
    _finish("cancelled"),
    _report("release"),
    Call("sweep", "select recovered, dead from queues.sweep()", "0, 0"),
    Call("recover_workers", "select worker_id, recovered, dead, removed from queues.recover_workers()", ""),
    _act("cancel"),
    _act("retry"),
    _act("delete_task"),
    _act("restore_task"),
    _act("reschedule", f", {LATER}"),
    _act("watch", ""),
    Call("prune failed", "select pruned from queues.prune('failed')", "0"),
    Call("prune deleted", "select pruned from queues.prune('deleted')", "0"),
]
ON_QUEUES = [
    Call("pause", "select queues.pause('race', '{side}')"),
    Call("resume", "select queues.resume('race', '{side}')"),
    Call("set_limit", "select queues.set_limit('queue', 'race', 100)"),
    Call("drop_limit", "select queues.drop_limit('queue', 'race')"),
    Call("tidy_lanes", "select queues.tidy_lanes()"),
]
ON_WORKERS = [
    Call("register_worker", f"select queues.register_worker('{HOLDER}', '{{side}}')"),
    Call("retire_worker", f"select queues.retire_worker('{HOLDER}')"),
    Call("mark_idle", f"select queues.mark_idle('{HOLDER}', true)"),
    Call("lead again", f"select queues.lead('{HOLDER}')"),
    Call("lead", "select queues.lead('{side}')"),
    Call("resign", f"select queues.resign('{HOLDER}')"),
]

_ASK = "select queues.enqueue('race.run', concurrency_key => 'c')"
_MANY = """select e.created from queues.enqueue_many('[{{"type": "race.run", "concurrency_key": "c"}}]') e"""
_LIMIT = "select queues.set_limit('queue', 'race', max_running => 1, per_key => 1, rate => 2, per => '1 day')"
# Where a limit binds: two tasks of one key, of which one runs, or none. A claim says how many it took and not
# which, because a task that was made since has another id each time.
WITH_LIMITS = [
    Call(
        "claim within limits",
        "select count(*) from queues.claim('{side}', 9, array['race'], after => '{{}}')",
        "0",
    ),
    _finish("succeeded"),
    _finish("retry", ", 'run_at', queues.clock()"),
    _report("release"),
    _act("cancel"),
    _act("delete_task"),
    _act("reschedule", f", {LATER}"),
    Call("sweep", "select recovered, dead from queues.sweep()", "0, 0"),
    Call("enqueue with a concurrency key", _ASK),
    Call("enqueue_many with a concurrency key", _MANY),
    Call("set_limit to one at a time", _LIMIT),
    Call("drop_limit", "select queues.drop_limit('queue', 'race')"),
    Call("tidy_lanes", "select count(queues.tidy_lanes()) from generate_series(1, 2)"),
]
LIMITED_STATES = [
    "key free",
    "key runs",
    "key runs under a limit",
    "key runs and is waited for",
    "key is waited for and free",
    "key idle",
    "key idle and found so",
]


def _batches() -> Iterator[Call]:
    each = """select jsonb_agg(e || '{{"status": "{status}"}}') from jsonb_array_elements({batch}) e"""
    for order in ("forwards", "backwards"):
        batch = f"'{{{order}}}'"
        for function in ("heartbeat", "release"):
            yield Call(
                f"{function} {order}",
                f"select task_id, verdict from queues.{function}('{HOLDER}', {batch}) order by task_id",
                passing=(BUSY,),
            )
        for status in ("succeeded", "snooze"):
            results = each.replace("{status}", status).replace("{batch}", batch)
            yield Call(
                f"finish {status} {order}",
                f"select task_id, verdict from queues.finish('{HOLDER}', ({results})) order by task_id",
                passing=(BUSY,),
            )
        keys = ["new1", "new2", "k0", "k1"][:: 1 if order == "forwards" else -1]
        asked = ", ".join(f'{{{{"type": "race.run", "idempotency_key": "{key}"}}}}' for key in keys)
        yield Call(
            f"enqueue_many {order}",
            f"select task_id, created from queues.enqueue_many('[{asked}]') order by task_id, created",
        )


KEY_BATCHES = [call for call in _batches() if call.name.startswith("enqueue_many")]
IN_BATCHES = [
    *_batches(),
    *(
        call
        for call in ON_TASKS
        if call.name in {"sweep", "recover_workers", "cancel", "delete_task", "watch"}
    ),
]
BATCH_STATES = ["two expired", "two deleted while expired", "six expired"]
EVERY = [*ON_TASKS, *ON_QUEUES, *ON_WORKERS]
NAMED = {call.name: call for call in EVERY}

TASK_STATES = [
    "due",
    "later",
    "leased",
    "expired",
    "last attempt expired",
    "deleted while leased",
    "deleted while expired",
    "failed",
    "succeeded",
    "cancelled",
    "parked",
    "deleted when failed",
]
TOO_OLD = {"failed", "parked", "deleted when failed"}
KEY_STATES = ["due", "failed", "parked", "deleted when failed"]
QUEUE_STATES = ["due", "paused"]
WORKER_STATES = ["leased", "led", "term over"]


def build(stage: Stage) -> None:
    """Make every start state by the functions under test, one session, one step after the other."""
    conn = stage.admin
    for state in dict.fromkeys([*TASK_STATES, *QUEUE_STATES, *WORKER_STATES]):
        stage.clear()
        for kind in ("failed", "deleted"):
            engine.call(conn, "queues.set_retention", {"status": kind, "keep": "1 minute"})
        stage.save(state, {"t": _task(stage, conn, state)})
    for state in LIMITED_STATES:
        stage.clear()
        stage.save(state, {"t": _limited(stage, conn, state)})
    for state in BATCH_STATES:
        stage.clear()
        tasks = _batch(stage, conn, state)
        stage.save(state, {chr(ord("t") + place): task for place, task in enumerate(tasks)})


def _task(stage: Stage, conn: Connection, state: str) -> Row:
    attempts = 1 if state.startswith("last attempt") else 3
    engine.call(conn, "queues.register_worker", {"worker_id": HOLDER, "queues": ["race"]})
    engine.enqueue(conn, "race.run", idempotency_key="k", max_attempts=attempts)
    task = engine.claim_one(conn, HOLDER, queues=["race"])
    if state in {"due", "later", "parked", "paused"}:
        engine.release(conn, engine.held(task), HOLDER)  # so that there is a ticket, though a used one
    if state in {"failed", "deleted when failed", "succeeded"}:
        engine.end(conn, task, "succeeded" if state == "succeeded" else "failed", HOLDER)
    if state == "cancelled":
        engine.act(conn, "cancel", task["task_id"])
    if state == "later":
        engine.act(conn, "reschedule", task["task_id"], run_at=stage.clock.after(3600))
    if "deleted" in state or state == "parked":
        engine.act(conn, "delete_task", task["task_id"])
    if state == "paused":
        engine.answer(conn, "queues.pause", {"queue": "race"})
    if state in {"led", "term over"}:
        engine.answer(conn, "queues.lead", {"worker_id": HOLDER})
    if "expired" in state or state in TOO_OLD or state == "term over":
        # Past the lease, past the term, past what is kept; and the holder has been silent for too long.
        stage.clock.advance(61)
    return task


def _limited(stage: Stage, conn: Connection, state: str) -> Row:
    """A task that runs or is over, and another of its key that waits, or none."""
    engine.call(conn, "queues.register_worker", {"worker_id": HOLDER, "queues": ["race"]})
    if "limit" in state:
        conn.execute(_LIMIT.encode())
    engine.enqueue(conn, "race.run", concurrency_key="c")
    task = engine.claim_one(conn, HOLDER, queues=["race"])
    if "waited for" in state:
        for _ in range(2):
            engine.enqueue(conn, "race.run", concurrency_key="c")
        assert engine.claim(conn, HOLDER, max_tasks=9, queues=["race"]) == []
    if "runs" not in state:
        engine.end(conn, task, worker_id=HOLDER)
    if state == "key is waited for and free":
        # The next one may be claimed, and another waits for its end.
        found = "select task_id from queues.ready join queues.lane using (lane_id) where concurrency_key = ''"
        return {**task, "task_id": engine.value(conn, found)}
    if state == "key free" or ("runs" in state and "waited" not in state):
        engine.enqueue(conn, "race.run", concurrency_key="c")
    stage.clock.advance(61 if "idle" in state else 15)
    if "found" in state:
        assert engine.answer(conn, "queues.tidy_lanes", {}) == 1
    return task


def _batch(stage: Stage, conn: Connection, state: str) -> list[Row]:
    """Each with somebody who waits for its end, who came in the reverse order."""
    size = 6 if state.startswith("six") else 2
    engine.call(conn, "queues.register_worker", {"worker_id": HOLDER, "queues": ["race"]})
    for number in range(size):
        engine.enqueue(conn, "race.run", idempotency_key=f"k{number}")
    tasks = engine.claim(conn, HOLDER, max_tasks=size, queues=["race"])
    for task in reversed(tasks):
        engine.call(conn, "queues.watch", {"task_id": task["task_id"], "ttl": "30 seconds"})
        if "deleted" in state:
            engine.act(conn, "delete_task", task["task_id"])
    if "expired" in state:
        stage.clock.advance(61)
    return tasks
