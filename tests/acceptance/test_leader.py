"""The leader dies, freezes or leaves: soon another one leads, never two, and its tasks run elsewhere."""

from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from time import monotonic, time
from uuid import UUID

import pytest

from acceptance.fleet import Fleet, WorkerProcess
from acceptance.ground import NOISE_SECONDS, Ground
from acceptance.trial import FULL, tell, trial
from acceptance.waiting import wait_for
from support import engine

TERM = 3.0
TIMEOUT = 5.0
WORKERS = {
    "HOLDFAST_TERM": TERM,
    "WORKER_TIMEOUT": TIMEOUT,
    "HOLDFAST_HEARTBEAT": 1.0,
    "HOLDFAST_LEASE": 120.0,  # so that only the leader's recovery can be quick
    "WORKER_CONCURRENCY": 20,
}
WAYS = ["kill", "freeze", "stop"]


@dataclass(frozen=True)
class Reign:
    """From when until when a worker was sure that it led, by the clock that all of them share."""

    begins: float
    ends: float
    worker: str

    def __str__(self) -> str:
        return f"{self.worker} from {self.begins:.3f} to {self.ends:.3f}"


@dataclass
class Victim:
    """A leader, one of the tasks that it held, and when it was taken away."""

    worker: WorkerProcess
    task_id: UUID
    gone_at: float


def current_leader(ground: Ground) -> WorkerProcess | None:
    found = engine.rows(
        ground.conn,
        """select l.worker_id from queues.leadership l
           where l.leader_until > queues.clock()""",
    )
    worker = ground.fleet.by_worker_id(found[0]["worker_id"]) if found else None
    return worker if worker in ground.fleet.ready else None


def with_a_task(ground: Ground, leader: WorkerProcess) -> UUID:
    """One that the leader holds. Others may get the first ones; those end by themselves."""
    for number in range(200):
        label = f"{leader.name}-{number}"
        task_id = ground.enqueue("work", label, seconds=[TIMEOUT + 3, 0])
        if ground.wait_for_start(task_id).pid == leader.pid:
            return task_id
    raise AssertionError(f"{leader.name} got none of 200 tasks")


def take_away(ground: Ground, way: str) -> Victim:
    leader = wait_for("a leader", lambda: current_leader(ground))
    assert leader is not None
    task_id = with_a_task(ground, leader)
    gone_at = monotonic()
    match way:
        case "kill":
            leader.kill()
        case "freeze":
            leader.pause()
        case _:
            leader.ask_to_stop()
    return Victim(leader, task_id, gone_at)


def reigns(fleet: Fleet) -> list[Reign]:
    """What each worker wrote into its own log, in the order in which they began."""
    ahead = time() - monotonic()
    found = []
    for worker in fleet.all:
        ended = [_at(line) for line in worker.logged("leading_stopped")]
        if worker.killed_at is not None:
            ended.append(worker.killed_at + ahead)
        for line in worker.logged("term_renewed"):
            begins = _at(line)
            over = [end for end in ended if end >= begins]
            found.append(Reign(begins, min([begins + line["seconds"], *over]), worker.name))
    return sorted(found, key=lambda reign: reign.begins)


def _at(line: dict[str, str]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def began_to_lead(fleet: Fleet, victim: Victim) -> float:
    """When another worker was first sure that it led, in seconds after the leader was taken away."""
    gone_at = victim.gone_at + time() - monotonic()
    later = [each for each in reigns(fleet) if each.begins > gone_at and each.worker != victim.worker.name]
    return later[0].begins - gone_at if later else 0.0


@trial("P5")
@pytest.mark.timeout(900 if FULL else 120)
def test_the_leader_is_replaced_in_time_and_there_are_never_two(ground: Ground) -> None:
    ground.fleet.start(3, WORKERS)
    replaced: dict[str, list[float]] = {way: [] for way in WAYS}
    recovered: dict[str, list[float]] = {way: [] for way in ("kill", "freeze")}
    for way in WAYS * (3 if FULL else 1):
        victim = take_away(ground, way)
        replaced[way].append(wait_for("a new leader", lambda v=victim: began_to_lead(ground.fleet, v)))  # type: ignore[misc]
        if way == "stop":
            assert victim.worker.wait() == 0
        else:
            again = ground.wait_for_start(victim.task_id, attempt=2)
            recovered[way].append(again.at - victim.gone_at)
        if way == "freeze":
            victim.worker.go_on()
            wait_for("it to register again", lambda v=victim: v.worker.logged("registered_again"))  # type: ignore[misc]
        else:
            ground.fleet.launch(WORKERS)
            wait_for("three to be at work", lambda: len(ground.fleet.ready) == 3)
    ground.quiesce()
    ground.check()
    tell(
        f"a new leader after {_told(replaced)} s (term {TERM:.0f} s), "
        f"tasks started again after {_told(recovered)} s (timeout {TIMEOUT:.0f} s)"
    )

    overlaps = [
        f"{one}, {other}"
        for one, other in combinations(reigns(ground.fleet), 2)
        if one.worker != other.worker and other.begins < one.ends
    ]
    assert not overlaps
    assert max(replaced["kill"] + replaced["freeze"]) <= TERM + 1 + NOISE_SECONDS
    assert max(replaced["stop"]) <= TERM / 3 + 1 + NOISE_SECONDS
    assert max(recovered["kill"] + recovered["freeze"]) <= TIMEOUT + 2 + NOISE_SECONDS


def _told(seconds: dict[str, list[float]]) -> str:
    return ", ".join(f"{max(each):.2f} ({way})" for way, each in seconds.items())
