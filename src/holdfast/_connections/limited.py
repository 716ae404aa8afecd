"""Connections that give up a server, or a proxy before it, that takes statements and never answers.

TCP does not notice it: the other side acknowledges what it is sent. PostgreSQL's own limits end statements,
and not silence.
"""

import asyncio
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.waiting import wait_async

from holdfast.errors import NoAnswer

T = TypeVar("T")

SPARE_SECONDS = 1.0
"""By which the server ends a statement earlier than we give up: then it is known that nothing was written."""
_INTERVAL = 0.1


class LimitedConnection(psycopg.Connection[Any]):
    """For threads. `reply_seconds` is set once it is open; without it, a call waits for ever."""

    reply_seconds: float | None = None
    facts: Any = None
    """Of the database, once it is open: see DatabaseFacts."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        if self.reply_seconds is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_limited(gen, self.reply_seconds), *args, **kwargs)
        except NoAnswer:
            self.pgconn.finish()
            raise


class LimitedAsyncConnection(psycopg.AsyncConnection[Any]):
    """For an event loop. A call that is cancelled closes the connection and ends at once.

    psycopg would ask the server to cancel the statement, and wait up to ten seconds for the answers.
    """

    reply_seconds: float | None = None
    facts: Any = None
    """Of the database, once it is open: see DatabaseFacts."""

    async def wait(
        self, gen: Generator[Any, Any, T], interval: float = _INTERVAL, *args: Any, **kwargs: Any
    ) -> T:
        if self.reply_seconds is None:
            return await super().wait(gen, interval, *args, **kwargs)
        limited = _limited(gen, self.reply_seconds)
        try:
            return await wait_async(limited, self.pgconn.socket, interval, *args, **kwargs)
        except (NoAnswer, asyncio.CancelledError):
            self.pgconn.finish()
            raise


def _limited(talk: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The same conversation, which ends when the server has been silent for this long."""
    limit = seconds + SPARE_SECONDS
    until = time.monotonic() + limit
    ready: Any = None
    while True:
        try:
            wait = talk.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result
        ready = yield wait
        if ready:
            until = time.monotonic() + limit
        elif time.monotonic() >= until:
            raise NoAnswer(
                f"the database has not answered for {seconds:g} s; whether it has done what was asked is "
                "not known",
                hint="Check the server and the proxies before it; if it is a front, also its shards, with "
                "holdfast shards status. HOLDFAST_CALL_TIMEOUT sets this limit.",
            )
