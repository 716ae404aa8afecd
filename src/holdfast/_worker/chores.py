"""The chores of the engine: waking runs, looking at joins, cancelling tasks that no run waits for."""

import random
import time

from holdfast._engine import chores, leases, workers
from holdfast._engine.chores import Chore
from holdfast._engine.leases import FleetState
from holdfast._serialization.text import storable
from holdfast._telemetry.logs import Log
from holdfast._worker.leader import Execute
from holdfast.errors import DatabaseUnavailable, HoldfastError, TransactionConflict

BATCH = 1000
TOOK_TOO_LONG = "57014"
SPREAD_SECONDS = 0.4


class Chores:
    """Does each kind in a transaction of its own, so that one that fails does not stop the others.

    After an error, or if it takes too long, it does half as many at once, until the chore that fails is
    alone: that one is put behind the others, where `queues.health()` reports it. The leader does the chores.
    If there is none, the worker that sweeps does.
    """

    name = "chores"
    interval = 1.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._batch: dict[Chore, int] = {}
        """Less than BATCH after an error."""
        self._logged: dict[Chore, str] = {}

    def run(self, execute: Execute) -> float | None:
        more = [self._do(kind, execute) for kind in execute(chores.due_chores())]
        return 0.0 if any(more) else None

    def _do(self, kind: Chore, execute: Execute) -> bool:
        """Return whether there probably are more that can be done at once."""
        batch = self._batch.get(kind, BATCH)
        try:
            done = execute(chores.do_chores(kind, batch))
        except DatabaseUnavailable:
            raise
        except HoldfastError as error:
            if isinstance(error, TransactionConflict) and error.sqlstate != TOOK_TOO_LONG:
                return False
            return self._failed(kind, batch, str(error).strip(), execute)
        self._batch[kind] = min(2 * batch, BATCH)
        return done > batch // 2

    def _failed(self, kind: Chore, batch: int, error: str, execute: Execute) -> bool:
        self._batch[kind] = max(batch // 2, 1)
        if batch > 1:
            return True
        if self._logged.get(kind) != error:  # else once a second
            self._log.error("chore_failed", chore=kind, error=error)
        self._logged[kind] = error
        execute(chores.postpone_chore(kind, storable(error)))
        return False


class LateSweep:
    """Sweeps and does the chores if the leader is late. An errand of the heartbeat's thread."""

    def __init__(self, worker_id: str, log: Log) -> None:
        self.due = 0.0
        self._worker_id = worker_id
        self._chores = Chores(log)
        self._log = log

    def run(self, execute: Execute) -> tuple[FleetState, float]:
        """Usually the leader has swept meanwhile, and there is another time to wait for."""
        asked = time.monotonic()
        state = execute(workers.fleet_state(self._worker_id))
        if state.sweep_in is not None and state.sweep_in.total_seconds() <= 0:
            swept = execute(leases.sweep())
            if swept.recovered or swept.dead:
                self._log.warning("leases_recovered", back_to_ready=swept.recovered, dead_letter=swept.dead)
            self._chores.run(execute)
            asked = time.monotonic()
            state = execute(workers.fleet_state(self._worker_id))
        return state, asked

    def learn(self, state: FleetState, asked: float) -> None:
        if state.sweep_in is None:
            self.due = float("inf")
        else:
            spread = SPREAD_SECONDS * random.uniform(0.0, 1.0)  # noqa: S311 - spreads load
            self.due = asked + max(0.0, state.sweep_in.total_seconds()) + spread
