"""A caller has a share of the connections of a pool, so that its requests do not take those of others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from holdfast.server.access import Caller
from holdfast.server.problem import Problem

TURN_SECONDS = 5.0
_RETRY_LATER = {"Retry-After": "5"}
_caller: ContextVar[str] = ContextVar("caller", default="")
"""Whose request this is. All who need no access token, such as those with the link of a callback, are one."""


def act_for(caller: Caller) -> None:
    """From now on, in this request, turns are those of this caller: an access token with all its sessions."""
    _caller.set(caller.name if caller.token_id is None else f"token {caller.token_id}")


class Turns:
    """Of the callers of one pool, in one event loop."""

    def __init__(self, share: int, refusal: Callable[[], Problem]) -> None:
        """Each caller has `share` turns at a time. `refusal`: for one who waits longer than TURN_SECONDS."""
        self._share = share
        self._refusal = refusal
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        caller = _caller.get()
        turns = self._turns.setdefault(caller, asyncio.Semaphore(self._share))
        self._users[caller] += 1
        try:
            await self._take(turns)
            try:
                yield
            finally:
                turns.release()
        finally:
            self._users[caller] -= 1
            if not self._users[caller]:
                del self._users[caller], self._turns[caller]

    async def _take(self, turns: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await turns.acquire()
        except TimeoutError:
            raise self._refusal() from None


def too_many_requests() -> Problem:
    return _busy(
        "requests", "too_many_requests", "Make fewer requests at a time, or find out what they wait for."
    )


def too_many_searches() -> Problem:
    hint = "One search per access token runs at a time: wait for its response before the next one."
    return _busy("searches", "too_many_searches", hint)


def _busy(what: str, code: str, hint: str) -> Problem:
    detail = f"other {what} with this access token have taken more than {TURN_SECONDS:.0f} seconds"
    return Problem(429, detail, code=code, hint=hint, headers=_RETRY_LATER)
