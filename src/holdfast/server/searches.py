"""Searches: reads that may examine many tasks. They have own connections, one for a caller at a time."""

from typing import TypeVar

from holdfast._connections.pool import AsyncWork
from holdfast.errors import HoldfastError
from holdfast.server.problem import CANCELED, Problem
from holdfast.server.role_pool import RolePool
from holdfast.server.turns import Turns, too_many_searches

T = TypeVar("T")

SEARCH_SECONDS = 3
"""Of one statement."""
MAX_SEARCH_SECONDS = 1.0
"""After that, a list of tasks searches no further, and says where to go on."""
_RETRY_LATER = {"Retry-After": "5"}


class Searches:
    """Of one event loop."""

    def __init__(self, pool: RolePool) -> None:
        self._pool = pool
        self._turns = Turns(1, too_many_searches)

    async def run(self, work: AsyncWork[T]) -> T:
        """Waits while another search of the same caller runs."""
        async with self._turns.taken():
            try:
                return await self._pool.run("holdfast_reader", work, statement_seconds=SEARCH_SECONDS)
            except HoldfastError as error:
                raise (_too_slow() if error.sqlstate == CANCELED else error) from error


def _too_slow() -> Problem:
    return Problem(
        503,
        f"the search took longer than {SEARCH_SECONDS} seconds",
        code="search_too_slow",
        hint="Narrow it by status, queue, type or since, or simplify its JSON path.",
        headers=_RETRY_LATER,
    )
