from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, Linear, Task
from holdfast._engine import Engine
from holdfast._engine.enqueue import NewTask
from holdfast._engine.tasks import TaskStatus, find_tasks, list_tasks, task_status
from holdfast.errors import InvalidArgument, KeyConflict, TooLarge, UnsupportedValue
from support.clock import NOON, Clock
from support.database import Database


@pytest.fixture
def charge(app: App) -> Task[..., str]:
    @app.task(
        "billing.charge", queue="money", priority=3, max_attempts=5, lease=120, retry=Linear(), timeout=9
    )
    def charge(invoice_id: int, note: str = "") -> str:
        return f"charged {invoice_id}{note}"

    return charge


@pytest.fixture
def found(db: Database) -> Callable[[Any], TaskStatus]:
    def find(handle: Any) -> TaskStatus:
        task = Engine(db.connect()).run(task_status(handle.task_id))
        assert task is not None
        return task

    return find


def test_a_task_has_what_its_decorator_said(charge: Task[..., str], found: Callable[..., TaskStatus]) -> None:
    task = found(charge.enqueue(7, note="!"))
    assert (task.type, task.payload) == ("billing.charge", {"invoice_id": 7, "note": "!"})
    assert (task.queue, task.priority, task.max_attempts, task.executor) == ("money", 3, 5, "python")
    assert task.lease == timedelta(seconds=120)


def test_an_option_outweighs_the_decorator(charge: Task[..., str], found: Callable[..., TaskStatus]) -> None:
    handle = charge.using(
        queue="q", priority=0, max_attempts=1, timeout=timedelta(minutes=1), metadata={"a": 1}, key="k"
    ).enqueue(7)
    task = found(handle)
    assert (task.queue, task.priority, task.max_attempts) == ("q", 0, 1)
    assert (task.timeout, task.metadata, task.idempotency_key) == (timedelta(minutes=1), {"a": 1}, "k")


def test_a_delay_is_counted_by_the_engines_clock(
    db: Database, charge: Task[..., str], found: Callable[..., TaskStatus]
) -> None:
    clock = Clock(db.connect())
    alone = charge.using(delay=90).enqueue(1)
    keyed = charge.using(delay=timedelta(hours=1), key="k").enqueue(1)
    [first, second] = charge.enqueue_many([charge.using(delay=0.5).build(1), (2,)])
    due = [found(handle).run_at for handle in (alone, keyed, first, second)]
    assert due == [clock.after(90), clock.after(3600), clock.after(0.5), NOON]


def test_a_time_to_run_is_kept(charge: Task[..., str], found: Callable[..., TaskStatus]) -> None:
    later = datetime(2040, 1, 31, 8, tzinfo=UTC)
    assert found(charge.using(run_at=later).enqueue(1)).run_at == later


def test_a_payload_that_names_an_executor_does_not_choose_it(
    app: App, found: Callable[..., TaskStatus]
) -> None:
    @app.task("report.write")
    def write(task_type: str) -> None: ...

    assert found(write.enqueue("email")).executor == "python"


def test_the_same_key_and_arguments_give_the_same_task(charge: Task[..., str]) -> None:
    first, second = charge.using(key="k").enqueue(1), charge.using(key="k").enqueue(1)
    assert (first.created, second.created) == (True, False)
    assert first.task_id == second.task_id


def test_the_same_key_and_other_arguments_are_a_conflict(charge: Task[..., str]) -> None:
    charge.using(key="k").enqueue(1)
    with pytest.raises(KeyConflict):
        charge.using(key="k").enqueue(2)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"invoice_id": "x"}, r"billing\.charge: invoice_id: Input should be a valid integer"),
        (
            {"invoice_id": 1, "extra": 1},
            r"billing\.charge: unknown argument 'extra'; expected one of invoice_id, note",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    charge: Task[..., str], given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        charge.enqueue(**given)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kee": "k"}, r"unknown option 'kee'; did you mean 'key'\?"),
        ({"lease": 3}, "unknown option 'lease'"),
        ({"delay": -1}, "delay must not be negative"),
        ({"delay": "soon"}, "delay takes seconds or a timedelta, not 'soon'"),
        ({"delay": float("nan")}, "delay takes seconds or a timedelta"),
        ({"delay": 1, "run_at": NOON}, "give run_at or delay, not both"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at .* has no time zone"),  # noqa: DTZ001 - the subject
        ({"timeout": -1}, "timeout must not be negative"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"queue": "a b"}, "queue"),
        ({"key": "a\0b"}, "idempotency_key holds a NUL"),
        ({"metadata": {"a": object()}}, "metadata cannot be written as JSON"),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    charge: Task[..., str], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        charge.using(**options).enqueue(1)


def test_a_payload_over_the_limit_is_refused(charge: Task[..., str]) -> None:
    with pytest.raises(TooLarge, match="bytes"):
        charge.enqueue(1, note="x" * 300_000)


async def test_an_event_loop_enqueues_the_same(
    charge: Task[..., str], found: Callable[..., TaskStatus]
) -> None:
    handle = await charge.using(key="k", priority=1).aenqueue(7)
    assert handle.created
    assert not (await charge.using(key="k").aenqueue(7)).created
    assert found(handle).priority == 1
    with pytest.raises(UnsupportedValue):
        await charge.aenqueue(7, note="\0")


def test_ten_thousand_and_more_are_sent_without_waiting_for_each_other(
    db: Database, charge: Task[..., str]
) -> None:
    told: list[tuple[int, int]] = []
    handles = charge.enqueue_many(
        ((n,) for n in range(10_050)), progress=lambda done, total: told.append((done, total))
    )
    assert told == [*((n * 500, 10_050) for n in range(1, 21)), (10_050, 10_050)]
    assert len({handle.task_id for handle in handles}) == 10_050
    last = Engine(db.connect()).run(task_status(handles[-1].task_id))
    assert last is not None
    assert last.payload == {"invoice_id": 10_049}


def test_a_refusal_far_back_names_its_place_and_leaves_nothing_behind(
    db: Database, charge: Task[..., str]
) -> None:
    calls: list[dict[str, Any]] = [{"invoice_id": n} for n in range(2500)]
    calls[2100]["note"] = "x" * 300_000
    with pytest.raises(TooLarge, match=r"tasks\[2100\]\.payload"):
        charge.enqueue_many(calls)
    assert Engine(db.connect()).run(find_tasks()).task_ids == []


async def test_an_event_loop_enqueues_many_too(charge: Task[..., str]) -> None:
    told: list[tuple[int, int]] = []
    calls = [charge.using(key=str(n)).build(n) for n in (0, 1)] * 2
    handles = await charge.aenqueue_many(calls, progress=lambda *done: told.append(done))
    assert [handle.created for handle in handles] == [True, True, False, False]
    assert told == [(4, 4)]


def test_many_are_all_or_nothing(db: Database, app: App, charge: Task[..., str]) -> None:
    tasks = [NewTask("billing.charge", {"invoice_id": n}) for n in range(10_001)]
    with pytest.raises(InvalidArgument, match="type"):
        app.enqueue_many([*tasks, NewTask("not a type")])
    assert Engine(db.connect()).run(list_tasks()) == []


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([(1,), ("x",)], r"calls\[1\]: billing\.charge: invoice_id"),
        ([{"invoice_id": 1, "nope": 2}], r"calls\[0\]: billing\.charge: unknown argument 'nope'"),
        ([7], r"calls\[0\] is 7; expected a dict or a tuple"),
    ],
)
def test_the_one_of_many_that_does_not_fit_is_named(
    charge: Task[..., str], calls: list[Any], reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        charge.enqueue_many(calls)


def test_a_task_that_was_built_keeps_its_own_options(
    charge: Task[..., str], found: Callable[..., TaskStatus]
) -> None:
    urgent = charge.using(priority=9)
    handles = charge.enqueue_many([urgent.using(key="k").build(1), urgent.build(2), {"invoice_id": 3}])
    tasks = [found(handle) for handle in handles]
    assert [(task.priority, task.idempotency_key) for task in tasks] == [(9, "k"), (9, None), (3, None)]


def test_a_built_task_goes_into_a_batch_of_its_own_type_without_other_options(
    app: App, charge: Task[..., str]
) -> None:
    @app.task("mail.send")
    def send(to: str) -> None: ...

    with pytest.raises(
        InvalidArgument, match=r"calls\[1\] is a task of type mail\.send, not billing\.charge"
    ):
        charge.enqueue_many([(1,), send.build("a@b.example")])
    with pytest.raises(InvalidArgument, match=r"calls\[0\] was built with its own options"):
        charge.using(priority=1).enqueue_many([charge.build(1)])
    with pytest.raises(InvalidArgument, match="no tx of its own"):
        charge.using(tx=object()).build(1)


def test_options_are_added_to_those_given_before(
    charge: Task[..., str], found: Callable[..., TaskStatus]
) -> None:
    bound = charge.using(queue="slow", priority=1)
    task = found(bound.using(priority=2, key="k").enqueue(7))
    assert (task.queue, task.priority, task.idempotency_key) == ("slow", 2, "k")
    assert found(bound.enqueue(7)).priority == 1


def test_none_of_many_is_no_round_trip(app: App, charge: Task[..., str]) -> None:
    assert charge.enqueue_many([]) == app.enqueue_many([]) == []


def test_tasks_of_several_types_are_enqueued_together(
    app: App, charge: Task[..., str], found: Callable[..., TaskStatus]
) -> None:
    @app.task("mail.send")
    def send(to: str) -> None: ...

    handles = app.enqueue_many(
        [charge.using(key="k").build(1), send.using(delay=5).build("a@b.example"), NewTask("other.type")]
    )
    assert [found(handle).type for handle in handles] == ["billing.charge", "mail.send", "other.type"]
    with pytest.raises(InvalidArgument, match=r"tasks\[0\] is 7"):
        app.enqueue_many([7])  # type: ignore[list-item]


async def test_an_event_loop_enqueues_several_types(app: App, charge: Task[..., str]) -> None:
    [handle] = await app.aenqueue_many([charge.build(1)])
    assert await handle.astatus() == "pending"
