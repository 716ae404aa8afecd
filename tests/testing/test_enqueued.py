"""Assertions about what waits, and what they say when they fail."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import App, Linear
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast.errors import InvalidArgument
from holdfast.testing import Sandbox

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


@dataclass
class Address:
    city: str


KYIV = Address("Kyiv")


@pytest.fixture
def ship(app: App) -> Any:
    @app.task("shop.ship")
    def ship(order_id: int, to: Address, weight: Decimal = Decimal(1), tags: tuple[str, ...] = ()) -> None:
        pass

    return ship


def test_it_passes_if_such_a_task_waits_and_answers_it(holdfast: Sandbox, ship: Any) -> None:
    handle = ship.enqueue(order_id=7, to=KYIV)
    assert [task.task_id for task in holdfast.assert_enqueued(ship)] == [handle.task_id]
    assert [task.task_id for task in holdfast.assert_enqueued(ship, order_id=7)] == [handle.task_id]


def test_arguments_are_compared_with_their_types(holdfast: Sandbox, ship: Any) -> None:
    ship.enqueue(order_id=7, to=KYIV, weight=Decimal("1.50"), tags=("a", "b"))
    holdfast.assert_enqueued(ship, to=KYIV, weight=Decimal("1.5"), tags=("a", "b"))
    holdfast.assert_enqueued(ship, order_id="7", to={"city": "Kyiv"}, weight=1.5, tags=["a", "b"])
    holdfast.assert_not_enqueued(ship, to=Address("Lviv"))
    holdfast.assert_not_enqueued(ship, order_id=7, weight=Decimal(2))


def test_an_argument_that_was_left_out_has_its_default(holdfast: Sandbox, ship: Any) -> None:
    ship.enqueue(order_id=7, to=KYIV)
    holdfast.assert_enqueued(ship, weight=Decimal(1))
    holdfast.assert_not_enqueued(ship, weight=Decimal(2))


def test_an_argument_that_the_task_does_not_have_is_an_error(holdfast: Sandbox, ship: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"no argument order\. Its arguments are: order_id, to, weight, tags"
    ):
        holdfast.assert_not_enqueued(ship, order=7)


def test_an_argument_that_the_task_would_refuse_is_an_error(holdfast: Sandbox, ship: Any) -> None:
    with pytest.raises(InvalidArgument, match="order_id can never be 'seven'"):
        holdfast.assert_not_enqueued(ship, order_id="seven")


def test_the_count_is_exact(holdfast: Sandbox, ship: Any) -> None:
    ship.enqueue_many([{"order_id": n, "to": KYIV} for n in (1, 2)])
    holdfast.assert_enqueued(ship, count=2)
    holdfast.assert_enqueued(ship, count=1, order_id=2)
    holdfast.assert_enqueued(ship, count=0, order_id=3)
    with pytest.raises(AssertionError, match=r"^2 tasks shop\.ship\(\) wait, expected exactly 1"):
        holdfast.assert_enqueued(ship, count=1)


def test_the_queue_counts_if_it_is_given(holdfast: Sandbox, ship: Any) -> None:
    ship.using(queue="slow").enqueue(order_id=7, to=KYIV)
    holdfast.assert_enqueued(ship, queue="slow")
    holdfast.assert_not_enqueued(ship, queue="shop")


def test_the_failure_lists_what_waits_instead(holdfast: Sandbox, ship: Any) -> None:
    holdfast.clock.set(NOON)
    ship.enqueue(order_id=8, to=KYIV)
    Engine(holdfast.connect()).run(
        enqueue.enqueue(NewTask("mail.send", {"to": "ada"}, run_at=NOON + timedelta(days=1)))
    )
    with pytest.raises(AssertionError) as failure:
        holdfast.assert_enqueued(ship, order_id=7)
    first, second, third = str(failure.value).splitlines()
    assert first == "no task shop.ship(order_id=7) waits, expected at least one. Waiting tasks:"
    assert second.startswith(
        '  shop.ship {"to": {"city": "Kyiv"}, "order_id": 8} in queue shop, pending, due '
    )
    assert third == '  mail.send {"to": "ada"} in queue mail, scheduled, due 2030-02-01T12:00:00+00:00'


def test_the_failure_is_short_when_much_waits(holdfast: Sandbox, ship: Any) -> None:
    ship.enqueue_many([{"order_id": n, "to": KYIV} for n in range(30)])
    with pytest.raises(AssertionError) as failure:
        holdfast.assert_enqueued(ship, order_id=100)
    lines = str(failure.value).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  and 10 more"


def test_the_failure_says_when_nothing_waits(holdfast: Sandbox, ship: Any) -> None:
    with pytest.raises(AssertionError, match="No task waits"):
        holdfast.assert_enqueued(ship)


def test_the_failure_says_when_such_a_task_has_already_run(holdfast: Sandbox, ship: Any) -> None:
    ship.enqueue(order_id=7, to=KYIV)
    holdfast.drain()
    with pytest.raises(AssertionError, match="expected at least one; 1 such task has already ended"):
        holdfast.assert_enqueued(ship, order_id=7)


def test_assert_not_enqueued_fails_if_such_a_task_waits(holdfast: Sandbox, ship: Any) -> None:
    ship.enqueue(order_id=7, to=KYIV)
    with pytest.raises(AssertionError, match=r"^1 task shop\.ship\(order_id=7\) waits, expected none"):
        holdfast.assert_not_enqueued(ship, order_id=7)


def test_a_type_without_a_handler_is_compared_as_json(holdfast: Sandbox) -> None:
    Engine(holdfast.connect()).run(
        enqueue.enqueue(NewTask("mail.send", {"to": ["ada"], "at": NOON.isoformat()}))
    )
    holdfast.assert_enqueued("mail.send", to=("ada",))
    holdfast.assert_not_enqueued("mail.send", to="ada")
    holdfast.assert_not_enqueued("mail.send", subject="hello")


def test_the_name_of_a_type_finds_its_handler(holdfast: Sandbox, ship: Any) -> None:
    ship.enqueue(order_id=7, to=KYIV, weight=Decimal("1.50"))
    holdfast.assert_enqueued("shop.ship", weight=Decimal("1.5"))


def test_a_payload_that_does_not_fit_matches_only_without_arguments(holdfast: Sandbox, ship: Any) -> None:
    Engine(holdfast.connect()).run(enqueue.enqueue(NewTask("shop.ship", {"order_id": "many"})))
    holdfast.assert_enqueued(ship)
    holdfast.assert_not_enqueued(ship, order_id=1)


def test_enqueued_lists_what_waits_in_the_order_of_enqueueing(holdfast: Sandbox, app: App, ship: Any) -> None:
    @app.task("mail.send", retry=Linear(step=60))
    def send() -> None:
        raise ConnectionError

    first = send.enqueue()
    second = ship.using(priority=9).enqueue(order_id=1, to=KYIV)
    holdfast.drain()
    third = ship.using(delay=60).enqueue(order_id=2, to=KYIV)
    assert [task.task_id for task in holdfast.enqueued()] == [first.task_id, third.task_id]
    assert [task.status for task in holdfast.enqueued()] == ["retrying", "scheduled"]
    assert [task.task_id for task in holdfast.enqueued(ship)] == [third.task_id]
    assert [task.task_id for task in holdfast.enqueued("mail.send")] == [first.task_id]
    assert holdfast.task(second).status == "succeeded"
