"""A proxy that understands what passes through it: whole messages of PostgreSQL's protocol."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from random import Random
from typing import Literal

from support.proxy import Direction, Passage, Proxy

Moment = Literal["before", "after"]
"""Of the server's hearing that a statement is complete, which is when it commits."""

_UNTYPED = {80877103, 80877104}  # asks for encryption; what follows has no type yet, either
_COMPLETE = {b"S", b"Q"}
_READY, _NOTIFICATION = b"Z", b"A"
_PARSE, _BIND = b"P", b"B"
_ANSWERS = {b"D", b"C"}


class Wire(Proxy):
    """Cuts a connection exactly between a commit and its answer; delays, tears, or swallows what passes."""

    def __init__(self, dsn: str, chance: Random) -> None:
        super().__init__(dsn)
        self.cuts = 0
        self.swallowed = 0
        self._chance = chance
        self._armed: Moment | None = None
        self._only = b""
        self._after = b""
        self._marked: Passage | None = None
        self._share = 0.0
        self._delay = (0.0, 0.0)
        self._torn = False
        self._mute: bytes | None = None
        self._doomed: set[Passage] = set()
        self._words = b""
        self._late = (0.0, 0.0)
        self._named: dict[Passage, set[bytes]] = {}
        self._about: set[Passage] = set()
        self.late = 0

    def cut_at(self, moment: Moment, only: bytes = b"", after: bytes = b"") -> None:
        """The next statement, or the next one with the words `only`, meets its end there.

        With `after`, on the connection on which these words pass first: others commit at the same time.
        """
        self._armed, self._only, self._after, self._marked = moment, only, after, None

    def cut_some(self, share: float) -> None:
        """This share of all statements loses its response after it was executed."""
        self._share, self._words = share, b""

    def disturb(self, words: bytes, *, lost: float = 0.0, late: float = 0.0, seconds: float = 0.0) -> None:
        """Of the statements with these words, also prepared ones, a share loses its response after it was
        executed, and another share gets it this many seconds late.
        """
        self._words, self._share, self._late = words, lost, (late, seconds)

    def delay(self, shortest: float, longest: float) -> None:
        """Every message, each way, by seconds."""
        self._delay = shortest, longest

    def tear(self, torn: bool) -> None:
        """Whether everything comes in pieces of one byte."""
        self._torn = torn

    def mute(self, channel: str | None) -> None:
        """Notifications of this channel are not passed on."""
        self._mute = None if channel is None else channel.encode()

    async def _pump(self, reader: asyncio.StreamReader, passage: Passage, way: Direction) -> None:
        writer, flows = passage.writers[way], passage.flows[way]
        try:
            async for kind, message in _messages(reader, typed=way == "to the client"):
                await flows.wait()
                if self._delay[1]:
                    await asyncio.sleep(self._chance.uniform(*self._delay))
                if way == "to the server" and self._after and self._marked is None and self._after in message:
                    self._marked = passage
                await self._follow(kind, message, passage, way)
                if way == "to the server" and kind in _COMPLETE and self._is_hit(message, passage):
                    if self._next_moment() == "before":
                        self._end(passage)
                        return
                    self._doomed.add(passage)
                elif way == "to the client" and passage in self._doomed:
                    if kind == _READY:
                        self._end(passage)
                        return
                    continue
                elif kind == _NOTIFICATION and self._is_muted(message):
                    self.swallowed += 1
                    continue
                await self._send(writer, message)
        finally:
            writer.close()

    def _is_hit(self, message: bytes, passage: Passage) -> bool:
        if self._armed is not None:
            return self._only in message and (not self._after or passage is self._marked)
        if self._words and passage not in self._about:
            return False
        return self._share > 0 and self._chance.random() < self._share

    async def _follow(self, kind: bytes, message: bytes, passage: Passage, way: Direction) -> None:
        """Know whether a connection runs a statement with the words, also a prepared one; make it late."""
        if way == "to the client":
            if kind in _ANSWERS and passage in self._about and passage not in self._doomed:
                self._about.discard(passage)
                if self._chance.random() < self._late[0]:
                    self.late += 1
                    await asyncio.sleep(self._late[1])
        elif self._words and kind == _PARSE:
            name, named = message[5:].split(b"\0", 1)[0], self._named.setdefault(passage, set())
            (named.add if self._words in message else named.discard)(name)
        elif self._words and kind in (_BIND, b"Q"):
            name = message[5:].split(b"\0", 2)[1] if kind == _BIND else b""
            about = name in self._named.get(passage, ()) if kind == _BIND else self._words in message
            (self._about.add if about else self._about.discard)(passage)

    def _next_moment(self) -> Moment:
        moment, self._armed = self._armed or "after", None
        return moment

    def _is_muted(self, message: bytes) -> bool:
        # Type, length, the sender's process, then the channel.
        return self._mute is not None and message[9:].startswith(self._mute + b"\0")

    def _end(self, passage: Passage) -> None:
        self.cuts += 1
        self._doomed.discard(passage)
        passage.abort()

    async def _send(self, writer: asyncio.StreamWriter, message: bytes) -> None:
        for piece in _pieces(message) if self._torn else [message]:
            writer.write(piece)
            await writer.drain()

    @contextmanager
    def running(self) -> Iterator["Wire"]:
        with super().running():
            yield self


def _pieces(message: bytes) -> Iterator[bytes]:
    return (message[n : n + 1] for n in range(len(message)))


async def _messages(reader: asyncio.StreamReader, *, typed: bool) -> AsyncIterator[tuple[bytes, bytes]]:
    """The type, which the first ones of a client do not have, and the whole message."""
    while True:
        try:
            kind = await reader.readexactly(1) if typed else b""
            length = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(length) - 4)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        yield kind, kind + length + body
        typed = typed or int.from_bytes(body[:4]) not in _UNTYPED
