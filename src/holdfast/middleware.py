"""Middleware: wraps the run of every handler, for tracing, error reporting or timing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt, as a middleware sees it."""

    type: str
    task_id: str
    attempt: int
    payload: Any
    metadata: dict[str, Any]


class Middleware(Protocol):
    async def __call__(self, call: Call, proceed: Callable[[], Awaitable[Any]]) -> Any:
        """Await `proceed()` and return its result. An exception counts as one of the handler."""
