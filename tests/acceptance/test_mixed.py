"""Signals, joins, batches, debounced tasks and keys with limits that bind, all at once, under every fault."""

from collections import Counter
from collections.abc import Callable
from time import monotonic, sleep

import pytest

from acceptance import mixed_rules
from acceptance.ground import Ground
from acceptance.mixed import Mixed, prepare
from acceptance.trial import FULL, chance, sized, tell, trial
from acceptance.waiting import wait_for
from support.invariant import assert_invariant
from support.wire import Wire

WORKERS = {"HOLDFAST_LEASE": 3.0, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 20, "POLL_INTERVAL": "1s"}
FAULTS = sized(2, 2, 15)
SECONDS = sized(3, 6, 45)

Fault = Callable[[], None]


def disturb(ground: Ground, load: Mixed, fault: Fault, crashes: list[tuple[float, float]]) -> None:
    """Cause the faults while work of every kind is begun, and check it when all of it is over."""
    with load.working():
        for _ in range(FAULTS):
            sleep(SECONDS / FAULTS)
            fault()
        sleep(1)
    ground.quiesce(200)
    conn, lines, cases = ground.conn, ground.witness.lines(), load.take_cases()
    killed = {worker.pid: worker.killed_at for worker in ground.fleet.all if worker.killed_at}
    assert_invariant(conn)
    broken, at_once = mixed_rules.check_limits(lines, killed, crashes)
    broken += mixed_rules.check(conn, cases, lines)
    assert not broken, "\n".join(broken[:20])
    kinds = Counter(case.kind for case in cases)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
    tasks = len({line.task_id for line in lines})
    tell(f"{tasks} tasks of {told}; {load.repeated} calls repeated, at most {at_once} limited tasks at once")
    assert kinds.keys() == {*mixed_rules.RULES}
    assert at_once > 1


@trial("P1", "P3", "P7", "P11", quick=True)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_signals_joins_batches_debounce_and_keys_hold_while_workers_are_killed(ground: Ground) -> None:
    prepare(ground.conn)
    ground.fleet.start(2, WORKERS)
    victims = chance("victims of mixed work")

    def kill() -> None:
        wait_for("both to be at work", lambda: len(ground.fleet.ready) == 2)
        victims.choice(ground.fleet.ready).kill()
        ground.fleet.launch(WORKERS)

    disturb(ground, Mixed(ground.database.dsn_as("holdfast_client")), kill, [])


@trial("P1", "P3", "P6", "P11", quick=True)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_signals_joins_batches_debounce_and_keys_hold_while_the_server_is_stopped(ground: Ground) -> None:
    prepare(ground.conn)
    ground.fleet.start(2, WORKERS)
    crashes: list[tuple[float, float]] = []

    def stop() -> None:
        at = monotonic()
        ground.server.stop("immediate")
        ground.server.start()
        crashes.append((at, monotonic()))

    disturb(ground, Mixed(ground.database.dsn_as("holdfast_client")), stop, crashes)


@trial("P1", "P3", "P7", "P11", quick=True)
@pytest.mark.full
@pytest.mark.timeout(600 if FULL else 240)
def test_signals_joins_batches_debounce_and_keys_hold_while_answers_are_lost(ground: Ground) -> None:
    prepare(ground.conn)
    with Wire(ground.database.dsn, chance("wire")).running() as wire:
        ground.fleet.start(2, WORKERS | {"DATABASE_URL": ground.through(wire.port, "holdfast_worker")})
        wire.cut_some(0.02)
        disturb(ground, Mixed(ground.through(wire.port, "holdfast_client")), lambda: None, [])
        wire.cut_some(0)
    tell(f"{wire.cuts} answers lost")
    assert wire.cuts > 0
