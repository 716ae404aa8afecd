"""Who moves the row of a waiting task, and who waits for that row: every pair of them meets in a test.

In each start state, `t` is the task that moves. It holds the key k of unique tasks, if it can, and may have a
neighbour `u`: one of its concurrency key that runs, its child, or a task that it comes after.
"""

from collections.abc import Callable

from support import engine
from support.engine import Connection, Row
from support.interleaving import Call
from support.races import LATER
from support.start_states import HOLDER, Stage

_NEVER = "'2030-03-01 00:00Z'::timestamptz"
_TYPE = {"queues": ["race"], "max_tasks": 1}


def _held(task: str = "t", more: str = "") -> str:
    return (
        f"jsonb_build_array(jsonb_build_object('task_id', '{{{task}_id}}', 'token', {{{task}_token}}{more}))"
    )


def _finish(status: str, more: str = "") -> Call:
    held = _held(more=f", 'status', '{status}'{more}")
    busy = "select 'busy' from queues.lease where task_id = '{t_id}' and token = {t_token}"
    return Call(f"finish {status}", f"select verdict from queues.finish('{HOLDER}', {held})", passing=(busy,))


def _release() -> Call:
    busy = "select 'busy' from queues.lease where task_id = '{t_id}' and token = {t_token}"
    return Call("release", f"select verdict from queues.release('{HOLDER}', {_held()})", passing=(busy,))


def _act(function: str, more: str = ", '{side}'") -> Call:
    return Call(function, f"select queues.{function}('{{t_id}}'{more})")


def _on_tasks(act: str, more: str = "") -> Call:
    # Of two sessions that cancel or restore the same task at once, both may say that they did.
    told = "count(*)" if act in {"cancel", "restore"} else "changed"
    arguments = f"'{act}', array['{{t_id}}']::uuid[], '{{side}}'{more}"
    busy = (
        "select 1" if told == "count(*)" else "select false"
    )  # after half a second, on a machine that is busy
    return Call(
        f"act_on_tasks {act}", f"select {told} from queues.act_on_tasks({arguments})", passing=(busy,)
    )


def _unique(rule: str) -> str:
    return f"select task_id, created from queues.enqueue_unique('race.run', key => 'k', {rule})"


_CLAIM = "select task_id from queues.claim('{side}', 1, array['race'])"
_GIVE_BACK = """
    select verdict from queues.release('{side}', (
      select coalesce(jsonb_agg(jsonb_build_object('task_id', c.task_id, 'token', c.token)), '[]')
      from queues.claim('{side}', 1, array['race']) c))"""

DEBOUNCE = Call("debounce", _unique("debounce => '5 s'"))
# An enqueue does not wait for a worker that gives the task back: the old one stays, and is due before the new
# one, which it does not overtake.
DEBOUNCE_OF_A_HELD_TASK = """
    insert into queues.act (task_id, act, occurred_at, attempt, worker_id, actor, reason)
    values ('{t_id}', 'replaced', queues.clock(), 1, 'h', queues.actor(),
      'debounced: a later one was enqueued while this one was held');
    update queues.unique_task set task_id = null;
    """ + _unique("debounce => '5 s'")

# Of each state, what moves the row of its task there.
MOVERS: dict[str, list[Call]] = {
    "its key is full": [Call("set_aside", _CLAIM, "")],
    "it waits for its key": [
        Call(
            "bring_back",
            f"select verdict from queues.finish('{HOLDER}', " + _held("u", ", 'status', 'succeeded'") + ")",
        )
    ],
    "later": [
        _act("reschedule", f", {LATER}"),
        Call(
            "reschedule twice",
            f"select queues.reschedule('{{t_id}}', {_NEVER}), queues.reschedule('{{t_id}}', {LATER})",
        ),
        _act("nudge", ""),
    ],
    "it waits for a signal": [Call("signal", "select queues.signal('{t_id}', 'go')")],
    "its child has ended": [
        Call("wake_joined", "select cardinality(queues.wake_joined(array['{u_id}']::uuid[])) >= 0")
    ],
    "its signal has come": [Call("do_chores", "select queues.do_chores('wake') >= 0")],
    "it comes after another": [
        Call("cancel and retry", "select queues.cancel('{t_id}'), queues.retry('{t_id}')")
    ],
    "due": [
        Call("claim and release", _GIVE_BACK, ""),
        Call("claim", _CLAIM, ""),
        Call("delete and restore", "select queues.delete_task('{t_id}'), queues.restore_task('{t_id}')"),
        DEBOUNCE,
    ],
    "leased": [
        _finish("snooze", ", 'run_at', queues.clock() + interval '1 minute'"),
        _finish("retry", ", 'run_at', queues.clock()"),
        _release(),
    ],
    "expired": [Call("sweep", "select recovered, dead from queues.sweep()", "0, 0")],
    "deleted while leased": [_finish("retry", ", 'run_at', queues.clock()")],
    "parked": [_act("restore_task")],
    "failed": [
        _act("retry"),
        Call("retry and cancel", "select queues.retry('{t_id}'), queues.cancel('{t_id}')"),
    ],
}
GIVES_BACK = {"finish snooze", "release", "sweep"}

WAITERS = [
    _act("cancel"),
    _act("delete_task"),
    _act("reschedule", f", {LATER}"),
    _act("nudge", ""),
    _act("retry"),
    _act("restore_task"),
    Call("unique waiting", _unique("\"unique\" => 'waiting'")),
    Call("unique unfinished", _unique("\"unique\" => 'unfinished'")),
    DEBOUNCE,
    *(_on_tasks(act) for act in ("cancel", "delete", "retry", "restore")),
    _on_tasks("reschedule", f", {LATER}"),
]
ADDS_TO_BATCH = Call(
    "start_children",
    f"""select verdict from queues.start_children(
      '{HOLDER}', jsonb_build_object('task_id', '{{u_id}}', 'token', {{u_token}}, 'name', '{{side}}',
        'number', 1, 'batch', true), '[{{{{"type": "race.more"}}}}]')""",
)

# What the engine does soon afterwards in any case, so that nothing stays that was only left for it.
AFTERWARDS = """
    select queues.do_chores('wake'), queues.do_chores('join'), queues.do_chores('cancel'),
      queues.do_chores('wake'), queues.tidy_lanes()"""


def _enqueue(conn: Connection, more: str = "") -> Row:
    task_id = engine.value(
        conn,
        "select task_id from queues.enqueue_unique('race.run', key => 'k', \"unique\" => 'unfinished'"
        f"{more})",
    )
    return {"task_id": task_id}


def _claimed(conn: Connection, more: str = "") -> Row:
    _enqueue(conn, more)
    return engine.claim_one(conn, HOLDER, queues=["race"])


def _suspended(conn: Connection, stage: Stage, task: Row, **wait: str) -> None:
    until = str(stage.clock.after(3600))
    engine.end(conn, task, "suspend", HOLDER, run_at=until, waits=[{"until": until, **wait}])


def _keyed(stage: Stage, conn: Connection, state: str) -> dict[str, Row]:
    engine.enqueue(conn, "race.run", concurrency_key="c")
    running = engine.claim_one(conn, HOLDER, queues=["race"])
    task = _enqueue(conn, ", concurrency_key => 'c'")
    if state == "it waits for its key":
        assert engine.claim(conn, HOLDER, **_TYPE) == []
    return {"t": task, "u": running}


def _later(stage: Stage, conn: Connection, state: str) -> dict[str, Row]:
    return {"t": _enqueue(conn, f", run_at => '{stage.clock.after(3600)}'")}


def _signalled(stage: Stage, conn: Connection, state: str) -> dict[str, Row]:
    task = _claimed(conn)
    if state == "its signal has come":
        engine.answer(conn, "queues.signal", {"task_id": task["task_id"], "name": "go"})
    _suspended(conn, stage, task, name="go", signal="go")
    if state != "its signal has come":
        engine.do_chores(conn)
    return {"t": task}


def _joined(stage: Stage, conn: Connection, state: str) -> dict[str, Row]:
    parent = _claimed(conn)
    of = {**engine.held(parent)[0], "name": "pack", "number": 1, "awaited": True}
    arguments = {"worker_id": HOLDER, "held": of, "tasks": [{"type": "work.pack"}]}
    engine.call(conn, "queues.start_children", arguments)
    child = engine.claim_one(conn, HOLDER, queues=["work"])
    _suspended(conn, stage, parent, name="pack", policy="all")
    engine.do_chores(conn)
    engine.end(conn, child, worker_id=HOLDER)
    return {"t": parent, "u": child}


def _after(stage: Stage, conn: Connection, state: str) -> dict[str, Row]:
    engine.enqueue(conn, "race.first")
    first = engine.claim_one(conn, HOLDER, queues=["race"])
    (task,) = engine.enqueue_many(conn, [{"type": "race.run", "after": [first["task_id"]]}])
    engine.do_chores(conn)
    return {"t": task, "u": first}


def _simple(stage: Stage, conn: Connection, state: str) -> dict[str, Row]:
    if state == "due":
        return {"t": _enqueue(conn)}
    if state == "expired":
        engine.value(conn, "select recovered from queues.sweep()")  # workers reach the database since then
    task = _claimed(conn)
    if state == "failed":
        engine.end(conn, task, "failed", HOLDER)
    if state == "parked":
        engine.release(conn, engine.held(task), HOLDER)
    if state in {"parked", "deleted while leased"}:
        engine.act(conn, "delete_task", task["task_id"])
    if state == "expired":
        stage.clock.advance(61)
    return {"t": task}


_SCENES: dict[str, Callable[[Stage, Connection, str], dict[str, Row]]] = {
    "its key is full": _keyed,
    "it waits for its key": _keyed,
    "later": _later,
    "it waits for a signal": _signalled,
    "its signal has come": _signalled,
    "its child has ended": _joined,
    "it comes after another": _after,
}


def build(stage: Stage) -> None:
    """Make every start state by the functions under test, one session, one step after the other."""
    conn = stage.admin
    for state in MOVERS:
        stage.clear()
        engine.call(conn, "queues.register_worker", {"worker_id": HOLDER, "queues": ["race"]})
        stage.save(state, _SCENES.get(state, _simple)(stage, conn, state))
