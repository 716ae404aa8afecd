"""Results that live pages share: one of them runs the query, and the others get the same result."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Result:
    began: float
    query: asyncio.Task[Any]

    def is_usable(self, max_age: float) -> bool:
        """A query that is still running is joined, however long it takes, so that slow ones do not add up."""
        if not self.query.done():
            return True
        failed = self.query.cancelled() or self.query.exception() is not None
        return not failed and time.monotonic() - self.began <= max_age


class SharedResults:
    """Of one event loop. There are few names: one per page that is the same for all of its readers."""

    def __init__(self) -> None:
        self._results: dict[str, _Result] = {}

    async def get(self, name: str, query: Callable[[], Awaitable[T]], max_age: float) -> T:
        """A result whose query began at most `max_age` seconds ago, or a new one; with 0 always a new one."""
        known = self._results.get(name)
        if known is None or max_age <= 0 or not known.is_usable(max_age):
            known = _Result(time.monotonic(), asyncio.ensure_future(_run(query)))
            known.query.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._results[name] = known
        # A caller that leaves does not end the query that others wait for.
        result: T = await asyncio.shield(known.query)
        return result

    def forget(self) -> None:
        self._results.clear()

    async def close(self) -> None:
        running = [known.query for known in self._results.values() if not known.query.done()]
        for query in running:
            query.cancel()
        if running:
            await asyncio.wait(running)


async def _run(query: Callable[[], Awaitable[T]]) -> T:
    return await query()
