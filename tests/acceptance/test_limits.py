"""Limits hold and no slot is lost, whichever worker is killed."""

from time import sleep

import pytest

from acceptance.ground import Ground
from acceptance.trial import FULL, chance, tell, trial
from acceptance.waiting import wait_for
from acceptance.witness import most_at_once
from holdfast._engine import Engine, enqueue, limits
from holdfast._engine.enqueue import NewTask
from support import engine

LEASE = 2.0
WORKERS = {"HOLDFAST_LEASE": LEASE, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 4, "WORKER_TIMEOUT": 5}
COUNT = 8 if FULL else 3


def ask(ground: Ground, count: int, keys: list[str | None], seconds: float) -> None:
    payload = {"label": "limited", "seconds": [seconds]}
    tasks = [
        NewTask(
            "acceptance.work",
            {**payload, "label": str(keys[n % len(keys)])},
            max_attempts=50,
            concurrency_key=keys[n % len(keys)],
        )
        for n in range(count)
    ]
    Engine(ground.conn).run(enqueue.enqueue_many(tasks))


def kill_some(ground: Ground, kills: int) -> None:
    victims = chance("victims of limits")
    for _ in range(kills):
        sleep(2 if FULL else 1)
        wait_for("all to be at work", lambda: len(ground.fleet.ready) == COUNT)
        victims.choice(ground.fleet.ready).kill()
        ground.fleet.launch(WORKERS)


def at_once(ground: Ground) -> dict[str, int]:
    """By label, from the witness."""
    killed = {worker.pid: worker.killed_at for worker in ground.fleet.all if worker.killed_at}
    return most_at_once(ground.witness.lines(), lambda line: ("all", line.label), killed)


@trial("P3")
@pytest.mark.timeout(600 if FULL else 120)
def test_no_more_than_five_run_at_once_while_workers_are_killed(ground: Ground) -> None:
    Engine(ground.conn).run(limits.set_limit("queue", "acceptance", max_running=5))
    count = 2000 if FULL else 150
    ask(ground, count, [None], 0.02)
    ground.fleet.start(COUNT, WORKERS)
    kill_some(ground, 10 if FULL else 1)
    ground.quiesce(400 if FULL else 90)
    most = at_once(ground)
    tell(f"{count} tasks, limit 5, {COUNT} workers, at most {most['all']} at once")
    assert 2 <= most["all"] <= 5
    assert (
        engine.value(ground.conn, "select count(*) from queues.outcome where status = 'succeeded'") == count
    )
    engine.answer(ground.conn, "queues.tidy_lanes", {})
    assert engine.value(ground.conn, "select count(*) from queues.lease") == 0


@trial("P3")
@pytest.mark.timeout(600 if FULL else 120)
def test_no_key_runs_more_than_its_share_and_a_late_small_one_gets_its_own(ground: Ground) -> None:
    Engine(ground.conn).run(limits.set_limit("type", "acceptance.work", per_key=2))
    keys: list[str | None] = [f"key-{n}" for n in range(50 if FULL else 10)]
    count = 2000 if FULL else 100
    ask(ground, count // 2, ["big"], 0.02)
    ask(ground, count // 2, keys, 0.02)
    ask(ground, 4, ["small"], 0.0)
    ground.fleet.start(COUNT, WORKERS)
    kill_some(ground, 10 if FULL else 1)
    ground.quiesce(400 if FULL else 90)
    most = at_once(ground)
    del most["all"]
    assert max(most.values()) <= 2
    starts = [line for line in ground.witness.lines() if line.phase == "started"]
    last_small = max(line.at for line in starts if line.label == "small")
    after = sum(line.label == "big" and line.at > last_small for line in starts)
    largest = max(most.values())
    tell(f"{len(most)} keys, at most {largest} of one at once, {after} of the big one after the small one")
    assert after > count // 4
    engine.answer(ground.conn, "queues.tidy_lanes", {})
    assert engine.value(ground.conn, "select count(*) from queues.lease") == 0
