"""kill -9: another worker runs the tasks of the killed worker again."""

from time import monotonic, sleep

import pytest

from acceptance.checker import lost_by_the_living, recoveries
from acceptance.ground import NOISE_SECONDS, Ground
from acceptance.trial import FULL, chance, tell, trial
from acceptance.waiting import wait_for

LEASE = 2.0
PROMISE = LEASE + 2.0
WORKERS = {"HOLDFAST_LEASE": LEASE, "HOLDFAST_HEARTBEAT": 0.5, "WORKER_CONCURRENCY": 20}


@pytest.mark.first_look
@trial("P1", "P2", "P3", "P5", quick=True)
@pytest.mark.timeout(600 if FULL else 120)
def test_nothing_acknowledged_is_lost_while_workers_are_killed_every_two_seconds(ground: Ground) -> None:
    kills = 30 if FULL else 5
    victims = chance("victims")
    producer = ground.producer(per_second=300, seconds=(0.0, 0.005, 0.02, 0.1, 0.5))
    ground.fleet.start(3, WORKERS)
    began = monotonic()
    with producer.producing():
        for _ in range(kills):
            sleep(2)
            wait_for("all three to be at work", lambda: len(ground.fleet.ready) == 3)
            victims.choice(ground.fleet.ready).kill()
            ground.fleet.launch(WORKERS)
        sleep(1)
    took = monotonic() - began
    ground.quiesce()
    verdict = ground.check(producer)
    found = recoveries(ground.conn, verdict, ground.fleet)
    slowest = found[-1]
    tasks, lost = len(producer.acknowledged), lost_by_the_living(ground.conn, ground.fleet)
    tell(
        f"{tasks} tasks, {tasks / took:.0f} a second, {kills} kills, {len(found)} tasks recovered, "
        f"{verdict.reruns} handlers ran again, at most {verdict.most_attempts} attempts, "
        f"{lost} leases lost by living workers, recovery in {found[len(found) // 2].seconds:.2f} s (median), "
        f"at most {slowest} of {PROMISE:.0f} s + {NOISE_SECONDS:.0f} s for noise"
    )
    assert slowest.seconds <= PROMISE + NOISE_SECONDS


@trial("P5")
def test_an_idle_worker_takes_over_without_waiting_for_its_next_poll(ground: Ground) -> None:
    """The sweep itself wakes it: a poll would come after an hour."""
    victim = ground.fleet.start_one(WORKERS)
    tasks = [ground.enqueue("work", f"held-{n}", seconds=[60, 0]) for n in range(3)]
    for task_id in tasks:
        ground.wait_for_start(task_id)
    ground.fleet.start_one(WORKERS | {"POLL_INTERVAL": "1h"})
    victim.kill()
    ground.wait_for_end(*tasks)
    verdict = ground.check()
    assert [verdict.of(task_id).attempt for task_id in tasks] == [2, 2, 2]
    slowest = recoveries(ground.conn, verdict, ground.fleet)[-1]
    tell(f"recovery in at most {slowest} of {PROMISE:.0f} s + {NOISE_SECONDS:.0f} s for noise")
    assert slowest.seconds <= PROMISE + NOISE_SECONDS
