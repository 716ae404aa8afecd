"""How often a login may fail. A token cannot be guessed; this keeps the record of failures short."""

import time
from collections import deque

MOST_FAILURES = 10
MOST_FAILURES_OF_ALL = 100
WINDOW_SECONDS = 60.0


class Throttle:
    """Failed logins of the last minute, per address and in all."""

    def __init__(self) -> None:
        self._failures: deque[tuple[float, str]] = deque()

    def is_closed_to(self, address: str) -> bool:
        self._forget()
        own = sum(1 for _, known in self._failures if known == address)
        return own >= MOST_FAILURES or len(self._failures) >= MOST_FAILURES_OF_ALL

    def failed(self, address: str) -> None:
        self._failures.append((time.monotonic(), address))

    def _forget(self) -> None:
        while self._failures and self._failures[0][0] < time.monotonic() - WINDOW_SECONDS:
            self._failures.popleft()
