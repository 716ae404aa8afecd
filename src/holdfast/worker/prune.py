"""Retention: what nobody needs any more leaves the tables, a little at a time."""

import time
from typing import get_args
from uuid import UUID

from holdfast.engine import retention
from holdfast.model import Prunable
from holdfast.worker.duty import Ask
from holdfast.worker.logs import Log

BATCH = 1000
REST = 3.0
"""For how many times as long as it has worked it leaves the database alone before it goes on."""


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
