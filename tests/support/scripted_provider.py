"""A provider in this process that does what a test tells it, for what no real one does on demand."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from holdfast.messages.provider import Email, Sent, Sms

Reply = BaseException | Callable[[], Any] | None


class PostOffice:
    """`delivered` has every message that was handed over, also if the answer then was a failure."""

    def __init__(self, *, key_retention: timedelta | None = None) -> None:
        self.name = "post_office"
        self.key_retention = key_retention
        self.refusal: BaseException | None = None
        self.calls: list[Email | Sms] = []
        self.delivered: dict[str, Email | Sms] = {}
        self.replies: deque[Reply] = deque()
        self.closed = False

    async def admit(self, message: Email | Sms) -> Email | Sms:
        if self.refusal is not None:
            raise self.refusal
        return message

    async def send(self, message: Email | Sms) -> Sent:
        self.calls.append(message)
        key = message.idempotency_key if self.key_retention else f"call-{len(self.calls)}"
        self.delivered.setdefault(key, message)
        reply = self.replies.popleft() if self.replies else None
        if isinstance(reply, BaseException):
            raise reply
        if reply is not None:
            waited = reply()
            if asyncio.iscoroutine(waited):
                await waited
        return Sent(self.name, f"id-{len(self.calls)}", {"queued": True})

    async def close(self) -> None:
        self.closed = True
