"""What a worker reads from a child process: a limited number of messages and bytes a second.

A process that writes more waits until its worker reads on; the other tasks of the worker do not.
"""

import asyncio
import select
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast.isolation.child_messages import (
    LARGE_BYTES,
    READ,
    MalformedMessage,
    MessageLimits,
    Told,
    decode,
    message_length,
)

MESSAGES_PER_SECOND = 2000
BYTES_PER_SECOND = 4 * 1024 * 1024
BURST_SECONDS = 0.25
MAX_UNANSWERED = 32
NOTED_SECONDS = 1.0

_parser = ThreadPoolExecutor(1, "holdfast-messages")
"""One large message at a time: what it takes of memory and of the interpreter's lock is bounded."""


class Intake:
    """Takes the messages of one child process, one after the other."""

    def __init__(
        self,
        limits: MessageLimits,
        *,
        deliver: Callable[[Told], None],
        refuse: Callable[[MalformedMessage], None],
        throttled: Callable[[], None],
    ) -> None:
        """`throttled` is called once in a run that had to wait for longer than NOTED_SECONDS."""
        self._limits = limits
        self._deliver = deliver
        self._refuse = refuse
        self._throttled = throttled
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.ReadTransport | None = None
        self._buffer = bytearray()
        self._free_at = 0.0
        self._waited = 0.0
        self._held_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._parsing: asyncio.Future[Told] | None = None
        self._unanswered: dict[int, bool] = {}
        """The questions under way, and whether to read nothing more before the answer."""
        self._is_writing = False
        self._is_closed = False
        self._is_paused = False

    def connect(self, transport: asyncio.ReadTransport) -> None:
        self._transport = transport

    def begin(self) -> None:
        """The next run begins: the questions of the one before are forgotten."""
        self._waited = 0.0
        self._unanswered.clear()
        self._go_on()

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self._go_on()

    def answered(self, ask: int, length: int) -> None:
        """An answer of this length was sent. It counts: what a run remembers may be large."""
        if self._unanswered.pop(ask, None) is not None:
            self._spend(length)
            self._go_on()

    def set_writing(self, is_writing: bool) -> None:
        """Whether the process has not read yet what it was sent."""
        self._is_writing = is_writing
        self._go_on()

    def close(self) -> None:
        self._is_closed = True
        self._buffer.clear()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _is_held(self) -> bool:
        return (
            self._is_closed
            or self._is_writing
            or self._timer is not None
            or self._parsing is not None
            or len(self._unanswered) >= MAX_UNANSWERED
            or any(self._unanswered.values())
        )

    def _go_on(self) -> None:
        try:
            while not self._is_held:
                length = message_length(self._buffer, self._limits)
                if length is None or len(self._buffer) < length:
                    break
                message = bytes(memoryview(self._buffer)[:length])
                del self._buffer[:length]
                self._spend(length)
                if length > LARGE_BYTES:
                    # Document by document, so that the event loop gets its turns in between.
                    self._parsing = self._loop.run_in_executor(_parser, decode, message, self._limits)
                    self._parsing.add_done_callback(self._parsed)
                else:
                    self._take(decode(message, self._limits), length)
        except MalformedMessage as error:
            self._give_up(error)
        self._steer()

    def _parsed(self, parsing: "asyncio.Future[Told]") -> None:
        self._parsing = None
        if self._is_closed or parsing.cancelled():
            return
        try:
            self._take(parsing.result(), LARGE_BYTES + 1)
        except MalformedMessage as error:
            self._give_up(error)
        self._go_on()

    def _take(self, told: Told, length: int) -> None:
        if told.ask:
            if told.ask in self._unanswered:
                raise MalformedMessage(f"the question {told.ask} was asked twice")
            self._unanswered[told.ask] = told.kind == READ or length > LARGE_BYTES
        self._deliver(told)

    def _give_up(self, error: MalformedMessage) -> None:
        self.close()
        self._refuse(error)

    def _spend(self, length: int) -> None:
        """Take nothing more until what was taken is within the budget."""
        now = self._loop.time()
        cost = max(length / BYTES_PER_SECOND, 1 / MESSAGES_PER_SECOND)
        self._free_at = max(self._free_at, now - BURST_SECONDS) + cost
        if self._free_at <= now or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        else:
            self._held_at = now
        self._timer = self._loop.call_at(self._free_at, self._resume)

    def _resume(self) -> None:
        self._timer = None
        if self._buffer or self._is_readable():
            before, self._waited = self._waited, self._waited + self._loop.time() - self._held_at
            if before <= NOTED_SECONDS < self._waited:
                self._throttled()
        self._go_on()

    def _is_readable(self) -> bool:
        """Whether the process has written more meanwhile."""
        if self._transport is None or self._transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def _steer(self) -> None:
        transport, is_held = self._transport, self._is_held
        if transport is None or transport.is_closing() or is_held == self._is_paused:
            return
        self._is_paused = is_held
        if is_held:
            transport.pause_reading()
        else:
            transport.resume_reading()
