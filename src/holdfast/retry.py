"""Retry policies: when a worker tries a task again after an attempt that raised."""

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Protocol, runtime_checkable

_SECONDS = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
MAX_DELAY_SECONDS = 90 * 365 * 86400.0  # finish refuses times that are a century away


@runtime_checkable
class RetryPolicy(Protocol):
    def delay(self, attempt: int, error: BaseException) -> float | None:
        """Seconds until the next attempt, or None for no further attempt. The first attempt is number 1."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """Doubles each time: min(cap, base * 2^attempt) seconds, plus a random share of up to `jitter` of it."""

    base: float | timedelta = 1
    cap: float | timedelta = 300
    jitter: float = 0.5

    def __post_init__(self) -> None:
        _check(self, base=_seconds(self.base), cap=_seconds(self.cap), jitter=self.jitter)

    def delay(self, attempt: int, error: BaseException) -> float:
        del error
        # A power beyond 1,000 does not fit a float, and no cap is that high.
        return _jittered(
            min(_seconds(self.cap), _seconds(self.base) * 2.0 ** min(attempt, 1000)), self.jitter
        )


@dataclass(frozen=True, slots=True)
class Linear:
    """Grows by the same step each time: min(cap, step * attempt) seconds, plus a random share."""

    step: float | timedelta = 10
    cap: float | timedelta = 300
    jitter: float = 0.5

    def __post_init__(self) -> None:
        _check(self, step=_seconds(self.step), cap=_seconds(self.cap), jitter=self.jitter)

    def delay(self, attempt: int, error: BaseException) -> float:
        del error
        return _jittered(min(_seconds(self.cap), _seconds(self.step) * attempt), self.jitter)


@dataclass(frozen=True, slots=True)
class NoRetry:
    """No further attempt, whatever was raised."""

    def delay(self, attempt: int, error: BaseException) -> float | None:
        del attempt, error
        return None


@dataclass(frozen=True, slots=True)
class ByException:
    """The policy of the first class, in the given order, of which the error is an instance."""

    policies: Mapping[type[BaseException], RetryPolicy]
    otherwise: RetryPolicy = field(default_factory=Exponential)

    def __post_init__(self) -> None:
        for kind, policy in self.policies.items():
            _check_choice(kind, policy)

    def delay(self, attempt: int, error: BaseException) -> float | None:
        for kind, policy in self.policies.items():
            if isinstance(error, kind):
                return policy.delay(attempt, error)
        return self.otherwise.delay(attempt, error)


def next_delay(policy: RetryPolicy, attempt: int, error: BaseException) -> float | None:
    """Seconds until the next attempt. A policy that raises must not keep the task from being settled."""
    try:
        delay = policy.delay(attempt, error)
        if delay is None:
            return None
        if not math.isfinite(delay):
            raise ValueError(delay)  # noqa: TRY301 - handled like any other failure of a policy
        return min(max(0.0, delay), MAX_DELAY_SECONDS)
    except Exception:  # noqa: BLE001 - an application's policy may raise anything
        return DEFAULT_RETRY.delay(attempt, error)


def _seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def _jittered(raw: float, jitter: float) -> float:
    return raw + random.uniform(0, jitter * raw)  # noqa: S311 - spreads load, guards no secret


def _check(policy: object, **numbers: object) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < float("inf"):
            raise ValueError(f"{type(policy).__name__} takes a {name} of 0 or more, not {number!r}")


def _check_choice(kind: object, policy: object) -> None:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError(f"ByException maps exception classes to policies; {kind!r} is not an exception class")
    if not isinstance(policy, RetryPolicy):
        raise TypeError(f"ByException maps {kind.__name__} to {policy!r}, which is not a retry policy")


DEFAULT_RETRY = Exponential()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to the Retry-After header of an HTTP response, or None without a valid one.

    A date is compared with the response's own Date header if it has one, and with this clock otherwise.
    """
    given = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(given):
        return float(given)
    try:
        until = _http_date(given)
    except ValueError:
        return None
    try:
        now = _http_date(headers.get("date", ""))
    except ValueError:
        now = datetime.now(UTC)
    return max(0.0, (until - now).total_seconds())


def _http_date(value: str) -> datetime:
    date = parsedate_to_datetime(value)
    return date.replace(tzinfo=date.tzinfo or UTC)
