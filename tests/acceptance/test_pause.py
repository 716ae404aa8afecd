"""SIGSTOP: a worker that sleeps through its leases wakes up and does not know that it lost them."""

from functools import partial
from time import monotonic, sleep

import pytest

from acceptance.fleet import WorkerProcess
from acceptance.ground import Ground
from acceptance.trial import sized, tell, trial
from acceptance.waiting import wait_for
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask

LEASE = 4.0
WORKERS = {"HOLDFAST_LEASE": LEASE, "HOLDFAST_HEARTBEAT": 0.5}


def wait_for_log(worker: WorkerProcess, event: str, **fields: str) -> None:
    wait_for(f"{worker.name} to log {event} {fields}", lambda: worker.logged(event, **fields))


def late_reports(worker: WorkerProcess) -> set[str]:
    """The tasks of which it was told that somebody else has them."""
    return {line["task_id"] for line in worker.logged("result_refused", verdict="lost")}


def stopped(worker: WorkerProcess) -> set[str]:
    return {line["task_id"] for line in worker.logged("task_stopped", why="lost")}


def _told(worker: WorkerProcess) -> set[str]:
    """A worker that learns that a task is lost while its handler ends does not report the result."""
    return late_reports(worker) | stopped(worker)


def pause_through(worker: WorkerProcess, paused_at: float, lease: float = LEASE) -> None:
    sleep(max(0.0, paused_at + 1.5 * lease - monotonic()))
    worker.go_on()


@trial("P3")
def test_a_worker_that_slept_through_its_leases_is_refused_and_goes_on(ground: Ground) -> None:
    sleeper = ground.fleet.start_one(WORKERS)
    # When the late reports come, the second holder of one of these has ended, and that of the other has not.
    soon, late, last = ground.gate("soon"), ground.gate("late"), ground.gate("last")
    ended = ground.enqueue("insist", "ended", gates=[str(late), str(soon)])
    running = ground.enqueue("insist", "running", gates=[str(late), str(last)])
    stopped = ground.enqueue("work", "stopped", seconds=[60, 0])
    tasks = [ended, running, stopped]
    for task_id in tasks:
        ground.wait_for_start(task_id)
    sleeper.pause()
    paused_at = monotonic()
    second = ground.fleet.start_one(WORKERS)
    soon.touch()
    for task_id in tasks:
        assert ground.wait_for_start(task_id, attempt=2).pid == second.pid
    ground.wait_for_end(ended, stopped)
    pause_through(sleeper, paused_at)
    for task_id in tasks:
        wait_for_log(sleeper, "task_stopped", task_id=str(task_id), why="lost")
    late.touch()
    for task_id in (ended, running):
        wait_for_log(sleeper, "result_refused", task_id=str(task_id), verdict="lost")
    last.touch()
    ground.quiesce()

    second.ask_to_stop()
    assert second.wait() == 0
    new = [ground.enqueue("work", f"new-{n}", seconds=[0]) for n in range(20)]
    ground.wait_for_end(*new)
    verdict = ground.check()
    assert {verdict.of(task_id).result["pid"] for task_id in tasks} == {second.pid}
    assert {verdict.of(task_id).attempt for task_id in tasks} == {2}
    assert {verdict.of(task_id).result["pid"] for task_id in new} == {sleeper.pid}


@trial("P3")
def test_a_worker_keeps_the_lease_of_a_task_that_it_lost_and_got_again(ground: Ground) -> None:
    """The report of its older handler of the same task is refused, and does not touch the newer one."""
    sleeper = ground.fleet.start_one(WORKERS)
    first, second = ground.gate("first"), ground.gate("second")
    task_id = ground.enqueue("insist", "twice", gates=[str(first), str(second), str(second)])
    ground.wait_for_start(task_id)
    sleeper.pause()
    paused_at = monotonic()
    # Sweeps for everybody, and takes nothing of this queue.
    ground.fleet.start_one(WORKERS | {"WORKER_QUEUES": "elsewhere"})
    wait_for("the lease to be swept", lambda: ground.is_ready(task_id))
    pause_through(sleeper, paused_at)
    ground.wait_for_start(task_id, attempt=2)
    first.touch()
    wait_for_log(sleeper, "result_refused", task_id=str(task_id), verdict="lost")
    sleep(2 * LEASE)
    second.touch()
    ground.wait_for_end(task_id)

    verdict = ground.check()
    assert [start.pid for start in verdict.starts[task_id]] == [sleeper.pid, sleeper.pid]
    assert verdict.of(task_id).attempt == 2


@trial("P3", quick=True)
@pytest.mark.timeout(300)
def test_every_late_report_is_refused_and_changes_nothing(ground: Ground) -> None:
    count = sized(10, 20, 50)
    settings = WORKERS | {"WORKER_CONCURRENCY": count, "HOLDFAST_LEASE": 2 * LEASE}
    refused = unsaid = 0
    for number in range(sized(1, 1, 4)):
        sleeper = ground.fleet.start_one(settings)
        soon, late = ground.gate(f"soon-{number}"), ground.gate(f"late-{number}")
        gates = [str(late), *[str(soon)] * 9]  # a busy machine may need more than two attempts
        asked = [
            NewTask("acceptance.insist", {"label": f"{number}-{n}", "gates": gates}, max_attempts=10)
            for n in range(count)
        ]
        tasks = [enqueued.task_id for enqueued in Engine(ground.conn).run(enqueue.enqueue_many(asked))]
        for task_id in tasks:
            ground.wait_for_start(task_id)
        sleeper.pause()
        paused_at = monotonic()
        second = ground.fleet.start_one(settings)
        for task_id in tasks:
            ground.wait_for_start(task_id, attempt=2)
        soon.touch()
        ground.wait_for_end(*tasks)
        pause_through(sleeper, paused_at, 2 * LEASE)
        late.touch()
        told = partial(_told, sleeper)
        wait_for("all late reports to be refused", lambda told=told: len(told()) == count)  # type: ignore[misc]
        for worker in (sleeper, second):
            worker.ask_to_stop()
            assert worker.wait() == 0
        refused += len(late_reports(sleeper))
        unsaid += len(stopped(sleeper) - late_reports(sleeper))
    verdict = ground.check()
    tell(
        f"{refused} late reports refused, {unsaid} more not made: their handlers were stopped just before, "
        f"{verdict.reruns} handlers ran again"
    )
    assert refused + unsaid == len(verdict.ended)
    assert refused > unsaid
    assert min(task.attempt for task in verdict.ended.values()) >= 2
