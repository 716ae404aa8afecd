"""What is sent in batches stays until it is acknowledged, and one item that is refused delays no other."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast._connections.acknowledged import (
    MAX_FAILURES,
    About,
    AcknowledgedBatches,
    Failure,
    split_or_repeat,
    what_is_wrong,
)
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    InvalidArgument,
    NotAllowed,
    NotInstalled,
    QuotaExceeded,
    TooLarge,
    TransactionConflict,
    UnexpectedDatabaseError,
)

LOST = DatabaseUnavailable("lost")


class Sent:
    """Keeps everything, and notes what happens. `errors` are those of the next statements."""

    def __init__(self, most: int = 1000, largest: int = 1000) -> None:
        self.statements: list[str] = []
        self.answers: list[str] = []
        self.alone: list[tuple[str, HoldfastError]] = []
        self.pauses: list[BaseException] = []
        self.errors: list[HoldfastError] = []
        self.refused: dict[str, HoldfastError] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.batches: AcknowledgedBatches[str, str] = AcknowledgedBatches(
            self._send,
            answered=lambda _, answer: self.answers.append(answer),
            failed=self._failed,
            size_of=len,
            most=most,
            largest=largest,
        )

    def add(self, *items: str) -> None:
        for item in items:
            self.batches.add(item)

    async def _send(self, items: list[str]) -> list[str]:
        self.statements.append(" ".join(items))
        await self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        for item in items:
            if item in self.refused:
                raise self.refused[item]
        return [item.upper() for item in items]

    async def _failed(self, failure: Failure[str]) -> list[list[str]]:
        again = await split_or_repeat(failure, self._pause)
        if not again:
            self.alone.append((failure.items[0], failure.error))
        return again

    async def _pause(self, error: BaseException) -> None:
        self.pauses.append(error)


@pytest.fixture
async def sent() -> AsyncIterator[Sent]:
    sent = Sent()
    running = asyncio.create_task(sent.batches.run())
    yield sent
    running.cancel()


async def test_what_comes_while_a_batch_is_under_way_goes_together(sent: Sent) -> None:
    sent.open.clear()
    sent.add("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sent.add("b", "c")
    assert sent.batches.unacknowledged == 3
    sent.open.set()
    await sent.batches.emptied()
    assert (sent.statements, sent.answers) == (["a", "b c"], ["A", "B", "C"])


async def test_a_batch_is_bounded_by_number_and_by_size() -> None:
    sent = Sent(most=3, largest=10)
    sent.add("a", "b", "c", "d", "x" * 9, "yy", "z" * 50, "e")
    found = [sent.batches.take() for _ in range(5)]
    assert [len(batch) for batch in found] == [3, 2, 1, 1, 1]
    sent.add("e", "f", "g" * 8, "h")
    assert len(sent.batches.take()) == 3


@pytest.mark.parametrize(
    "error",
    [InvalidArgument("no"), TooLarge("too large", sqlstate="54011"), UnexpectedDatabaseError("a bad page")],
)
async def test_an_error_about_one_item_is_narrowed_down_to_it(sent: Sent, error: HoldfastError) -> None:
    sent.refused = {"bad": error}
    sent.add("a", "b", "bad", "c")
    await sent.batches.emptied()
    assert sent.statements == ["a b bad c", "a b", "bad c", "bad", "c"]
    assert (sent.answers, sent.alone) == (["A", "B", "C"], [("bad", error)])


@pytest.mark.parametrize("error", [LOST, NotInstalled("no schema"), NotAllowed("no right", sqlstate="42501")])
async def test_what_is_about_no_item_is_repeated_whole_after_a_pause(
    sent: Sent, error: HoldfastError
) -> None:
    sent.errors = [error, error]
    sent.add("a", "b", "c")
    await sent.batches.emptied()
    assert sent.statements == ["a b c"] * 3
    assert (sent.answers, sent.pauses) == (["A", "B", "C"], [error, error])


async def test_a_conflict_is_repeated_whole_and_narrowed_down_only_if_it_stays(sent: Sent) -> None:
    conflict = TransactionConflict("deadlock", sqlstate="40P01")
    sent.errors = [conflict]
    sent.add("a", "b")
    await sent.batches.emptied()
    assert sent.statements == ["a b", "a b"]
    sent.refused = {"bad": conflict}
    sent.statements.clear()
    sent.add("bad", "c")
    await sent.batches.emptied()
    assert sent.statements == ["bad c", "bad c", "bad", "bad", "c"]
    assert [item for item, _ in sent.alone] == ["bad"]


async def test_a_server_that_fails_at_everything_is_given_time(sent: Sent) -> None:
    sent.errors = [UnexpectedDatabaseError("a bad page")] * (MAX_FAILURES + 2)
    sent.add(*map(str, range(100)))
    await sent.batches.emptied()
    assert len(sent.pauses) == 2


async def test_one_that_has_failed_goes_alone_and_takes_turns_with_the_others() -> None:
    sent = Sent(most=1)
    for item in ("a", "b"):
        sent.batches.add(item, "alone")
    sent.add("c", "d", "e")
    sent.batches.add("first", "first")
    assert [sent.batches.take() for _ in range(6)] == [["first"], ["a"], ["c"], ["b"], ["d"], ["e"]]


async def test_what_was_put_aside_is_not_acknowledged_and_comes_back(sent: Sent) -> None:
    sent.batches.add("a")
    sent.batches.add_later(0.01, "b", "alone")
    assert sent.batches.unacknowledged == 2
    await sent.batches.emptied()
    assert sent.statements == ["a", "b"]


async def test_an_answer_too_few_is_an_error_and_no_item_gets_that_of_another(sent: Sent) -> None:
    send = sent.batches._send

    async def short(items: list[str]) -> list[str]:
        return list(await send(items))[:1]

    sent.batches._send = short
    sent.add("a", "b")
    await sent.batches.emptied()
    assert sent.statements == ["a b", "a", "b"]
    assert sent.answers == ["A", "B"]


@pytest.mark.parametrize(
    ("error", "about"),
    [
        (QuotaExceeded("full"), About.ITEM),
        (UnexpectedDatabaseError("check violated", sqlstate="23514"), About.ITEM),
        (DatabaseUnavailable("out of memory", sqlstate="53200"), About.SERVER),
        (DatabaseUnavailable("too many connections", sqlstate="53300"), About.ALL),
        (TransactionConflict("lock timeout", sqlstate="55P03"), About.SERVER),
        (TransactionConflict("serialization failure", sqlstate="40001"), About.CONFLICT),
    ],
)
def test_what_an_error_is_about(error: HoldfastError, about: About) -> None:
    assert what_is_wrong(error) is about
