"""The chores of the engine: waking runs, looking at joins, cancelling tasks that no run waits for."""

from holdfast._engine import chores
from holdfast._engine.chores import Chore
from holdfast._serialization.text import storable
from holdfast._telemetry.logs import Log
from holdfast._worker.leader import Execute
from holdfast.errors import DatabaseUnavailable, HoldfastError, TransactionConflict

BATCH = 1000
TOOK_TOO_LONG = "57014"


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
