"""A length of time as callers give it: seconds, or a timedelta."""

from datetime import timedelta

from holdfast.errors import InvalidArgument

WAIT_TTL = timedelta(minutes=15)


def seconds(name: str, given: object) -> timedelta:
    try:
        span = given if isinstance(given, timedelta) else timedelta(seconds=given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} takes seconds or a timedelta, not {given!r}") from None
    if span < timedelta(0):
        raise InvalidArgument(f"{name} must not be negative, and {given!r} is")
    return span
