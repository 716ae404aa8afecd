"""Recovery: a worker that has been silent for too long is removed, and others get what it held."""

from holdfast.engine import fleet
from holdfast.worker.duty import Ask
from holdfast.worker.logs import Log


class Recovery:
    name = "recovery"
    interval = 1.0

    def __init__(self, log: Log) -> None:
        self._log = log

    def run(self, ask: Ask) -> float | None:
        lost = ask(fleet.recover_workers())
        for worker in lost:
            self._log.warning(
                "worker_lost",
                lost=worker.worker_id,
                silent_since=worker.last_heartbeat.isoformat(),
                back_to_ready=worker.recovered,
                dead_letter=worker.dead,
            )
        return 0.0 if lost else None
