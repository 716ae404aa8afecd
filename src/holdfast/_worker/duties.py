"""The duties of the leader: recovery, retention, cleaning up, repair, and warnings for the whole fleet."""

import time
from typing import TypeVar, get_args

from holdfast._engine import (
    activity,
    events,
    leases,
    limits,
    processes,
    queues,
    retention,
    units,
    workers,
)
from holdfast._engine.health import HealthLine
from holdfast._engine.processes import ProcessId, ToRepair
from holdfast._engine.retention import Prunable
from holdfast._telemetry.logs import Log
from holdfast._worker.chores import Chores
from holdfast._worker.envelope import FunctionFailed, function_envelope
from holdfast._worker.leader import Duty, Execute
from holdfast._worker.scheduling import FireSchedules, PruneFirings
from holdfast.errors import DatabaseUnavailable, HoldfastError

T = TypeVar("T")
BATCH = 1000
PRUNE_BATCH = 5000
REST_FACTOR = 3.0
"""How long a walk over a table pauses after a step that changed nothing, as a multiple of what it took."""
MAX_REPAIRS = 100
LOOK_AGAIN_SECONDS = 60.0
"""How often the leader looks whether a unit has been added."""


class Sweep:
    """Recovers tasks whose leases have ended. If the leader is late, the other workers do it."""

    name = "sweep"
    interval = 1.0

    def __init__(self, log: Log) -> None:
        self._log = log

    def run(self, execute: Execute) -> float | None:
        swept = execute(leases.sweep(BATCH))
        if swept.recovered or swept.dead:
            self._log.warning("leases_recovered", back_to_ready=swept.recovered, dead_letter=swept.dead)
        return 0.0 if swept.recovered + swept.dead == BATCH else None


class Recovery:
    """Removes workers that have been silent for too long, and gives their tasks back."""

    name = "recovery"
    interval = 1.0

    def __init__(self, log: Log) -> None:
        self._log = log

    def run(self, execute: Execute) -> float | None:
        lost = execute(workers.recover_workers())
        for worker in lost:
            self._log.warning(
                "worker_lost",
                lost=worker.worker_id,
                silent_since=worker.last_heartbeat.isoformat(),
                back_to_ready=worker.recovered,
                dead_letter=worker.dead,
            )
        return 0.0 if lost else None


class Sampling:
    """Records once a minute how large everything is, so that health can report growth."""

    name = "sample"
    interval = 60.0

    def run(self, execute: Execute) -> float | None:
        execute(activity.take_sample(count_tasks=False))
        return None


class Retention:
    """Deletes old rows in steps, one status after the other, oldest first.

    It does not pause between steps that delete something: it has to be faster than the workers, which may
    finish tens of thousands of tasks per second.
    """

    name = "retention"
    interval = 60.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._left: list[Prunable] = []
        self._pruned = 0

    def run(self, execute: Execute) -> float | None:
        if not self._left:
            self._left, self._pruned = [*get_args(Prunable)], 0
        began = time.monotonic()
        step = execute(retention.prune(self._left[0], PRUNE_BATCH))
        self._pruned += step.pruned
        if step.next is None and (self._left[0] != "history" or step.pruned < PRUNE_BATCH):
            self._left.pop(0)
        if self._left:
            return 0.0 if step.pruned else (time.monotonic() - began) * REST_FACTOR
        if self._pruned:
            self._log.info("rows_pruned", rows=self._pruned)
        return None


class LaneTidying:
    """Deletes unused lanes in two steps: every claim would look at each of them."""

    name = "lanes"
    interval = 5.0

    def run(self, execute: Execute) -> float | None:
        return 0.0 if execute(limits.tidy_lanes()) else None


class OutboxPruning:
    """Deletes events that were delivered some time ago, and the records of received ones."""

    name = "outbox"
    interval = 60.0

    def run(self, execute: Execute) -> float | None:
        left = execute(events.prune_events()) + execute(events.prune_inbox())
        return 0.0 if left else None


class UnservedQueues:
    """Warns about queues that have due tasks and no live worker; each is named once until it is served."""

    name = "unserved"
    interval = 60.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._warned: frozenset[str] = frozenset()

    def run(self, execute: Execute) -> float | None:
        self.warn(execute(queues.unserved_queues()))
        return None

    def warn(self, waiting: list[HealthLine]) -> None:
        warned, self._warned = self._warned, frozenset(str(one.subject) for one in waiting)
        for one in waiting:
            if one.subject not in warned:
                self._log.warning("queue_has_no_worker", queue=one.subject, why=one.message, hint=one.advice)


class ProcessRepair:
    """Finds business processes that have lost their supervisor task, and has another one enqueued.

    A worker enqueues nothing itself: each process has a function for it, with the rights of its owner.
    """

    name = "processes"
    interval = 15.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._after: ProcessId | None = None

    def run(self, execute: Execute) -> float | None:
        began = time.monotonic()
        after = execute(processes.find_orphans(self._after, BATCH))
        self._after = None if after.process is None else after
        if self._after is not None:
            return (time.monotonic() - began) * REST_FACTOR
        for broken in execute(processes.processes_to_repair()):
            self._repair(execute, broken)
        return None

    def _repair(self, execute: Execute, broken: ToRepair) -> None:
        """A process that cannot be repaired does not delay the others; health reports it until it is."""
        name, function = broken.process, broken.repair
        try:
            answer = execute(leases.run_function(function, {"max_processes": MAX_REPAIRS}, broken.wait_key))
            envelope = function_envelope(function, *answer)
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
    """Deletes the state of processes that ended long ago; their facts stay."""

    name = "ended_processes"
    interval = 60.0

    def run(self, execute: Execute) -> float | None:
        return 0.0 if execute(processes.prune_processes()) else None


class OfUnit:
    """A duty that rests while the database does without its unit. A unit that is installed stays."""

    def __init__(self, unit: str, duty: Duty) -> None:
        self.name = duty.name
        self.interval = duty.interval
        self._unit = unit
        self._duty = duty
        self._installed = False

    def run(self, execute: Execute) -> float | None:
        if not self._installed:
            self._installed = self._unit in execute(units.installed_units())
        return self._duty.run(execute) if self._installed else LOOK_AGAIN_SECONDS


def build_duties(log: Log, unserved: UnservedQueues) -> tuple[Duty, ...]:
    return (
        Sweep(log),
        Recovery(log),
        Chores(log),
        FireSchedules(log),
        PruneFirings(),
        Sampling(),
        Retention(log),
        LaneTidying(),
        OfUnit("events", OutboxPruning()),
        unserved,
        OfUnit("messages", ProcessRepair(log)),
        OfUnit("messages", ProcessPruning()),
    )
