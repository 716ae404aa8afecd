"""An outage of the database, as one thing for all connections of a process."""

import threading
import time
from typing import Any

from holdfast._telemetry.logs import Log

FORGET_SECONDS = 60.0
"""A connection that has not failed for so long is not needed any more: a wait for an answer is shorter."""


class Outage:
    """Begins with the first connection that fails, and ends when all that have failed work again.

    Two lines say so; what each connection meets meanwhile is for debugging. Any thread may call it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._failing: dict[str, float] = {}
        """The connections that have failed, and when they did last."""
        self._since: float | None = None
        self._latest = 0.0
        self._ended = float("-inf")
        self._opened: dict[str, float] = {}

    def opened(self, connection: str) -> None:
        with self._lock:
            self._opened[connection] = time.monotonic()

    def failed(self, connection: str, error: BaseException, **fields: Any) -> None:
        now = time.monotonic()
        with self._lock:
            begins = self._since is None or not self._still_failing(now)
            if begins and self._opened.pop(connection, now) < self._ended:
                begins = False  # it was idle in the last outage, and notices only now that it was cut
            else:
                self._fails(connection, now, begins=begins)
        write = self._log.warning if begins else self._log.debug
        write("database_unavailable", connection=connection, error=_text(error), **fields)

    def works(self, connection: str) -> None:
        """The database has answered. Cheap while there is no outage."""
        if self._since is None:
            return
        now = time.monotonic()
        with self._lock:
            since = self._since
            if since is None:
                return
            known = self._failing.pop(connection, None) is not None
            if known:
                self._latest = now
            ended = not self._still_failing(now)
            if ended:
                self._since = None
                self._ended = now
                self._failing.clear()
            seconds = round(self._latest - since, 1)
        if ended:
            self._log.info("database_back", connection=connection, after_seconds=seconds)
        elif known:
            self._log.debug("database_back", connection=connection, after_seconds=seconds)

    def forget(self, connection: str) -> None:
        """It is not needed any more, whether it works or not."""
        with self._lock:
            self._failing.pop(connection, None)

    def _fails(self, connection: str, now: float, *, begins: bool) -> None:
        if begins:
            self._since = now
            self._failing.clear()
        self._failing[connection] = self._latest = now

    def _still_failing(self, now: float) -> bool:
        return any(now - failed < FORGET_SECONDS for failed in self._failing.values())


def _text(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
