"""Old tasks leave while new ones run: work goes on as before, and their space is used again."""

import os
from dataclasses import dataclass
from time import monotonic, sleep

import pytest

from acceptance.ground import Ground
from acceptance.trial import FULL, tell, trial
from acceptance.waiting import wait_for
from support import engine
from support.engine import Connection

ALONE = "HOLDFAST_PRUNE_ROWS" in os.environ
OLD = int(os.environ.get("HOLDFAST_PRUNE_ROWS", "200000" if FULL else "20000"))
PER_SECOND = 300 if FULL else 60
SECONDS = 30 if FULL else 4
WORKERS = {"WORKER_CONCURRENCY": 20}

_TASKS = """
    insert into queues.task (task_id, created_at, run_at, priority, max_attempts, type, queue, executor,
      enqueued_by, namespace, payload)
    select queues.new_task_id(), queues.clock() - interval '1 day', queues.clock(), 0, 3, 'old.work', 'old',
      'python', session_user, session_user,
      jsonb_build_object('n', n, 'padding', repeat('x', 200))
    from generate_series(1, %s) n"""
_OUTCOMES = """
    insert into queues.outcome (task_id, token, claimed_at, started_at, finished_at, attempt, status,
      worker_id, result)
    select t.task_id, 1, t.created_at, t.created_at, t.created_at, 1, 'succeeded', 'gone', '{"ok": true}'
    from queues.task t where t.type = 'old.work'"""
_ERRORS = """
    insert into queues.error (task_id, occurred_at, attempt, recovered, kind, message)
    select t.task_id, t.created_at, 1, false, 'handler_error', 'at first it did not work'
    from queues.task t where t.type = 'old.work' and (t.payload ->> 'n')::integer %% 20 = 0"""
_TABLES = ("task", "outcome", "error", "act", "task_key")
_SIZE = "select sum(pg_total_relation_size(format('queues.%%I', name)))::bigint from unnest(%s::text[]) name"


@dataclass
class Pace:
    """How much ended while it was watched."""

    tasks: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.tasks / self.seconds


class Old:
    """Tasks that ended yesterday."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def load(self) -> None:
        for statement, parameters in ((_TASKS, [OLD]), (_OUTCOMES, []), (_ERRORS, [])):
            self._conn.execute(statement.encode(), parameters)

    @property
    def gone(self) -> bool:
        return not engine.rows(self._conn, "select from queues.task where type = 'old.work' limit 1")

    @property
    def megabytes(self) -> float:
        return float(engine.value(self._conn, _SIZE, [list(_TABLES)])) / 1e6

    def vacuum(self) -> None:
        """As autovacuum does it, without the wait for it."""
        for table in _TABLES:
            self._conn.execute(f"vacuum queues.{table}".encode())


def watch(ground: Ground, seconds: float) -> Pace:
    before, began = len(ground.witness.lines("ended")), monotonic()
    sleep(seconds)
    took = monotonic() - began
    return Pace(len(ground.witness.lines("ended")) - before, took)


def watch_until_gone(ground: Ground, old: Old) -> Pace:
    before, began = len(ground.witness.lines("ended")), monotonic()
    wait_for("the old tasks to go", lambda: old.gone, 3000 if FULL else 90)
    sleep(max(0.0, began + SECONDS - monotonic()))
    took = monotonic() - began
    return Pace(len(ground.witness.lines("ended")) - before, took)


@trial("P1")
@pytest.mark.timeout(4800 if FULL else 120)
def test_pruning_neither_slows_the_work_nor_lets_the_tables_grow(ground: Ground) -> None:
    old = Old(ground.conn)
    old.load()
    old.vacuum()
    full = old.megabytes
    producer = ground.producer(per_second=PER_SECOND, seconds=(0.0, 0.005, 0.01))
    ground.fleet.start(2, WORKERS)
    with producer.producing():
        sleep(1)
        undisturbed = watch(ground, SECONDS)
        engine.call(
            ground.conn,
            "queues.set_retention",
            {"status": "succeeded", "keep": "1 hour", "type_prefix": "old."},
        )
        # The leader looks every minute; the next one at once.
        leader = engine.value(ground.conn, "select worker_id from queues.leadership")
        ground.fleet.by_worker_id(leader).ask_to_stop()
        ground.fleet.launch(WORKERS)
        pruning = watch_until_gone(ground, old)
    ground.quiesce()
    ground.check(producer)
    old.vacuum()
    empty = old.megabytes
    new = len(producer.acknowledged) * 4096 / 1e6
    old.load()
    again = old.megabytes
    ratio = pruning.per_second / undisturbed.per_second
    tell(
        f"{OLD} tasks pruned in {pruning.seconds:.0f} s while {pruning.per_second:.0f} tasks a second ran, "
        f"{undisturbed.per_second:.0f} without: {ratio:.2f}. {full:.0f} MB before, {empty:.0f} MB after, "
        f"{again:.0f} MB with as many again, of which new tasks are {new:.0f} MB at most"
    )
    # A few seconds on a busy machine tell nothing, and minutes there only that it does not stand still.
    assert ratio >= (0.9 if ALONE else 0.6 if FULL else 0)
    assert again <= 1.1 * full + new
