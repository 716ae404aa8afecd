"""Setbacks: what a worker does about a call for one run that the server could not carry out now."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from holdfast._connections.acknowledged import About, what_is_wrong
from holdfast.errors import DatabaseUnavailable, HoldfastError

Setback = Literal["run_not_read", "step_not_stored", "children_not_started"]
Call = TypeVar("Call", bound=Any)

LONGEST_DELAY_SECONDS = 5.0


def is_outage(error: HoldfastError) -> bool:
    """Whether no statement would succeed now."""
    return isinstance(error, DatabaseUnavailable) and what_is_wrong(error) is About.ALL


def try_later(failed: Call, again: Callable[[Call], None], setback: Setback) -> float:
    """Try the call again by itself, and return in how many seconds. Meanwhile, health names its task."""
    delay: float = min(LONGEST_DELAY_SECONDS, 0.1 * 2 ** min(failed.failures, 10))
    failed.job.trouble = setback
    asyncio.get_running_loop().call_later(delay, again, failed._replace(failures=failed.failures + 1))
    return delay


def got_over(call: Call) -> None:
    """The server has answered a call that had failed."""
    call.job.trouble = None
