"""Outcomes: how a handler ends an attempt other than with a result.

A handler returns an outcome, or raises it. Raised, it rolls back what `ctx.transaction()` has written.
"""

import math
from datetime import timedelta


class _Outcome(Exception):
    """Outcomes are values: equal if they are of the same kind with the same arguments."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), self.args))


class Snooze(_Outcome):
    """Run the task again after that many seconds, without counting the attempt."""

    __match_args__ = ("seconds",)

    def __init__(self, seconds: float | timedelta) -> None:
        self.seconds = _seconds(self, seconds)
        super().__init__(self.seconds)

    @property
    def delay(self) -> timedelta:
        return timedelta(seconds=self.seconds)


class Retry(_Outcome):
    """Try again after that many seconds, and count the attempt. The last attempt fails for good."""

    __match_args__ = ("after", "reason")

    def __init__(self, after: float | timedelta, reason: str | None = None) -> None:
        self.after = _seconds(self, after)
        self.reason = None if reason is None else _reason(self, reason)
        super().__init__(self.after, self.reason)

    def __str__(self) -> str:
        return self.reason or f"the handler asked to be tried again in {self.after:g} s"


class Cancel(_Outcome):
    """End the task as cancelled."""

    __match_args__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = _reason(self, reason)
        super().__init__(self.reason)


class Fail(_Outcome):
    """End the task as failed: another attempt would not help."""

    __match_args__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = _reason(self, reason)
        super().__init__(self.reason)


Outcome = Snooze | Retry | Cancel | Fail
OUTCOMES = (Snooze, Retry, Cancel, Fail)


def _seconds(outcome: object, given: float | timedelta) -> float:
    name = type(outcome).__name__
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} takes seconds or a timedelta, not {given!r}")
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name} takes 0 seconds or more, not {given!r}")
    return float(seconds)


def _reason(outcome: object, reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise TypeError(f"{type(outcome).__name__} takes a reason for people to read, not {reason!r}")
    return reason
