"""Compares what clients were told and what handlers wrote down with what the database holds in the end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Protocol
from uuid import UUID

from acceptance.fleet import Fleet
from acceptance.witness import Line, Witness
from support import engine
from support.engine import Connection
from support.invariant import assert_invariant

_ENDED = """
    select t.task_id, t.payload ->> 'label' as label, t.max_attempts,
      o.status, o.attempt, o.token, o.worker_id, o.result,
      array(select distinct e.attempt from queues.error e where e.task_id = t.task_id) as failed
    from queues.task t join queues.outcome o on o.task_id = t.task_id"""

_RECOVERED = """
    select e.task_id, e.attempt, e.worker_id, date_part('epoch', e.occurred_at) as swept_at
    from queues.error e where e.recovered"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that has an outcome, and the attempts that went wrong before it or with it."""

    task_id: UUID
    label: str
    max_attempts: int
    status: str
    attempt: int
    token: int | None
    worker_id: str
    result: Any
    failed: list[int]


class Told(Protocol):
    """What a producer was told."""

    acknowledged: dict[str, UUID]
    rolled_back: set[str]


@dataclass
class Verdict:
    """All that a test may ask further, and every rule that was found broken."""

    ended: dict[UUID, Ended]
    starts: dict[UUID, list[Line]]
    broken: list[str] = field(default_factory=list)

    @property
    def reruns(self) -> int:
        return sum(len(starts) - 1 for starts in self.starts.values())

    @property
    def most_attempts(self) -> int:
        return max(task.attempt for task in self.ended.values())

    def of(self, task_id: UUID) -> Ended:
        return self.ended[task_id]


def check(conn: Connection, witness: Witness, fleet: Fleet, *producers: Told) -> Verdict:
    """After all is quiet. Fails with every rule that does not hold."""
    return check_all([conn], witness, fleet, *producers)


def check_all(conns: Sequence[Connection], witness: Witness, fleet: Fleet, *producers: Told) -> Verdict:
    """The same for databases that have the tasks together."""
    for conn in conns:
        assert_invariant(conn)
    ended = {row["task_id"]: Ended(**row) for conn in conns for row in engine.rows(conn, _ENDED)}
    return _judge(conns, Verdict(ended, witness.starts()), witness, fleet, producers)


def check_only(conn: Connection, witness: Witness, fleet: Fleet, producer: Told) -> Verdict:
    """The same for the tasks of one producer, beside others that have rules of their own."""
    assert_invariant(conn)
    wanted = set(producer.acknowledged.values())
    ended = {row["task_id"]: Ended(**row) for row in engine.rows(conn, _ENDED) if row["task_id"] in wanted}
    return _judge([conn], Verdict(ended, witness.starts()), witness, fleet, [producer])


def _judge(
    conns: Sequence[Connection], verdict: Verdict, witness: Witness, fleet: Fleet, producers: Sequence[Told]
) -> Verdict:
    for producer in producers:
        verdict.broken += _acknowledged_and_not_ended(verdict, producer)
        for conn in conns:
            verdict.broken += _rolled_back_and_yet_there(conn, witness, producer)
    for conn in conns:
        verdict.broken += _left_behind(conn)
    verdict.broken += _accepted_twice(verdict, fleet)
    finished = Counter((line.task_id, line.token, line.pid) for line in witness.lines("ended"))
    for task in verdict.ended.values():
        starts = verdict.starts.get(task.task_id, [])
        verdict.broken += _miscounted(task, starts) + _not_fenced(task, starts, finished)
    assert not verdict.broken, "\n".join(verdict.broken[:20])
    return verdict


def _acknowledged_and_not_ended(verdict: Verdict, producer: Told) -> list[str]:
    return [
        f"{key} was acknowledged as {task_id} and did not succeed"
        for key, task_id in producer.acknowledged.items()
        if task_id not in verdict.ended or verdict.ended[task_id].status != "succeeded"
    ]


def _rolled_back_and_yet_there(conn: Connection, witness: Witness, producer: Told) -> list[str]:
    ran = {line.label for line in witness.lines()}
    kept = "select idempotency_key as key from queues.task where idempotency_key = any(%s)"
    found = {row["key"] for row in engine.rows(conn, kept, [list(producer.rolled_back)])}
    return [
        f"{key} was rolled back and yet {'ran' if key in ran else 'exists'}"
        for key in producer.rolled_back
        if key in ran or key in found
    ]


def _left_behind(conn: Connection) -> list[str]:
    counts = engine.counts(conn)
    return [f"{counts[table]} rows are left in {table}" for table in ("ready", "lease") if counts[table]]


def _accepted_twice(verdict: Verdict, fleet: Fleet) -> list[str]:
    times_of = {task_id: times for task_id, times in fleet.accepted().items() if task_id in verdict.ended}
    twice = {task_id: times for task_id, times in times_of.items() if times > 1}
    return [f"{task_id} was accepted as a success {times} times" for task_id, times in twice.items()]


def _miscounted(task: Ended, starts: list[Line]) -> list[str]:
    counted = {*task.failed, task.attempt}
    broken = []
    if counted != set(range(1, task.attempt + 1)) or task.attempt > task.max_attempts:
        broken.append(f"{task.label} counted the attempts {sorted(counted)} of {task.max_attempts}")
    if any(start.attempt > task.attempt for start in starts):
        broken.append(
            f"{task.label} ended at attempt {task.attempt} and yet ran as {[s.attempt for s in starts]}"
        )
    return broken


def _not_fenced(task: Ended, starts: list[Line], finished: Counter[tuple[UUID, int, int]]) -> list[str]:
    broken = []
    tokens = [start.token for start in starts]
    if tokens != sorted(set(tokens)):
        broken.append(f"{task.label} started under the tokens {tokens}, which do not grow")
    if task.status != "succeeded":
        return broken
    if task.token is None or task.token != max(tokens, default=None):
        broken.append(f"{task.label} ended under the token {task.token} and started under {tokens}")
    if (task.result["attempt"], task.result["token"]) != (task.attempt, task.token):
        broken.append(f"{task.label} ended with the result of another attempt: {task}")
    if finished[task.task_id, task.result["token"], task.result["pid"]] != 1:
        broken.append(f"{task.label} has a result that no handler, or more than one, came to: {task}")
    return broken


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the death of a worker to the next start of a task that it held, by way of the sweep."""

    seconds: float
    swept_after: float
    label: str

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.label}, swept after {self.swept_after:.2f} s)"


def recoveries(conn: Connection, verdict: Verdict, fleet: Fleet) -> list[Recovery]:
    """Fastest first, of every task that a killed worker held and that the next holder could start."""
    found = []
    ahead = time() - monotonic()  # of the server's clock, which is this machine's
    for row in engine.rows(conn, _RECOVERED):
        killed_at = fleet.by_worker_id(row["worker_id"]).killed_at
        next_starts = [s for s in verdict.starts[row["task_id"]] if s.attempt == row["attempt"] + 1]
        if killed_at is not None and next_starts:
            start = next_starts[0]
            found.append(Recovery(start.at - killed_at, row["swept_at"] - ahead - killed_at, start.label))
    return sorted(found, key=lambda recovery: recovery.seconds)


def lost_by_the_living(conn: Connection, fleet: Fleet) -> int:
    """Leases that ended although their worker was not killed: the machine was too busy for its heartbeat."""
    lost = [fleet.by_worker_id(row["worker_id"]) for row in engine.rows(conn, _RECOVERED)]
    return sum(worker.killed_at is None for worker in lost)
