"""What the leader does for the whole fleet."""

import time
from typing import TypeVar, get_args
from uuid import UUID

from holdfast.engine import events, health, leases, limits, processes, queues, retention, workers
from holdfast.engine.processes import ProcessId
from holdfast.engine.queues import UnservedQueue
from holdfast.engine.retention import Prunable
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.logs import Log
from holdfast.worker.envelope import FunctionFailed, read_envelope
from holdfast.worker.leader import Ask, Duty
from holdfast.worker.scheduling import FireSchedules, PruneFirings

T = TypeVar("T")
BATCH = 1000
REST = 3.0
"""For how many times as long as it has worked it leaves the database alone before it goes on."""
REPAIRS = 100


class Recovery:
    name = "recovery"
    interval = 1.0

    def __init__(self, log: Log) -> None:
        self._log = log

    def run(self, ask: Ask) -> float | None:
        lost = ask(workers.recover_workers())
        for worker in lost:
            self._log.warning(
                "worker_lost",
                lost=worker.worker_id,
                silent_since=worker.last_heartbeat.isoformat(),
                back_to_ready=worker.recovered,
                dead_letter=worker.dead,
            )
        return 0.0 if lost else None


class Measure:
    name = "measure"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        ask(health.measure())
        return None


class Retention:
    """Walks along the tasks of one status after the other, oldest first; then it waits for its interval."""

    name = "retention"
    interval = 60.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._left: list[Prunable] = []
        self._past: UUID | None = None
        self._pruned = 0

    def run(self, ask: Ask) -> float | None:
        if not self._left:
            self._left, self._past, self._pruned = [*get_args(Prunable)], None, 0
        began = time.monotonic()
        step = ask(retention.prune(self._left[0], BATCH, self._past))
        self._pruned += step.pruned
        self._past = step.next
        if step.next is None and (self._left[0] != "history" or step.pruned < BATCH):
            self._left.pop(0)
        if self._left:
            return (time.monotonic() - began) * REST
        if self._pruned:
            self._log.info("pruned", rows=self._pruned)
        return None


class SlotTidying:
    name = "slots"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        return 0.0 if ask(limits.tidy_slots()) else None


class LaneTidying:
    """Lanes that nobody uses any more: every claim would look at each. They go in two steps."""

    name = "lanes"
    interval = 5.0

    def run(self, ask: Ask) -> float | None:
        return 0.0 if ask(limits.tidy_lanes()) else None


class OutboxPruning:
    """Events that were delivered some time ago, and the record of those that were taken in."""

    name = "outbox"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        left = ask(events.prune_events()) + ask(events.prune_inbox())
        return 0.0 if left else None


class Unserved:
    """Every queue is named once, and again if it was served meanwhile."""

    name = "unserved"
    interval = 60.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._told: frozenset[str] = frozenset()

    def run(self, ask: Ask) -> float | None:
        self.tell(ask(queues.unserved_queues()))
        return None

    def tell(self, waiting: list[UnservedQueue]) -> None:
        told, self._told = self._told, frozenset(one.queue for one in waiting)
        for one in waiting:
            if one.queue not in told:
                self._log.warning("queue_unserved", queue=one.queue, why=one.message, hint=one.advice)


class ProcessRepair:
    """Walks along the processes that have not ended, then has those repaired that have lost their supervisor.

    A worker enqueues nothing: each process has a function of its own for it, with its owner's rights.
    """

    name = "processes"
    interval = 15.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._past: ProcessId | None = None

    def run(self, ask: Ask) -> float | None:
        began = time.monotonic()
        past = ask(processes.find_orphans(self._past, BATCH))
        self._past = None if past.process is None else past
        if self._past is not None:
            return (time.monotonic() - began) * REST
        for broken in ask(processes.processes_to_repair()):
            self._repair(ask, broken.process, broken.repair)
        return None

    def _repair(self, ask: Ask, name: str, function: str) -> None:
        """One process that cannot be repaired keeps no other from it; health names it until it is."""
        try:
            answer = ask(leases.run_function(function, {"max_processes": REPAIRS}))
            envelope = read_envelope(function, *answer)
        except DatabaseUnavailable:
            raise
        except (HoldfastError, FunctionFailed) as error:
            self._log.error("repair_failed", process=name, function=function, error=str(error))
        else:
            if envelope.validation_failure is not None:
                self._log.error(
                    "repair_failed", process=name, function=function, error=envelope.validation_failure
                )
            else:
                self._log.warning("processes_repaired", process=name, answer=envelope.payload)


class ProcessPruning:
    """Where processes stood that ended long ago; their facts stay."""

    name = "ended_processes"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        return 0.0 if ask(processes.prune_processes()) else None


def build_duties(log: Log, unserved: Unserved) -> tuple[Duty, ...]:
    return (
        Recovery(log),
        FireSchedules(log),
        PruneFirings(),
        Measure(),
        Retention(log),
        SlotTidying(),
        LaneTidying(),
        OutboxPruning(),
        unserved,
        ProcessRepair(log),
        ProcessPruning(),
    )
