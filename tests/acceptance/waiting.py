"""Waiting for what another process does."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")


def wait_for(what: str, seen: Callable[[], T], seconds: float = 60) -> T:
    """Ask until the answer is something, and give it back."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        if answer := seen():
            return answer
        sleep(0.02)
    raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")
