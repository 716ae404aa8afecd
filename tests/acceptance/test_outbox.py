"""Events under fire: late commits, rollbacks, killed dispatchers, a receiver that fails."""

import threading
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from time import monotonic
from uuid import UUID

import pytest

from acceptance.ground import Ground
from acceptance.outbox import Dispatchers, Ear, Writers, wait_until_delivered
from acceptance.trial import FULL, TIMES, tell, trial
from acceptance.waiting import wait_for
from support.outbox import subscribe

WRITERS = 32
EVENTS, AGGREGATES = (10_000 * TIMES, 400) if FULL else (320, 64)
LEASE = 4.0
KILL_EVERY_SECONDS = 2.0


@trial("P10")
@pytest.mark.timeout(1800 if FULL else 300)
def test_every_committed_event_arrives_in_order_while_dispatchers_are_killed(
    ground: Ground, tmp_path: Path
) -> None:
    admin = ground.conn
    writers = Writers(ground.database, WRITERS, AGGREGATES)
    dispatchers = Dispatchers(ground.database.dsn_as("holdfast_dispatcher"), tmp_path, LEASE)
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(KILL_EVERY_SECONDS):
            if dispatchers.ready():
                dispatchers.kill_the_older()
                dispatchers.launch()

    with Ear().listening() as ear:
        options = {"sink": "http", "target": ear.url, "max_attempts": 1000}
        subscribe(admin, "ear", **options)
        began = monotonic()
        dispatchers.launch()
        dispatchers.launch()
        wait_for("both dispatchers to start", dispatchers.ready)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            writers.write(EVENTS)
            wait_for("some to be killed", lambda: dispatchers.kills >= (15 if FULL else 2), 600)
            ended.set()  # the last ones live: what is left has to arrive without further kills
            wait_until_delivered(ground.database, 900 if FULL else 200)
        finally:
            ended.set()
            killer.join()
            dispatchers.close()
        took = monotonic() - began

    _check(writers, ear)
    arrivals = len(ear.heard)
    tell(
        f"{len(writers.committed)} events of {WRITERS} writers over {AGGREGATES} aggregates in {took:.0f} s, "
        f"{len(writers.rolled_back)} rolled back, {dispatchers.kills} dispatchers killed, "
        f"{arrivals} arrivals, of which {arrivals - len(ear.taken())} failed or came again"
    )


def _check(writers: Writers, ear: Ear) -> None:
    assert len(writers.committed) == EVENTS
    assert ear.taken() == writers.committed.keys(), "a committed event is missing, or another one arrived"
    assert not {event_id for event_id, _, _ in ear.heard} & writers.rolled_back
    first: dict[UUID, tuple[str, int]] = {}
    for event_id, told, _ in ear.heard:
        # A duplicate has the id of the first, and says the same.
        assert first.setdefault(event_id, told) == told == writers.committed[event_id]
    assert len(set(first.values())) == len(first), "one change has two ids"
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for aggregate, number in first.values():
        numbers[aggregate].append(number)
    for aggregate, arrived in numbers.items():
        assert arrived == list(range(1, len(arrived) + 1)), f"{aggregate} came out of order"
        assert all(one < other for one, other in pairwise(arrived))
