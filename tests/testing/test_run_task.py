"""A handler alone, as a worker would run it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast import App, Cancel, Context, Fail, Snooze, SyncContext
from holdfast._worker.handler import build_handler
from holdfast.errors import InvalidArgument, ResultError
from holdfast.testing import Sandbox

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


@dataclass
class Receipt:
    amount: Decimal
    at: datetime


def test_arguments_and_result_go_through_json_and_back(holdfast: Sandbox, app: App) -> None:
    given: list[Any] = []

    @app.task("billing.charge")
    def charge(receipt: Receipt, tags: tuple[str, ...] = ()) -> Receipt:
        given.append((receipt, tags))
        return receipt

    asked = Receipt(Decimal("9.50"), NOON)
    answer = holdfast.run_task(charge, receipt=asked, tags=["a"])
    assert given == [(asked, ("a",))]
    assert given[0][0] is not asked
    assert answer == asked
    assert answer is not given[0][0]


def test_an_async_handler_is_awaited(holdfast: Sandbox, app: App) -> None:
    @app.task("any.double")
    async def double(n: int) -> int:
        return 2 * n

    assert holdfast.run_task(double, n=2) == 4


def test_a_context_is_given(holdfast: Sandbox, app: App) -> None:
    @app.task("any.context", max_attempts=7)
    def context(ctx: SyncContext) -> tuple[str, int, int, bool]:
        ctx.raise_if_stopped()
        ctx.progress(1, 2)
        return ctx.type, ctx.attempt, ctx.max_attempts, ctx.should_stop

    assert holdfast.run_task(context) == ("any.context", 1, 7, False)


@pytest.mark.parametrize("outcome", [Snooze(5), Cancel("enough"), Fail("no card")])
def test_an_outcome_is_returned(holdfast: Sandbox, app: App, outcome: Any) -> None:
    @app.task("any.decide")
    def decide() -> Any:
        return outcome

    assert holdfast.run_task(decide) == outcome


def test_what_the_handler_raises_is_raised(holdfast: Sandbox, app: App) -> None:
    @app.task("any.flaky")
    def flaky() -> None:
        raise ConnectionError("the line is busy")

    with pytest.raises(ConnectionError, match="the line is busy"):
        holdfast.run_task(flaky)


def test_arguments_are_checked_as_enqueue_checks_them(holdfast: Sandbox, app: App) -> None:
    @app.task("any.double")
    def double(n: int) -> int:
        return 2 * n

    with pytest.raises(InvalidArgument, match="n: "):
        holdfast.run_task(double, n="many")
    with pytest.raises(InvalidArgument, match="unknown argument 'm'"):
        holdfast.run_task(double, m=1)


def test_a_result_that_json_has_no_form_for_is_refused(holdfast: Sandbox, app: App) -> None:
    @app.task("any.object")
    def anything() -> Any:
        return object()

    with pytest.raises(ResultError):
        holdfast.run_task(anything)


def test_nothing_is_enqueued(holdfast: Sandbox, app: App) -> None:
    @app.task("any.double")
    def double(n: int) -> int:
        return 2 * n

    holdfast.run_task(double, n=1)
    count = holdfast.connect().execute("select count(*) from queues.task_status").fetchone()
    assert count == (0,)


@pytest.mark.parametrize("behind_middleware", [False, True])
def test_its_transaction_is_committed_unless_it_raises(
    holdfast: Sandbox, app: App, *, behind_middleware: bool
) -> None:
    connection = holdfast.connect()
    connection.execute("create table public.ledger (amount integer)")

    async def nothing(call: Any, proceed: Any) -> Any:
        return await proceed()

    if behind_middleware:
        app.middleware(nothing)

    @app.task("billing.book")
    def book(ctx: SyncContext, amount: int) -> None:
        with ctx.transaction() as tx:
            tx.execute("insert into public.ledger values (%s)", [amount])
        if amount < 0:
            raise ValueError(amount)

    @app.task("billing.abook")
    async def abook(ctx: Context, amount: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into public.ledger values (%s)", [amount])
        if amount < 0:
            raise ValueError(amount)

    for task in (book.handler, abook.handler):
        holdfast.run_task(task, amount=7)
        with pytest.raises(ValueError, match="-7"):
            holdfast.run_task(task, amount=-7)
    assert connection.execute("select amount from public.ledger").fetchall() == [(7,), (7,)]


def test_a_handler_needs_no_app(holdfast: Sandbox) -> None:
    def double(n: int) -> int:
        return 2 * n

    assert holdfast.run_task(build_handler("any.double", double), n=3) == 6
