"""Waiting on one connection: until the task or process ends, or the time given is over."""

import asyncio
import json
from dataclasses import dataclass
from uuid import UUID

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.client.wait_ticket import Subject
from holdfast.engine.documents import load_json
from holdfast.engine.processes import ProcessLook, wait_key
from holdfast.http.hidden_values import hide
from holdfast.http.problem import Problem
from holdfast.http.send import disconnected, send_bounded
from holdfast.http.waiting import Look, Waiter, WaitQuota, WaitRegistry

LOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """Who waits, for what, for how long, and how much of it may be shown."""

    subject: Subject
    shares: tuple[WaitQuota, ...]
    hidden: bool
    next: str
    seconds: float
    by_ticket: bool

    @property
    def key(self) -> UUID:
        return self.subject if isinstance(self.subject, UUID) else wait_key(*self.subject)

    @property
    def live(self) -> bool:
        """Whether there is more to follow than the end."""
        return isinstance(self.subject, UUID)

    @property
    def headers(self) -> dict[str, str]:
        """A ticket is authority enough: no cookie is looked at, so any page that has it may ask."""
        return {"Access-Control-Allow-Origin": "*"} if self.by_ticket else {}


class LongPollResponse(Response):
    """Answered when the task has ended, with 200; or when the time is over, with 202 and how to go on."""

    def __init__(self, waits: WaitRegistry, ask: WaitRequest) -> None:
        self._waits = waits
        self._ask = ask
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(disconnected(receive))
        try:
            look = await self._look(gone)
            if not gone.done():
                body = described(look, hidden=self._ask.hidden, going_on=self._ask.next)
                await send_bounded(
                    send, 200 if look.ended else 202, body, "application/json", self._ask.headers
                )
        except Problem as problem:
            problem.headers |= self._ask.headers
            await problem.response()(scope, receive, send)
        finally:
            gone.cancel()

    async def _look(self, gone: asyncio.Task[None]) -> Look:
        ask = self._ask
        async with self._waits.seat(ask.key, ask.shares) as seat:
            gone.add_done_callback(lambda _: seat.news.set())
            await self._until_end(seat, gone)
            return found(seat, ask.subject)

    async def _until_end(self, seat: Waiter, gone: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        await seat.first_look(LOOK_SECONDS)
        deadline = loop.time() + self._ask.seconds
        while not (seat.watched.settled or gone.done() or self._waits.stopping or loop.time() >= deadline):
            await seat.next(deadline - loop.time())


def found(seat: Waiter, subject: Subject) -> Look:
    if not seat.watched.looked:
        raise Problem(
            503, "the database cannot be used just now", code="unavailable", headers={"Retry-After": "1"}
        )
    if seat.watched.look is None:
        named = f"task {subject}" if isinstance(subject, UUID) else f"{subject[0]} {subject[1]}"
        raise Problem(404, f"there is no {named}")
    return seat.watched.look


def described(look: Look, *, hidden: bool, going_on: str | None = None) -> bytes:
    """As JSON. The result is put in as it was written, unless only its shape may be shown."""
    if isinstance(look, ProcessLook):
        ended_at = look.ended_at.isoformat() if look.ended_at else None
        told = {"process": look.process, "process_id": look.process_id, "status": look.status}
        return json.dumps({**told, "ended_at": ended_at, "next": None if look.ended else going_on}).encode()
    result = json.dumps(hide(load_json(look.result_json))) if hidden else look.result_json or "null"
    fields = {
        "task_id": str(look.task_id),
        "status": look.status,
        "attempt": look.attempt,
        "max_attempts": look.max_attempts,
        "values_hidden": hidden,
        "next": None if look.ended else going_on,
    }
    plain = json.dumps(fields)[:-1]
    return f'{plain},"progress":{look.progress_json or "null"},"result":{result}}}'.encode()
