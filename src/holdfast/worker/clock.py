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

    def heard(self, clock: float) -> None:
        """Right after the answer: the reading may lag by the way back, and never runs ahead."""
        self._ahead = clock - time.monotonic()

    def at(self, monotonic: float, delay: float = 0.0) -> str | None:
        """A moment of ours, or one after it, as a time of the database. Many share a millisecond."""
        if self._ahead is None:
            return None
        moment = int((monotonic + self._ahead + delay) * 1000)
        last = self._last
        if last[0] != moment:
            last = self._last = (moment, written(moment / 1000))
        return last[1]

    def now(self, delay: float = 0.0) -> str | None:
        return self.at(time.monotonic(), delay)
