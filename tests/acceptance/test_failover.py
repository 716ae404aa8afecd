"""The primary is gone, and its standby takes over under load."""

from pathlib import Path
from time import monotonic, sleep

import pytest

from acceptance.fleet import Fleet
from acceptance.ground import NOISE_SECONDS, VERSION, Ground
from acceptance.pair import Pair, running_pair
from acceptance.producer import Producer
from acceptance.trial import sized, tell, trial
from acceptance.witness import Witness
from support.engine import rows, value
from support.invariant import assert_invariant

SECONDS = sized(1, 3, 10)
OUTAGE_SECONDS = 5.0
WORKERS = {"HOLDFAST_LEASE": 4.0, "HOLDFAST_HEARTBEAT": 1.0, "WORKER_CONCURRENCY": 20}

_TOKENS = "select token from queues.outcome where token is not null"
_KEPT = "select idempotency_key from queues.task where idempotency_key = any(%s)"


class Stand:
    """Workers and clients that know both addresses."""

    def __init__(self, pair: Pair, directory: Path) -> None:
        self.pair = pair
        witness = Witness(directory / "witness")
        fleet = Fleet(pair.address("holdfast_worker"), witness, directory)
        self.ground = Ground(pair.primary, pair.database, witness, fleet)
        self.producer = Producer(
            pair.address("holdfast_client"),
            per_second=100,
            seconds=(0.0, 0.005, 0.02, 0.1, 0.5),
            started=witness.count_starts,
        )
        self.outage = 0.0

    def fail_over(self) -> None:
        self.pair.fail_over()
        promoted_at = monotonic()
        known = {line.task_id for line in self.ground.witness.lines("started")}
        while {line.task_id for line in self.ground.witness.lines("started")} <= known:
            assert monotonic() - promoted_at < 60, "nothing has started on the new primary"
            sleep(0.02)
        self.outage = monotonic() - promoted_at


@pytest.mark.full
@trial("P1", "P3", "P6", quick=True)
@pytest.mark.timeout(300)
def test_no_acknowledged_task_is_lost_when_a_synchronous_standby_takes_over(tmp_path: Path) -> None:
    with running_pair(VERSION, synchronous=True) as pair:
        stand = Stand(pair, tmp_path)
        ground, producer = stand.ground, stand.producer
        try:
            ground.fleet.start(2, WORKERS)
            with producer.producing():
                sleep(SECONDS)
                before = len(producer.acknowledged)
                stand.fail_over()
                sleep(SECONDS)
            ground.quiesce()
            verdict = ground.check(producer)
        finally:
            ground.fleet.close()
    after = len(producer.acknowledged) - before
    tell(
        f"{before} tasks acknowledged by the old primary and {after} by the new one, none lost, "
        f"{verdict.reruns} handlers ran again; work went on {stand.outage:.1f} s after the promotion"
    )
    assert stand.outage <= OUTAGE_SECONDS + NOISE_SECONDS


@trial("P3", everyday=False)
@pytest.mark.timeout(300)
def test_what_is_left_is_whole_when_an_asynchronous_standby_takes_over(tmp_path: Path) -> None:
    """It is a second behind. What it had not received is lost, and nothing else is wrong."""
    with running_pair(VERSION, synchronous=False) as pair:
        stand = Stand(pair, tmp_path)
        ground, producer = stand.ground, stand.producer
        try:
            ground.fleet.start(2, WORKERS)
            with producer.producing():
                sleep(SECONDS)
                with pair.falling_behind():
                    sleep(1)
                    pair.primary.stop("immediate")
                stand.fail_over()
                sleep(SECONDS)
            ground.quiesce()
            conn = ground.conn
            assert_invariant(conn)
            starts = ground.witness.starts()
        finally:
            ground.fleet.close()
        keys = list(producer.acknowledged)
        kept = {row["idempotency_key"] for row in rows(conn, _KEPT, [keys])}
        ended = value(conn, "select count(*) from queues.outcome where status = 'succeeded'")
        tokens = [row["token"] for row in rows(conn, _TOKENS)]
    lost = len(keys) - len(kept)
    tell(
        f"{len(keys)} tasks acknowledged, {lost} of them lost with the second that the standby was behind; "
        f"the other {ended} ended; work went on {stand.outage:.1f} s after the promotion"
    )
    assert kept <= set(keys)
    assert lost > 0, "the standby was not behind: this trial showed nothing"
    assert len(tokens) >= len(kept)
    for of_one_task in starts.values():
        issued = [start.token for start in of_one_task]
        assert issued == sorted(set(issued)), "a token was issued again, or they do not grow"
