"""The two responses to a wait: a long poll, and a stream of server-sent events.

The id of an event is a position: the digest of the last step that the reader has received, and the last
progress. A reader that reconnects with an id receives everything since. If the steps before the position are
not the ones the reader received, because one was recorded late, all steps are sent again: at most MAX_EVENTS.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from uuid import UUID

from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from holdfast._connections.wait_ticket import Subject
from holdfast._connections.waiting import State, TooManyWaits, Waiter, WaitLimit, Waits, Watched, not_found
from holdfast._engine.processes import ProcessStatus
from holdfast._engine.tasks import TaskSnapshot
from holdfast.server.hidden_values import hide_snapshot
from holdfast.server.problem import Problem, unavailable
from holdfast.server.streamed_steps import NOTHING, StreamedSteps, digest_of

FIRST_READ_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 15.0
MAX_STREAM_SECONDS = 3600.0
RETRY_MILLISECONDS = 1000
CHUNK_BYTES = 64 * 1024
CHUNK_FRAMES = 100
SEND_SECONDS = 30.0

SERVER = "server"
"""The group of all that wait on a server."""
_RETRY_LATER = {"Retry-After": "5"}

TaskWaits = Waits[StreamedSteps]

_POSITION = re.compile(r"(?P<digest>[0-9a-f]{16}|0)-(?P<progress>[0-9a-f]{16}|0)(?P<end>-end)?")


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """A wait that was allowed: for what, for how long, and whether values are hidden."""

    subject: Subject
    limits: tuple[WaitLimit, ...]
    hidden: bool
    next: str
    seconds: float
    by_ticket: bool

    @property
    def live(self) -> bool:
        """True if a stream has more to tell than the end."""
        return isinstance(self.subject, UUID)

    @property
    def headers(self) -> dict[str, str]:
        """Any page may use a ticket: it is the only credential, no cookie is read."""
        return {"Access-Control-Allow-Origin": "*"} if self.by_ticket else {}

    def shown(self, state: State) -> State:
        """The state as the reader may see it."""
        return hide_snapshot(state) if self.hidden and isinstance(state, TaskSnapshot) else state


class LongPollResponse(Response):
    """200 when the subject has ended, or 202 with the URL to continue at when the time is over."""

    def __init__(self, waits: TaskWaits, wait: WaitRequest) -> None:
        self._waits = waits
        self._wait = wait
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = asyncio.create_task(_disconnected(receive))
        try:
            state = await self._final_state(disconnected)
            if not disconnected.done():
                body = state_json(self._wait.shown(state), hidden=self._wait.hidden, next_url=self._wait.next)
                await _send_body(send, 200 if state.ended else 202, body, self._wait.headers)
        except Problem as problem:
            problem.headers |= self._wait.headers
            await problem.response()(scope, receive, send)
        finally:
            disconnected.cancel()

    async def _final_state(self, disconnected: asyncio.Task[None]) -> State:
        wait, loop = self._wait, asyncio.get_running_loop()
        async with _registered(self._waits, wait) as waiter:
            disconnected.add_done_callback(lambda _: waiter.changed.set())
            await waiter.wait_until_known(FIRST_READ_SECONDS)
            deadline = loop.time() + wait.seconds
            while not (
                waiter.settled or disconnected.done() or self._waits.stopping or loop.time() >= deadline
            ):
                await waiter.wait_for_change(deadline - loop.time())
            return known_state(waiter, wait.subject)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How much of a stream its reader has received."""

    digest: str = NOTHING
    """Of the last step."""
    progress: str = NOTHING
    end: bool = False

    def __str__(self) -> str:
        return f"{self.digest}-{self.progress}{'-end' if self.end else ''}"

    @classmethod
    def parse(cls, given: str | None) -> "StreamPosition":
        """The beginning, if the id is missing or not one of ours."""
        match = _POSITION.fullmatch(given or "")
        if match is None:
            return cls()
        return cls(match["digest"], match["progress"], match["end"] is not None)


class EventStreamResponse(Response):
    """Server-sent events until the subject has ended, or the time is over; then the reader reconnects."""

    def __init__(self, waits: TaskWaits, wait: WaitRequest, position: StreamPosition) -> None:
        self._waits = waits
        self._wait = wait
        self._position = position
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = self._wait
        if self._position.end:  # 204 tells a browser not to reconnect
            await Response(status_code=204, headers=wait.headers)(scope, receive, send)
            return
        disconnected = asyncio.create_task(_disconnected(receive))
        try:
            async with _registered(self._waits, wait, live=wait.live) as waiter:
                disconnected.add_done_callback(lambda _: waiter.changed.set())
                await waiter.wait_until_known(FIRST_READ_SECONDS)
                known_state(waiter, wait.subject)
                await self._stream(waiter, disconnected, send)
        except Problem as problem:
            problem.headers |= wait.headers
            await problem.response()(scope, receive, send)
        finally:
            disconnected.cancel()

    async def _stream(
        self, waiter: Waiter[StreamedSteps], disconnected: asyncio.Task[None], send: Send
    ) -> None:
        # Closed at the end: a browser would keep the connection open for nothing.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Connection": "close"}
        headers |= self._wait.headers
        await _send_head(send, 200, "text/event-stream; charset=utf-8", headers)
        await _send_chunk(send, f"retry: {RETRY_MILLISECONDS}\n\n".encode())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self._wait.seconds, MAX_STREAM_SECONDS)
        while True:
            frames = self._unsent(waiter.watched)
            while chunk := b"".join(islice(frames, CHUNK_FRAMES)):
                await _send_chunk(send, chunk)
                # To send does not suspend while the socket has room: other requests have their turn here.
                await asyncio.sleep(0)
            if self._position.end or disconnected.done() or self._waits.stopping or loop.time() >= deadline:
                break
            if not await waiter.wait_for_change(min(KEEP_ALIVE_SECONDS, deadline - loop.time())):
                await _send_chunk(send, b": keep-alive\n\n")
        if not disconnected.done():
            await _send_chunk(send, b"", more=False)

    def _unsent(self, watched: Watched[StreamedSteps]) -> Iterator[bytes]:
        """Every step the reader has not received, and the last progress only."""
        steps = watched.details or StreamedSteps()
        for step in steps.after(self._position.digest):
            self._position = replace(self._position, digest=step.digest)
            yield self._frame("status", step.json)
        if watched.state is None:
            return
        state = self._wait.shown(watched.state)
        written = state.progress_json if isinstance(state, TaskSnapshot) else None
        progress = NOTHING if written is None else digest_of(written)
        if progress not in (NOTHING, self._position.progress):
            self._position = replace(self._position, progress=progress)
            yield self._frame("progress", written or "null")
        if state.ended:
            self._position = replace(self._position, end=True)
            yield self._frame("end", state_json(state, hidden=self._wait.hidden).decode())

    def _frame(self, event: str, data: str) -> bytes:
        return f"id: {self._position}\nevent: {event}\ndata: {data}\n\n".encode()


@asynccontextmanager
async def _registered(
    waits: TaskWaits, wait: WaitRequest, *, live: bool = False
) -> AsyncIterator[Waiter[StreamedSteps]]:
    try:
        async with waits.register(wait.subject, wait.limits, live=live) as waiter:
            yield waiter
    except TooManyWaits as full:
        status = 503 if full.limit.group == SERVER else 429
        raise Problem(status, str(full), code="too_many_waits", headers=_RETRY_LATER) from None


def known_state(waiter: Waiter[StreamedSteps], subject: Subject) -> State:
    if not waiter.known:
        raise unavailable()
    if waiter.watched.state is None:
        raise Problem(404, not_found(subject).message)
    return waiter.watched.state


def state_json(state: State, *, hidden: bool, next_url: str | None = None) -> bytes:
    """The response body. The texts of the progress and the result are inserted unchanged."""
    following = None if state.ended else next_url
    if isinstance(state, ProcessStatus):
        ended_at = state.ended_at.isoformat() if state.ended_at else None
        fields = {"process": state.process, "process_id": state.process_id, "status": state.status}
        return json.dumps({**fields, "ended_at": ended_at, "next": following}).encode()
    task_fields = {
        "task_id": str(state.task_id),
        "status": state.status,
        "attempt": state.attempt,
        "max_attempts": state.max_attempts,
        "values_hidden": hidden,
        "next": following,
    }
    written = json.dumps(task_fields)[:-1]
    progress, result = state.progress_json or "null", state.result_json or "null"
    return f'{written},"progress":{progress},"result":{result}}}'.encode()


class SlowReader(ClientDisconnect):
    """The client read nothing for SEND_SECONDS; treated as a disconnect."""


async def _send_body(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """In chunks, so that a slow reader costs a small buffer only."""
    await _send_head(send, status, "application/json", {"Content-Length": str(len(body)), **headers})
    for start in range(0, len(body), CHUNK_BYTES):
        await _send_chunk(send, body[start : start + CHUNK_BYTES])
    await _send_chunk(send, b"", more=False)


async def _send_head(send: Send, status: int, media_type: str, headers: Mapping[str, str]) -> None:
    given = {"Content-Type": media_type, **headers}
    encoded = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _send_chunk(send: Send, chunk: bytes, *, more: bool = True) -> None:
    # The server waits here until its own buffer has drained.
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
    except TimeoutError:
        raise SlowReader from None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
