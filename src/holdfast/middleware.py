"""What may be wrapped around a handler's run: tracing, error reporting, timing."""

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
        """Await `proceed()` and return what it returned. What this raises, the task raised."""
