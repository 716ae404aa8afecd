"""How a handler ends its task in another way than by a result: values that it returns.

A result is returned as it is, and an exception asks for another attempt.
"""

import math
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Snooze:
    """Run the task again after so many seconds; no attempt is used."""

    seconds: float | timedelta

    def __post_init__(self) -> None:
        seconds = self.seconds.total_seconds() if isinstance(self.seconds, timedelta) else self.seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"Snooze takes seconds or a timedelta, not {self.seconds!r}")
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"Snooze takes seconds from 0 on, not {self.seconds!r}")
        object.__setattr__(self, "seconds", float(seconds))

    @property
    def delay(self) -> timedelta:
        return self.seconds if isinstance(self.seconds, timedelta) else timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the task as cancelled."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason(self, self.reason)


@dataclass(frozen=True, slots=True)
class Fail:
    """End the task as failed: another attempt would not help."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason(self, self.reason)


Outcome = Snooze | Cancel | Fail
OUTCOMES = (Snooze, Cancel, Fail)


def _check_reason(outcome: object, reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise TypeError(f"{type(outcome).__name__} takes a reason for people to read, not {reason!r}")
