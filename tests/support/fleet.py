"""Workers in the registry that are idle or not, and what is sent to wake them."""

from typing import Any

from support.database import Database
from support.engine import answer, call


class Fleet:
    """A listening session, and workers that say what they subscribe to."""

    def __init__(self, db: Database) -> None:
        self.admin = db.connect()
        self.listener = db.connect("holdfast_worker")
        self.listener.execute("listen holdfast")

    def register(self, worker_id: str = "w1", idle: bool = True, **arguments: Any) -> None:
        call(self.admin, "queues.register_worker", {"worker_id": worker_id, **arguments})
        answer(self.admin, "queues.mark_idle", {"worker_id": worker_id, "idle": idle})

    def heard(self) -> list[str]:
        """What has come by now: a notice of our own, sent after everything else, ends the wait."""
        self.admin.execute("notify holdfast, 'that was all'")
        heard = []
        for notice in self.listener.notifies(timeout=30):
            if notice.payload == "that was all":
                break
            heard.append(notice.payload)
        return heard
