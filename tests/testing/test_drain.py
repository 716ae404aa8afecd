"""What drain runs, in which order, and what it tells."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import App, Cancel, Fail, NoRetry, Snooze, SyncContext
from holdfast._engine import Engine, enqueue, leases, queues, tasks
from holdfast._engine.enqueue import NewTask
from holdfast.errors import InvalidArgument
from holdfast.testing import DrainLimitReached, Sandbox
from support.clock import NOON


@dataclass
class Receipt:
    amount: Decimal
    at: datetime


def test_an_attempt_is_told_with_its_arguments_and_its_typed_result(holdfast: Sandbox, app: App) -> None:
    @app.task("billing.charge")
    def charge(amount: Decimal) -> Receipt:
        return Receipt(amount, NOON)

    handle = charge.enqueue(amount=Decimal("9.50"))
    [ran] = holdfast.drain()
    assert (ran.task_id, ran.type, ran.arguments) == (handle.task_id, "billing.charge", {"amount": "9.50"})
    assert (ran.attempt, ran.status, ran.result) == (1, "succeeded", Receipt(Decimal("9.50"), NOON))
    assert (ran.error, ran.exception, ran.run_at) == (None, None, None)
    assert handle.result(timeout=5) == ran.result


def test_tasks_run_in_the_order_of_a_claim(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing(n: int) -> int:
        return n

    holdfast.clock.set(NOON)
    thing.enqueue(n=3)
    thing.enqueue(n=4)
    thing.using(run_at=NOON - timedelta(hours=1)).enqueue(n=2)
    thing.using(priority=5).enqueue(n=1)
    assert [ran.result for ran in holdfast.drain()] == [1, 2, 3, 4]


def test_what_a_handler_enqueues_is_run_too(holdfast: Sandbox, app: App) -> None:
    @app.task("any.count_down")
    def count_down(n: int) -> int:
        if n:
            count_down.enqueue(n=n - 1)
        return n

    count_down.enqueue(n=3)
    assert [ran.result for ran in holdfast.drain()] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("outcome", "status", "error"),
    [
        (Fail("the card is blocked"), "failed", "the card is blocked"),
        (Cancel("nobody needs it"), "cancelled", "nobody needs it"),
        (Snooze(60), "snoozed", None),
    ],
)
def test_an_outcome_is_told(
    holdfast: Sandbox, app: App, outcome: Fail | Cancel | Snooze, status: str, error: str | None
) -> None:
    @app.task("any.decide")
    def decide() -> Any:
        return outcome

    holdfast.clock.set(NOON)
    decide.enqueue()
    [ran] = holdfast.drain()
    assert (ran.status, ran.error) == (status, error)
    assert ran.run_at == (NOON + timedelta(minutes=1) if status == "snoozed" else None)


def test_a_task_that_never_ends_is_an_error_that_names_it(holdfast: Sandbox, app: App) -> None:
    @app.task("any.poll")
    def poll() -> Snooze:
        return Snooze(0)

    handle = poll.enqueue()
    with pytest.raises(DrainLimitReached, match=r"10 attempts, 10 of any\.poll, the last one snoozed"):
        holdfast.drain(limit=10)
    assert (holdfast.task(handle).status, holdfast.task(handle).attempt) == ("pending", 0)


def test_a_limit_that_is_just_enough_is_no_error(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None: ...

    thing.enqueue_many([{}, {}, {}])
    assert len(holdfast.drain(limit=3)) == 3


def test_a_limit_below_one_is_refused(holdfast: Sandbox, app: App) -> None:
    with pytest.raises(InvalidArgument, match="limit is 0"):
        holdfast.drain(limit=0)


def test_a_task_without_a_handler_fails_as_in_a_worker(holdfast: Sandbox, app: App) -> None:
    Engine(holdfast.connect()).run(enqueue.enqueue(NewTask("any.unknown")))
    [ran] = holdfast.drain()
    assert ran.status == "failed"
    assert "no_handler_registered" in str(ran.error)


def test_with_an_app_only_its_own_tasks_run(holdfast: Sandbox) -> None:
    mail, billing = App(), App()
    mail.task("mail.send")(lambda: "sent")
    billing.task("mail.send_invoice")(lambda: "billed")
    engine = Engine(holdfast.connect())
    for task_type in ("mail.send_invoice", "mail.send", "other.thing"):
        engine.run(enqueue.enqueue(NewTask(task_type)))
    assert [ran.result for ran in holdfast.drain(mail)] == ["sent"]
    left = holdfast.enqueued()
    assert [(task.type, task.attempt) for task in left] == [("mail.send_invoice", 0), ("other.thing", 0)]
    assert [ran.result for ran in holdfast.drain(billing)] == ["billed"]


def test_without_an_app_the_handlers_of_all_in_use_run(holdfast: Sandbox) -> None:
    mail, billing = holdfast.use(App()), holdfast.use(App())
    mail.task("mail.send")(lambda: "sent")
    billing.task("billing.charge")(lambda: "charged")
    engine = Engine(holdfast.connect())
    for task_type in ("billing.charge", "mail.send"):
        engine.run(enqueue.enqueue(NewTask(task_type)))
    assert [ran.result for ran in holdfast.drain()] == ["charged", "sent"]


def test_without_any_app_it_says_what_to_do(holdfast: Sandbox) -> None:
    with pytest.raises(InvalidArgument, match=r"Call use\(app\) first"):
        holdfast.drain()


def test_a_payload_that_does_not_fit_fails_its_task(holdfast: Sandbox, app: App) -> None:
    @app.task("any.typed")
    def typed(n: int) -> None: ...

    Engine(holdfast.connect()).run(enqueue.enqueue(NewTask("any.typed", {"n": "many"})))
    [ran] = holdfast.drain()
    assert ran.status == "failed"
    assert "n: " in str(ran.error)


def test_a_result_of_another_type_than_announced_fails_the_task(holdfast: Sandbox, app: App) -> None:
    @app.task("any.liar")
    def liar() -> int:
        return "seven"  # type: ignore[return-value] # that is the point

    liar.enqueue()
    [ran] = holdfast.drain()
    assert ran.status == "failed"
    assert "any.liar returned a value of type str, and is annotated with int" in str(ran.exception)


def test_a_lease_that_ended_is_swept_first(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing(ctx: SyncContext) -> int:
        return ctx.attempt

    thing.enqueue()
    Engine(holdfast.connect()).run(leases.claim("a worker that dies", queues=["any"]))
    assert holdfast.drain() == []
    holdfast.clock.advance(minutes=1)
    assert [ran.result for ran in holdfast.drain()] == [2]


def test_a_paused_queue_rests(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None: ...

    thing.enqueue()
    Engine(holdfast.connect()).run(queues.pause("any"))
    assert holdfast.drain(until=timedelta(days=1)) == []


def test_a_task_that_somebody_else_has_locked_is_left_alone(holdfast: Sandbox, app: App) -> None:
    @app.task("any.thing")
    def thing() -> None: ...

    handle = thing.enqueue()
    other = holdfast.connect(autocommit=False)
    Engine(other).run(tasks.cancel(handle.task_id))
    assert holdfast.drain(until=timedelta(hours=1)) == []
    other.rollback()
    assert [ran.status for ran in holdfast.drain()] == ["succeeded"]


def test_nothing_is_printed(holdfast: Sandbox, app: App, capfd: pytest.CaptureFixture[str]) -> None:
    @app.task("any.flaky", retry=NoRetry())
    def flaky() -> None:
        raise ConnectionError

    flaky.enqueue()
    holdfast.drain()
    assert capfd.readouterr() == ("", "")


def test_it_acts_with_the_rights_of_a_worker(holdfast: Sandbox) -> None:
    role = holdfast._worker.connection.execute("select current_user::text").fetchone()
    assert role == ("holdfast_worker",)
