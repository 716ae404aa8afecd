"""A duty of the leader: say which queues have due tasks that no live worker serves."""

from holdfast.engine import fleet
from holdfast.model import UnservedQueue
from holdfast.worker.duty import Ask
from holdfast.worker.logs import Log


class Unserved:
    """Every queue is named once, and again if it was served meanwhile."""

    name = "unserved"
    interval = 60.0

    def __init__(self, log: Log) -> None:
        self._log = log
        self._told: frozenset[str] = frozenset()

    def run(self, ask: Ask) -> float | None:
        self.tell(ask(fleet.unserved_queues()))
        return None

    def tell(self, waiting: list[UnservedQueue]) -> None:
        told, self._told = self._told, frozenset(one.queue for one in waiting)
        for one in waiting:
            if one.queue not in told:
                self._log.warning("queue_unserved", queue=one.queue, why=one.message, hint=one.advice)
