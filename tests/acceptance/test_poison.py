"""A handler that takes its worker with it: counted at the claim, it ends all the same."""

from acceptance.ground import Ground
from acceptance.trial import tell, trial

WORKERS = {"HOLDFAST_LEASE": 1.0, "HOLDFAST_HEARTBEAT": 0.25, "WORKER_CONCURRENCY": 5}
MAX_ATTEMPTS = 3


@trial("P4")
def test_a_task_that_kills_its_worker_is_given_up_after_its_last_attempt(ground: Ground) -> None:
    """The supervisor starts a new worker each time, and the neighbours go on."""
    producer = ground.producer(per_second=20, seconds=(0.0, 0.02, 0.1))
    supervisor = ground.fleet.start_one(WORKERS, processes=2)
    with producer.producing():
        poison = [ground.enqueue("abort", "abort", MAX_ATTEMPTS)]
        ground.wait_for_end(*poison)
        poison.append(ground.enqueue("exit", "exit", MAX_ATTEMPTS))
        ground.wait_for_end(*poison)
    ground.quiesce()
    verdict = ground.check(producer)
    neighbours = len(producer.acknowledged)
    died = supervisor.logged("worker_died")
    tell(f"{neighbours} neighbours, {len(died)} workers died, {verdict.reruns} handlers ran again")
    for task_id in poison:
        assert (verdict.of(task_id).status, verdict.of(task_id).attempt) == ("dead_letter", MAX_ATTEMPTS)
        assert [start.attempt for start in verdict.starts[task_id]] == [1, 2, 3]
    assert len(supervisor.logged("worker_died", signal="SIGABRT")) == MAX_ATTEMPTS
    assert len(supervisor.logged("worker_died", exit_code=3)) == MAX_ATTEMPTS
    assert len(died) == 2 * MAX_ATTEMPTS
