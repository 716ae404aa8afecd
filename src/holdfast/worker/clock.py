"""The database's time, read off this machine's steady clock. No wall clock of ours is ever stored."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(seconds: float) -> str:
    """Seconds since 1970 as PostgreSQL reads them, exact to the microsecond."""
    return (_EPOCH + timedelta(microseconds=round(seconds * 1e6))).isoformat()


class DatabaseClock:
    """What the database's clock says now, as far as the last answer of it tells."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._last = (0, "")

    def heard(self, clock: float, asked: float) -> None:
        """The moment of asking keeps the reading from running ahead of the database."""
        self._ahead = clock - asked

    def at(self, monotonic: float, delay: float = 0.0) -> str | None:
        """A moment of ours, or one after it, as a time of the database. Many share a millisecond."""
        if self._ahead is None:
            return None
        moment = int((monotonic + self._ahead + delay) * 1000)
        if self._last[0] != moment:
            self._last = (moment, written(moment / 1000))
        return self._last[1]

    def now(self, delay: float = 0.0) -> str | None:
        return self.at(time.monotonic(), delay)
