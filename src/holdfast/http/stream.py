"""A task's life as server-sent events: each step, its progress, and at last its end.

An event's id says how far its reader has come: how many steps of the task's life, which ones, and which
progress. Whoever comes back with one is told everything since. If the steps before it are not those that the
reader was told of, because one of them became known later, all are told again: twice rather than never.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.engine.tasks import TaskEvent, TaskLook
from holdfast.http.problem import Problem
from holdfast.http.send import begin, disconnected, send_piece
from holdfast.http.wait_responses import LOOK_SECONDS, WaitRequest, described, found
from holdfast.http.waiting import Waiter, WaitRegistry, WatchedSubject

KEEP_ALIVE_SECONDS = 15.0
LONGEST_SECONDS = 3600.0
RETRY_MILLISECONDS = 1000

_ID = re.compile(r"(?P<steps>[0-9]{1,6})-(?P<digest>[0-9a-f]{16})-(?P<progress>[0-9a-f]{16}|0)(?P<end>-end)?")


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far a reader has come."""

    steps: int = 0
    digest: str = ""
    progress: str = "0"
    end: bool = False

    def __str__(self) -> str:
        return f"{self.steps}-{self.digest or _digest(())}-{self.progress}{'-end' if self.end else ''}"


def parse_position(given: str | None) -> StreamPosition:
    match = _ID.fullmatch(given or "")
    if match is None:
        return StreamPosition()
    return StreamPosition(int(match["steps"]), match["digest"], match["progress"], match["end"] is not None)


class EventStreamResponse(Response):
    """Ends with the task; or by itself after an hour, for its reader to come again."""

    def __init__(self, waits: WaitRegistry, ask: WaitRequest, place: StreamPosition) -> None:
        self._waits = waits
        self._ask = ask
        self._place = place
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._place.end:  # it knows the end: 204 tells a browser not to come again
            await Response(status_code=204, headers=self._ask.headers)(scope, receive, send)
            return
        gone = asyncio.create_task(disconnected(receive))
        ask = self._ask
        try:
            async with self._waits.seat(ask.key, ask.shares, live=ask.live) as seat:
                gone.add_done_callback(lambda _: seat.news.set())
                await seat.first_look(LOOK_SECONDS)
                found(seat, ask.subject)
                await self._tell(seat, gone, send)
        except Problem as problem:
            problem.headers |= ask.headers
            await problem.response()(scope, receive, send)
        finally:
            gone.cancel()

    async def _tell(self, seat: Waiter, gone: asyncio.Task[None], send: Send) -> None:
        # The connection ends with the task: a browser would keep it open for nothing.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Connection": "close"}
        headers |= self._ask.headers
        await begin(send, 200, "text/event-stream; charset=utf-8", headers)
        await send_piece(send, f"retry: {RETRY_MILLISECONDS}\n\n".encode())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self._ask.seconds, LONGEST_SECONDS)
        while True:
            for frame in self._unsent(seat.watched):
                await send_piece(send, frame)
            if self._place.end or gone.done() or self._waits.stopping or loop.time() >= deadline:
                break
            if not await seat.next(min(KEEP_ALIVE_SECONDS, deadline - loop.time())):
                await send_piece(send, b": still here\n\n")
        if not gone.done():
            await send_piece(send, b"", more=False)

    def _unsent(self, watched: WatchedSubject) -> Iterator[bytes]:
        """What the reader has not been told. A slow one is told the last progress only, but every step."""
        events = watched.events
        steps = self._place.steps
        if steps > len(events) or _digest(events[:steps]) != (self._place.digest or _digest(())):
            steps = 0
        for number in range(steps, len(events)):
            self._place = replace(self._place, steps=number + 1, digest=_digest(events[: number + 1]))
            yield self._frame("status", _step(events[number]))
        look = watched.look
        if look is None:
            return
        written = look.progress_json if isinstance(look, TaskLook) else None
        progress = "0" if written is None else _hash(written)
        if progress not in ("0", self._place.progress):
            self._place = replace(self._place, progress=progress)
            yield self._frame("progress", written or "null")
        if look.ended:
            self._place = replace(self._place, end=True)
            yield self._frame("end", described(look, hidden=self._ask.hidden).decode())

    def _frame(self, event: str, data: str) -> bytes:
        return f"id: {self._place}\nevent: {event}\ndata: {data}\n\n".encode()


def _step(event: TaskEvent) -> str:
    """Who did it, and why, is not for those who only wait."""
    fields = {"event": event.event_type, "at": event.occurred_at.isoformat(), "attempt": event.attempt}
    return json.dumps(fields)


def _digest(events: tuple[TaskEvent, ...]) -> str:
    return _hash("\n".join(_step(event) for event in events))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
