"""A network that is slow, torn, deaf in one direction or dead without a word."""

from time import monotonic, sleep
from uuid import UUID

import pytest

from acceptance.checker import lost_by_the_living
from acceptance.ground import NOISE_SECONDS, Ground
from acceptance.trial import chance, sized, tell, trial
from acceptance.waiting import wait_for
from holdfast._connections.worker_connection import DEADLINE_SECONDS
from support.engine import value
from support.proxy import Direction
from support.wire import Wire

LEASE = 4.0
WORKERS = {"HOLDFAST_LEASE": LEASE, "HOLDFAST_HEARTBEAT": 1.0, "WORKER_CONCURRENCY": 10}
HELD = 3
POLL = 1.0


@trial("P1", "P2", "P3", quick=True)
@pytest.mark.timeout(300)
def test_work_goes_on_over_a_network_that_is_slow_and_torn_to_single_bytes(ground: Ground) -> None:
    seconds = sized(2, 4, 20)
    with Wire(ground.database.dsn, chance("wire")).running() as wire:
        producer = ground.producer(per_second=40, seconds=(0.0, 0.02, 0.1), through=wire.port)
        ground.fleet.start(2, WORKERS | {"DATABASE_URL": ground.through(wire.port, "holdfast_worker")})
        with producer.producing():
            wire.delay(0.025, 0.075)
            sleep(seconds)
            wire.delay(0, 0)
            wire.tear(True)
            sleep(seconds)
            wire.tear(False)
        ground.quiesce()
        verdict = ground.check(producer)
        broken = [line for worker in ground.fleet.all for line in worker.logged("database_unavailable")]
    tell(
        f"{len(producer.acknowledged)} tasks, {seconds} s with 25 to 75 ms more each way, {seconds} s in "
        f"pieces of one byte, {lost_by_the_living(ground.conn, ground.fleet)} leases ended, "
        f"{verdict.reruns} handlers ran again, {len(broken)} connections opened again"
    )


@trial("P3", "P5", quick=True)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ways", [["to the server", "to the client"], ["to the server"], ["to the client"]])
def test_a_worker_without_answers_stops_before_another_one_begins(
    ground: Ground, ways: list[Direction]
) -> None:
    """No data passes any more, or only one way, and no side is notified. Nothing ever runs twice at once."""
    with Wire(ground.database.dsn, chance("wire")).running() as wire:
        cut_off = ground.fleet.start_one(
            WORKERS | {"DATABASE_URL": ground.through(wire.port, "holdfast_worker")}
        )
        tasks = [ground.enqueue("work", f"held-{n}", seconds=[120, 0]) for n in range(HELD)]
        for task_id in tasks:
            ground.wait_for_start(task_id)
        other = ground.fleet.start_one(WORKERS)
        wire.freeze(*ways)
        frozen_at = monotonic()
        starts = [ground.wait_for_start(task_id, attempt=2) for task_id in tasks]
        assert {start.pid for start in starts} == {other.pid}
        taken_over = max(start.at for start in starts) - frozen_at
        overlaps = [start.at - _stopped_at(ground, start.task_id) for start in starts]
        wire.thaw()
        thawed_at = monotonic()
        other.ask_to_stop()
        assert other.wait() == 0
        last = ground.enqueue("work", "last", seconds=[0])
        assert ground.wait_for_start(last).pid == cut_off.pid
        back = monotonic() - thawed_at
        ground.wait_for_end(*tasks, last)
        ground.check()
    tell(
        f"cut off {' and '.join(ways)}: {HELD} tasks taken over after {taken_over:.1f} s, "
        f"lease {LEASE:.0f} s, {min(overlaps):.1f} s after their first handlers had stopped; "
        f"back {back:.1f} s after the network"
    )
    assert min(overlaps) > 0, "two handlers of one task ran at once"
    assert taken_over <= LEASE + LEASE / 4 + 2 + NOISE_SECONDS
    assert back <= DEADLINE_SECONDS + NOISE_SECONDS


@trial("P5", everyday=False)
@pytest.mark.timeout(300)
def test_a_worker_leaves_connections_on_which_no_answer_comes(ground: Ground) -> None:
    """Half-open connections: a firewall has dropped them without notice. New connections would work."""
    with Wire(ground.database.dsn, chance("wire")).running() as wire:
        url = ground.through(wire.port, "holdfast_worker")
        ground.fleet.start_one(WORKERS | {"DATABASE_URL": url, "POLL_INTERVAL": POLL})
        ground.wait_for_end(ground.enqueue("work", "first", seconds=[0]))
        waits: list[float] = []
        for number in range(sized(1, 1, 2)):
            wire.strand()
            stranded_at = monotonic()
            ground.wait_for_end(ground.enqueue("work", f"later-{number}", seconds=[0]))
            waits.append(monotonic() - stranded_at)
            sleep(1)
        ground.check()
    tell(f"half-open connections left and work done after {max(waits):.1f} s at most, of {len(waits)} times")
    # One connection is found out by the claim, another one by the report.
    assert max(waits) <= 1.2 * POLL + 2 * DEADLINE_SECONDS + NOISE_SECONDS


@trial("P9", quick=True)
@pytest.mark.timeout(300)
def test_a_lost_wake_up_costs_no_more_than_the_poll_interval(ground: Ground) -> None:
    """Every notification about work is swallowed. The probes by which a worker hears itself come through."""
    count = sized(10, 10, 60)
    pauses = chance("wake-ups")
    with Wire(ground.database.dsn, chance("wire")).running() as wire:
        wire.mute("holdfast")
        url = ground.through(wire.port, "holdfast_worker")
        worker = ground.fleet.start_one({"DATABASE_URL": url, "POLL_INTERVAL": POLL})
        for number in range(count):
            sleep(pauses.uniform(0, 1))
            ground.wait_for_end(ground.enqueue("work", f"quiet-{number}", seconds=[0]))
        ground.check()
        assert not worker.logged("no_wake_ups")
    waited = value(ground.conn, _LONGEST_WAIT)
    tell(
        f"{count} tasks, {wire.swallowed} notifications swallowed, none stuck; waited {waited:.2f} s at most "
        f"with a poll interval of {POLL:.0f} s"
    )
    assert wire.swallowed > 0
    assert waited <= 1.2 * POLL + NOISE_SECONDS


_LONGEST_WAIT = """
    select max(date_part('epoch', o.claimed_at - t.run_at))
    from queues.outcome o join queues.task t using (task_id)"""


def _stopped_at(ground: Ground, task_id: UUID) -> float:
    """When the first handler of a task was told to stop, by its own account."""

    def seen() -> list[float]:
        return [line.at for line in ground.witness.lines("stopped") if line.task_id == task_id]

    return wait_for(f"the first handler of {task_id} to stop", seen)[0]
