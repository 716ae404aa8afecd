"""How often a login may fail. A token cannot be guessed; this keeps the record of failures short."""

import time
from collections import deque

from holdfast.http.connection_limit import source_of

MAX_FAILURES = 10
MAX_RECORDED = 100
MAX_REMEMBERED = 10_000
WINDOW_SECONDS = 60.0


class LoginThrottle:
    """Failed logins of the last minute.

    An address that failed too often waits. However many others fail, a good token is let in: they only stop
    being recorded.
    """

    def __init__(self) -> None:
        self._failures: deque[tuple[float, str]] = deque(maxlen=MAX_REMEMBERED)

    def is_closed_to(self, address: str) -> bool:
        self._forget()
        source = source_of(address)
        return sum(1 for _, known in self._failures if known == source) >= MAX_FAILURES

    @property
    def is_busy(self) -> bool:
        """Whether so many fail that no more of them are to be recorded."""
        self._forget()
        return len(self._failures) >= MAX_RECORDED

    def failed(self, address: str) -> None:
        self._failures.append((time.monotonic(), source_of(address)))

    def _forget(self) -> None:
        while self._failures and self._failures[0][0] < time.monotonic() - WINDOW_SECONDS:
            self._failures.popleft()
