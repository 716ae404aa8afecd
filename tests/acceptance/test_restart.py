"""SIGTERM: a rolling restart of all workers under load, as every deployment does it."""

from time import sleep

import pytest

from acceptance.ground import Ground
from acceptance.trial import FULL, tell, trial
from support.engine import value

# Few at once, so that a worker that stops has claimed more than it has begun.
WORKERS = {"WORKER_CONCURRENCY": 5, "HOLDFAST_GRACE": 20}


@trial("P1", "P2", "P3")
@pytest.mark.timeout(600 if FULL else 120)
def test_a_rolling_restart_uses_up_no_attempt_and_runs_nothing_twice(ground: Ground) -> None:
    rounds = 8 if FULL else 2
    producer = ground.producer(per_second=200, seconds=(0.0, 0.005, 0.02, 0.05, 0.2))
    fleet = ground.fleet.start(3, WORKERS)
    with producer.producing():
        for _ in range(rounds):
            sleep(1)
            old, fleet = fleet, ground.fleet.start(3, WORKERS)
            for worker in old:
                producer.burst(200)
                worker.ask_to_stop()
                assert worker.wait() == 0
    ground.quiesce()
    verdict = ground.check(producer)
    given_back = value(ground.conn, "select count(*) from queues.act where act = 'released'")
    tell(f"{len(producer.acknowledged)} tasks, {rounds * len(fleet)} restarts, {given_back} tasks given back")
    assert {task.attempt for task in verdict.ended.values()} == {1}
    assert value(ground.conn, "select count(*) from queues.error") == 0
    assert {task_id: starts for task_id, starts in verdict.starts.items() if len(starts) > 1} == {}


@trial("P3")
def test_what_outlasts_the_grace_period_is_given_back_with_its_attempt(ground: Ground) -> None:
    leaving = ground.fleet.start_one({"HOLDFAST_GRACE": 0.5})
    tasks = [ground.enqueue(kind, kind, seconds=[4]) for kind in ("work", "work_in_thread")]
    for task_id in tasks:
        ground.wait_for_start(task_id)
    leaving.ask_to_stop()
    assert leaving.wait() == 0
    stayed = ground.fleet.start_one()
    ground.wait_for_end(*tasks)
    verdict = ground.check()
    for task_id in tasks:
        starts = [(start.attempt, start.pid) for start in verdict.starts[task_id]]
        assert starts == [(1, leaving.pid), (1, stayed.pid)]
        assert verdict.of(task_id).attempt == 1
