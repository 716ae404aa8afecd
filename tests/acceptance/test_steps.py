"""Runs with steps: what is recorded does not happen again, whatever dies between two facts."""

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import sleep
from uuid import UUID

import psycopg
import pytest

from acceptance.ground import Ground
from acceptance.trial import chance, sized, tell, trial
from acceptance.twelve import FACTS, SLEEP, TRANSACTIONS, WAIT, fact_name
from acceptance.waiting import wait_for
from acceptance.witness import Line
from holdfast._engine import Engine, enqueue, steps
from holdfast._engine.enqueue import NewTask
from holdfast._install.schema import install_test_clock
from support import engine
from support.engine import Connection
from support.invariant import assert_invariant
from support.wire import Wire

LEASE = 2.0
WORKERS = {"HOLDFAST_LEASE": LEASE, "HOLDFAST_HEARTBEAT": 0.5, "POLL_INTERVAL": "1s"}
EFFECTS = [n for n in range(1, FACTS + 1) if n not in (SLEEP, WAIT)]
PLACES = [
    place for n in range(1, FACTS + 1) for place in (f"before-{n}", *([f"after-{n}"] if n in EFFECTS else []))
] + ["before-end"]
"""Between every two facts, and between every effect and its fact."""


Fault = Callable[[Line, Callable[[], None]], None]
"""Is given who has halted, and what lets the run go on."""


def some_places(everyday: int, quick: int) -> list[str]:
    count = sized(everyday, quick, len(PLACES))
    chosen = set(chance("places").sample(PLACES, count))
    return [place for place in PLACES if place in chosen]


def prepare(ground: Ground) -> None:
    """Without a key: a transaction that happens twice leaves two rows."""
    ground.conn.execute("create table ledger (task_id uuid, name text)")
    ground.conn.execute("grant insert on ledger to holdfast_worker")


def begin_runs(conn: Connection, count: int, halts: str = "") -> list[UUID]:
    client = Engine(conn)
    new = [
        NewTask("acceptance.twelve", {"label": f"run-{n}", "halts": halts}, max_attempts=20)
        for n in range(count)
    ]
    task_ids = [enqueued.task_id for enqueued in client.run(enqueue.enqueue_many(new))]
    for task_id in task_ids:
        client.run(steps.signal(task_id, fact_name(WAIT), "go"))
    return task_ids


def recorded(conn: Connection, task_id: UUID) -> dict[str, int]:
    """The token under which each step was recorded."""
    found = engine.rows(conn, "select name, token from queues.step where task_id = %s", [task_id])
    assert len(found) == len({row["name"] for row in found}), "a step was recorded twice"
    return {row["name"]: row["token"] for row in found}


def effects(ground: Ground) -> dict[UUID, dict[str, list[Line]]]:
    found: dict[UUID, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in ground.witness.lines("effect"):
        found[line.task_id][line.label].append(line)
    return found


def check_runs(ground: Ground, *task_ids: UUID) -> int:
    """Every run has ended, with every fact once. Returns how many effects were repeated before their fact."""
    conn = ground.conn
    assert_invariant(conn)
    ended = "select task_id from queues.outcome where status = 'succeeded'"
    assert {row["task_id"] for row in engine.rows(conn, ended)} == set(task_ids)
    happened, broken, repeated = effects(ground), list[str](), 0
    for task_id in task_ids:
        facts = recorded(conn, task_id)
        assert set(facts) == {fact_name(n) for n in range(1, FACTS + 1)}
        for n in EFFECTS:
            name = fact_name(n)
            tokens = [line.token for line in happened[task_id][name]]
            repeated += len(tokens) - 1
            if len(tokens) != len(set(tokens)) or max(tokens, default=None) != facts[name]:
                broken.append(f"{name} happened under the tokens {tokens}, recorded under {facts[name]}")
    rows = engine.rows(conn, "select task_id, name from ledger")
    wanted = {(task_id, fact_name(n)) for task_id in task_ids for n in TRANSACTIONS}
    if sorted((row["task_id"], row["name"]) for row in rows) != sorted(wanted):
        broken.append(f"the transactions left {len(rows)} rows instead of {len(wanted)}")
    assert not broken, "\n".join(broken[:20])
    return repeated


def disturb(ground: Ground, halts: Path, places: list[str], fault: Fault) -> int:
    """Bring a run to each place, and let the fault happen there. Returns how many effects were repeated."""
    prepare(ground)
    halts.mkdir()
    for place in places:
        (halts / place).touch()
    [task_id] = begin_runs(ground.conn, 1, str(halts))
    for place in places:
        conn = ground.conn  # the fault may have ended the last one
        line = wait_for(place, partial(_halted, ground, place))[-1]
        number = place.partition("-")[2]
        before = FACTS if number == "end" else int(number) - 1
        known = {fact_name(n) for n in range(1, before + 1)}
        wait_for(f"{before} facts", partial(_has_recorded, conn, task_id, known))
        facts = recorded(conn, task_id)
        assert facts.keys() == known
        fault(line, (halts / place).unlink)
        assert facts.items() <= recorded(ground.conn, task_id).items()
    ground.wait_for_end(task_id)
    return check_runs(ground, task_id)


def _has_recorded(conn: Connection, task_id: UUID, names: set[str]) -> bool:
    return names <= recorded(conn, task_id).keys()


def _halted(ground: Ground, place: str) -> list[Line]:
    return [line for line in ground.witness.lines("halted") if line.label == place]


@trial("P3", "P11", quick=True)
@pytest.mark.timeout(300)
def test_no_recorded_step_happens_again_when_the_worker_is_killed_between_any_two_facts(
    ground: Ground, tmp_path: Path
) -> None:
    places = some_places(3, 8)
    ground.fleet.start(2, WORKERS)

    def kill(line: Line, go_on: Callable[[], None]) -> None:
        next(worker for worker in ground.fleet.running if worker.pid == line.pid).kill()
        go_on()
        ground.fleet.launch(WORKERS)

    repeated = disturb(ground, tmp_path / "halts", places, kill)
    after = sum(place.startswith("after") for place in places)
    tell(
        f"{FACTS} facts, {len(places)} kills, {after} of them between an effect and its fact: "
        f"{repeated} effects repeated, all before their fact"
    )
    assert repeated >= after


@trial("P6", "P11", quick=True)
@pytest.mark.timeout(300)
def test_no_recorded_step_happens_again_when_the_server_is_stopped_between_any_two_facts(
    ground: Ground, tmp_path: Path
) -> None:
    places = some_places(2, 5)
    workers = ground.fleet.start(2, WORKERS)

    def stop(line: Line, go_on: Callable[[], None]) -> None:
        del line
        ground.server.stop("immediate")
        go_on()  # what it has to record meets no server
        ground.server.start()

    repeated = disturb(ground, tmp_path / "halts", places, stop)
    tell(f"{FACTS} facts, {len(places)} stops of the server: {repeated} effects repeated before their fact")
    assert workers == ground.fleet.running


@trial("P7", "P11", quick=True)
@pytest.mark.timeout(300)
def test_no_recorded_step_happens_again_when_answers_are_lost_all_the_time(ground: Ground) -> None:
    prepare(ground)
    with Wire(ground.database.dsn, chance("wire")).running() as wire:
        ground.fleet.start(2, WORKERS | {"DATABASE_URL": ground.through(wire.port, "holdfast_worker")})
        wire.cut_some(0.05)
        runs = begin_runs(ground.conn, sized(10, 40, 300))
        ended = "select count(*) = %s from queues.outcome"
        conn = ground.conn
        wait_for("the runs to end", lambda: engine.value(conn, ended, [len(runs)]), 200)
        wire.cut_some(0)
        repeated = check_runs(ground, *runs)
    tell(
        f"{len(runs)} runs of {FACTS} facts, {wire.cuts} answers lost, {repeated} effects repeated, "
        "all before their fact"
    )
    assert wire.cuts > 0


@trial("P9", "P11", quick=True)
def test_a_run_that_waited_thirty_days_without_a_worker_continues_once_at_its_committed_signal(
    ground: Ground,
) -> None:
    """A signal in a transaction that is rolled back changes nothing."""
    install_test_clock(ground.database.dsn)
    conn = ground.conn
    worker = ground.fleet.start_one(WORKERS)
    task_id = ground.enqueue("decide", "wait")
    suspended = "select exists (select from queues.wait where task_id = %s)"
    wait_for("the run to wait", lambda: engine.value(conn, suspended, [task_id]))
    worker.kill()
    due = "select exists (select from queues.ready where task_id = %s and run_at <= queues.clock())"
    with psycopg.connect(ground.database.dsn) as other:
        conn.execute("update queues.test_clock set shifted_by = %s", [timedelta(days=30)])
        Engine(other).run(steps.signal(task_id, "decision", "rolled back"))
        other.rollback()
        assert not engine.value(conn, due, [task_id])
        Engine(other).run(steps.signal(task_id, "decision", "committed"))
        assert not engine.value(conn, due, [task_id])
        other.commit()
        assert engine.value(conn, due, [task_id])
    ground.fleet.start(2, WORKERS)
    ground.wait_for_end(task_id)
    sleep(2 * LEASE)  # time enough for a worker that would continue it a second time
    assert (
        engine.value(conn, "select result from queues.outcome where task_id = %s", [task_id]) == "committed"
    )
    happened = {name: len(lines) for name, lines in effects(ground)[task_id].items()}
    assert happened == {"act[1]": 1, "act[4]": 1}
    assert len(ground.witness.starts()[task_id]) == 2
    tell("one run, 30 days, one signal rolled back and one committed: continued once")
