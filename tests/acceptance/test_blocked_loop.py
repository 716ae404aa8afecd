"""A handler that blocks the event loop: the heartbeat does not depend on it."""

from time import sleep

from acceptance.ground import Ground
from acceptance.trial import tell, trial

LEASE = 2.0
WORKERS = {"HOLDFAST_LEASE": LEASE, "HOLDFAST_HEARTBEAT": 0.5}


@trial("P3")
def test_a_handler_that_blocks_the_event_loop_keeps_its_lease_and_runs_once(ground: Ground) -> None:
    producer = ground.producer(per_second=20, seconds=(0.0, 0.1))
    ground.fleet.start(2, WORKERS)
    with producer.producing():
        sleep(0.5)
        task_id = ground.enqueue("block", "blocking", seconds=3 * LEASE)
        ground.wait_for_end(task_id)
    ground.quiesce()
    verdict = ground.check(producer)
    tell(f"{len(producer.acknowledged)} neighbours, {verdict.reruns} handlers ran again")
    assert len(verdict.starts[task_id]) == 1
    assert verdict.of(task_id).attempt == 1
