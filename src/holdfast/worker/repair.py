"""Repair: a business process whose supervisor task is gone gets another one, so that it comes to an end."""

import time

from holdfast.engine import lease, process
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.model.process import ProcessId
from holdfast.worker.duty import Ask
from holdfast.worker.envelope import FunctionFailed, read_envelope
from holdfast.worker.logs import Log

BATCH = 1000
REST = 3.0
"""For how many times as long as it has worked it leaves the database alone before it goes on."""
REPAIRS = 100


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
        past = ask(process.find_orphans(self._past, BATCH))
        self._past = None if past.process is None else past
        if self._past is not None:
            return (time.monotonic() - began) * REST
        for broken in ask(process.processes_to_repair()):
            self._repair(ask, broken.process, broken.repair)
        return None

    def _repair(self, ask: Ask, name: str, function: str) -> None:
        """One process that cannot be repaired keeps no other from it; health names it until it is."""
        try:
            answer = ask(lease.call_function(function, f'{{"max_processes": {REPAIRS}}}'))
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
        return 0.0 if ask(process.prune_processes()) else None
