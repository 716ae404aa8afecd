"""What is sent in batches until the database has acknowledged it: results, steps, deliveries, new tasks."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, Literal, TypeVar

from holdfast.errors import (
    HoldfastError,
    RequestRefused,
    TransactionConflict,
    UnexpectedDatabaseError,
    is_about_content,
    is_missing_right,
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MAX_ITEMS = 1000
MAX_CHARACTERS = 16 * 1024 * 1024
MAX_FAILURES = 16
"""More in a row than it takes to find one item among MAX_ITEMS: then it is the server."""

_RESOURCES = "53"
_TOO_MANY_CONNECTIONS = "53300"
_LOCK_TIMEOUT, _STATEMENT_TIMEOUT = "55P03", "57014"


class About(Enum):
    """What an error of a batch is about."""

    ITEM = auto()
    """The database refuses an item, or so many of them, and would take the others."""
    SERVER = auto()
    """The server lacked memory or time, or has failed: at one item, or at any."""
    CONFLICT = auto()
    """Another transaction was in the way. Nothing was written, and the same batch may pass now."""
    ALL = auto()
    """No statement would pass: the server is lost, or the schema or a right is missing."""


def what_is_wrong(error: HoldfastError) -> About:
    state = error.sqlstate or ""
    if is_missing_right(error) or state == _TOO_MANY_CONNECTIONS:
        return About.ALL
    if isinstance(error, RequestRefused) or is_about_content(error):
        return About.ITEM
    if state.startswith(_RESOURCES) or state in (_LOCK_TIMEOUT, _STATEMENT_TIMEOUT):
        return About.SERVER
    if isinstance(error, TransactionConflict):
        return About.CONFLICT
    return About.SERVER if isinstance(error, UnexpectedDatabaseError) else About.ALL


@dataclass(frozen=True, slots=True)
class Failure(Generic[Item]):
    """A statement that failed."""

    items: list[Item]
    error: HoldfastError
    tries: int
    """How often these items have been sent together."""
    in_a_row: int
    """How many statements have failed since one passed, conflicts not counted."""

    @property
    def halves(self) -> list[list[Item]]:
        middle = len(self.items) // 2
        return [self.items[:middle], self.items[middle:]]


def in_batches(
    items: Iterable[Item], size_of: Callable[[Item], int], most: int, largest: int
) -> Iterator[list[Item]]:
    """Lists of at most `most` items and together at most `largest`; an item that is larger goes alone."""
    batch: list[Item] = []
    total = 0
    for item in items:
        size = size_of(item)
        if len(batch) == most or (batch and total + size > largest):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


class AcknowledgedBatches(Generic[Item, Answer]):
    """Gathers items while a batch is under way, and then sends them together.

    There is no timer: one that is alone does not wait. An item leaves only when it is answered, or when its
    failure was settled. `run` sends what comes; without it, the owner calls `send_next`.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        *,
        answered: Callable[[Item, Answer], None],
        failed: Callable[[Failure[Item]], Awaitable[list[list[Item]]]],
        size_of: Callable[[Item], int],
        most: int = MAX_ITEMS,
        largest: int = MAX_CHARACTERS,
        more: asyncio.Event | None = None,
    ) -> None:
        """`send` returns an answer for each item. `failed` returns the batches to send again at once, and has
        settled the other items. `more` is set when there is something to send.
        """
        self._send = send
        self._answered = answered
        self._failed = failed
        self._size_of = size_of
        self._most = most
        self._largest = largest
        self._waiting: list[Item] = []
        self._alone: list[Item] = []
        self._alone_next = False
        self._under_way = 0
        self._aside = 0
        self._failures = 0
        self._more = more or asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def has_more(self) -> bool:
        return bool(self._waiting or self._alone)

    @property
    def unacknowledged(self) -> int:
        return len(self._waiting) + len(self._alone) + self._under_way + self._aside

    def add(self, item: Item, place: Literal["last", "first", "alone"] = "last") -> None:
        """One that has failed goes alone, so that the others do not fail with it."""
        if place == "first":
            self._waiting.insert(0, item)
        else:
            (self._alone if place == "alone" else self._waiting).append(item)
        self._empty.clear()
        self._more.set()

    def add_later(self, delay: float, item: Item, place: Literal["last", "alone"] = "last") -> None:
        self._aside += 1
        asyncio.get_running_loop().call_later(delay, self._resume, item, place)

    async def emptied(self) -> None:
        """Wait until every item is acknowledged."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._more.wait()
            await self.send_next()
            if not self.has_more:
                self._more.clear()

    async def send_next(self) -> int:
        """Send a batch, or one that has failed before, and return how many items that were."""
        batch = self.take()
        await self.send(batch)
        return len(batch)

    def take(self) -> list[Item]:
        """As many as fit into one statement, and by turns one that goes alone."""
        self._alone_next = bool(self._alone) and (self._alone_next or not self._waiting)
        if self._alone_next:
            self._alone_next = False
            return [self._alone.pop(0)]
        self._alone_next = True
        batch = next(in_batches(self._waiting, self._size_of, self._most, self._largest), [])
        self._waiting = self._waiting[len(batch) :]
        return batch

    async def send(self, batch: list[Item]) -> None:
        self._under_way += len(batch)
        try:
            await self._send_all([(batch, 1)] if batch else [])
        finally:
            self._under_way -= len(batch)
        if not self.unacknowledged:
            self._empty.set()

    async def _send_all(self, batches: list[tuple[list[Item], int]]) -> None:
        while batches:
            batch, tries = batches.pop(0)
            try:
                answers = await self._send(batch)
                if len(answers) != len(batch):
                    raise UnexpectedDatabaseError(
                        f"{len(batch)} items were sent, and {len(answers)} answered"
                    )
            except HoldfastError as error:
                self._failures += not isinstance(error, TransactionConflict)
                again = await self._failed(Failure(batch, error, tries, self._failures))
                batches[:0] = [(some, tries + 1 if len(some) == len(batch) else 1) for some in again if some]
            else:
                self._failures = 0
                for item, answer in zip(batch, answers, strict=True):
                    self._answered(item, answer)

    def _resume(self, item: Item, place: Literal["last", "alone"]) -> None:
        self._aside -= 1
        self.add(item, place)


def own_copy(error: HoldfastError) -> HoldfastError:
    """For each caller: to raise an exception adds the caller's traceback to it."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own


async def split_or_repeat(
    failure: Failure[Item], pause: Callable[[BaseException], Awaitable[None]]
) -> list[list[Item]]:
    """What is sent again by those that give nothing up; nothing if the error is about a single item.

    An item that the server refuses must not delay the others, and an outage must not be taken for that. The
    items can be repeated: what was acknowledged before the connection broke is told again.
    """
    about = what_is_wrong(failure.error)
    if about is About.ALL:
        await pause(failure.error)
        return [failure.items]
    if about is About.CONFLICT and failure.tries == 1:
        return [failure.items]
    if about is About.SERVER and failure.in_a_row > MAX_FAILURES:
        await pause(failure.error)
    return failure.halves if len(failure.items) > 1 else []
