import asyncio
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import uuid4

import psycopg
import pytest

from holdfast import App, Cancel, Fail, Handle, Task, TaskCancelled, TaskFailed
from holdfast._connections import waiting as core
from holdfast._connections.listener import Listener, NotificationsUnavailable
from holdfast._engine import Engine, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast.errors import (
    EventLoopRunning,
    InvalidArgument,
    InvalidState,
    NotAllowed,
    NotFound,
    ResultError,
)
from support.database import Database, shards_of
from support.drain import drain
from support.sessions import in_background

Work = Callable[[], int]


def listening(connection: psycopg.Connection[Any]) -> list[int]:
    """The sessions that listen in this database."""
    found = connection.execute(
        "select pid from pg_stat_activity where datname = current_database() and query like 'listen %'"
    )
    return [pid for (pid,) in found.fetchall()]


@dataclass
class Receipt:
    invoice_id: int
    at: datetime


@pytest.fixture
def charge(app: App) -> Task[..., Receipt]:
    @app.task("billing.charge", max_attempts=2)
    def charge(invoice_id: int) -> Receipt:
        if invoice_id < 0:
            raise ValueError(f"there is no invoice {invoice_id}")
        return Receipt(invoice_id, datetime(2030, 1, 31, tzinfo=UTC))

    return charge


@pytest.fixture
def only_by_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_LOOK_SECONDS", "LOOK_SECONDS", "LOOK_SECONDS_WITHOUT_LISTENER"):
        monkeypatch.setattr(core, name, 3600)


@pytest.fixture
def only_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: object) -> None:
        raise NotificationsUnavailable("in this test")

    monkeypatch.setattr(Listener, "_listen", unavailable)
    monkeypatch.setattr(core, "LOOK_SECONDS_WITHOUT_LISTENER", 0.01)


def wait_for_waiter(connection: psycopg.Connection[Any], handle: Handle[Any]) -> None:
    """Return once somebody has asked to be told of this task's end."""
    for _ in range(20_000):
        for shard in shards_of(connection):
            if shard.execute("select 1 from queues.waiter where task_id = %s", [handle.task_id]).fetchone():
                return
    raise AssertionError("nobody waits")


def wait_for_listener(connection: psycopg.Connection[Any]) -> list[int]:
    """The sessions that listen, once there is one: it connects while the task is read for the first time."""
    for _ in range(20_000):
        if found := listening(connection):
            return found
    raise AssertionError("nobody listens")


def waiting(db: Database, handle: Handle[Any], timeout: float | None = 60) -> Iterator[Future[Any]]:
    with in_background(lambda: handle.result(timeout)) as future:
        wait_for_waiter(db.connect(), handle)
        yield future


def test_a_result_has_the_type_that_the_handler_announced(charge: Task[..., Receipt], work: Work) -> None:
    handle = charge.enqueue(7)
    assert work() == 1
    assert handle.result() == Receipt(7, datetime(2030, 1, 31, tzinfo=UTC))
    assert handle.status() == "succeeded"


def test_the_info_of_a_task_has_its_attempts_errors_and_times(charge: Task[..., Receipt], work: Work) -> None:
    handle = charge.using(key="k", metadata={"order": 1}, max_attempts=1).enqueue(-1)
    before = handle.info()
    assert (before.status, before.attempt, before.max_attempts, before.errors) == ("pending", 0, 1, ())
    assert (before.type, before.queue, before.priority) == ("billing.charge", "billing", 0)
    assert (before.key, before.metadata, before.progress) == ("k", {"order": 1}, None)
    assert (before.started_at, before.finished_at) == (None, None)
    work()
    after = handle.info()
    assert (after.status, after.attempt, after.task_id) == ("dead_letter", 1, handle.task_id)
    [error] = after.errors
    assert (error.attempt, error.kind) == (1, "handler_error")
    assert "there is no invoice -1" in error.message
    assert after.finished_at is not None
    assert after.created_at == before.created_at <= after.finished_at


async def test_an_event_loop_reads_retries_and_deletes(charge: Task[..., Receipt], work: Work) -> None:
    handle = await charge.using(max_attempts=1).aenqueue(-1)
    work()
    assert (await handle.ainfo()).status == "dead_letter"
    assert await handle.aretry("the invoice is there now") == "pending"
    assert (await handle.ainfo()).attempt == 0
    await handle.adelete("not needed")
    assert work() == 0


def test_a_failed_task_is_retried_and_deleted_by_an_operator_only(
    db: Database, charge: Task[..., Receipt], work: Work
) -> None:
    handle = charge.using(max_attempts=1).enqueue(-1)
    work()
    client = App(db.dsn_as("holdfast_client"))
    for act in (client.handle(handle.task_id).retry, client.handle(handle.task_id).delete):
        with pytest.raises(NotAllowed):
            act()
    client.close()
    assert handle.retry() == "pending"
    with pytest.raises(InvalidState, match="it is pending"):
        handle.retry()
    handle.delete("not needed")
    assert work() == 0


@pytest.mark.parametrize("method", ["status", "info", "result", "cancel", "retry", "delete", "reschedule"])
async def test_a_synchronous_method_in_an_event_loop_names_its_twin(
    charge: Task[..., Receipt], method: str
) -> None:
    handle = await charge.using(delay=60).aenqueue(7)
    given = {"delay": 1} if method == "reschedule" else {}
    with pytest.raises(EventLoopRunning, match=rf"{method}\(\) would block .* await a{method}\("):
        getattr(handle, method)(**given)


async def test_enqueueing_in_an_event_loop_names_its_twin(app: App, charge: Task[..., Receipt]) -> None:
    for call, twin in (
        (lambda: charge.enqueue(7), "aenqueue"),
        (lambda: charge.enqueue_many([(7,)]), "aenqueue_many"),
        (lambda: app.enqueue_many([charge.build(7)]), "aenqueue_many"),
        (lambda: app.emit("order.created"), "aemit"),
    ):
        with pytest.raises(EventLoopRunning, match=rf"await {twin}\("):
            call()
    with in_background(lambda: charge.enqueue(7)) as enqueued:
        assert enqueued.result(30).created


@pytest.mark.usefixtures("only_by_notification")
def test_who_waits_is_told_when_the_task_has_ended(
    db: Database, charge: Task[..., Receipt], work: Work
) -> None:
    handle = charge.enqueue(7)
    for future in waiting(db, handle):
        work()
        assert future.result(30).invoice_id == 7


@pytest.mark.usefixtures("only_by_looking")
def test_who_cannot_be_told_looks_for_himself(db: Database, charge: Task[..., Receipt], work: Work) -> None:
    handle = charge.enqueue(7)
    for future in waiting(db, handle):
        work()
        assert future.result(30).invoice_id == 7


@pytest.mark.usefixtures("only_by_notification")
async def test_many_wait_on_one_listening_connection(
    app: App, db: Database, charge: Task[..., Receipt], work: Work
) -> None:
    handles = await charge.aenqueue_many([(n,) for n in range(50)])
    results = [asyncio.create_task(handle.aresult(60)) for handle in [*handles, handles[0]]]
    admin = db.connect()
    for handle in handles:
        await asyncio.to_thread(wait_for_waiter, admin, handle)
    for shard in shards_of(admin):
        assert len(await asyncio.to_thread(wait_for_listener, shard)) == 1
    await asyncio.to_thread(work)
    assert [receipt.invoice_id for receipt in await asyncio.gather(*results)] == [*range(50), 0]


async def test_a_listener_that_is_cut_off_listens_again(
    db: Database, charge: Task[..., Receipt], work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "LOOK_SECONDS", 3600)
    monkeypatch.setattr(core, "LOOK_SECONDS_WITHOUT_LISTENER", 0.05)
    handle = await charge.aenqueue(7)
    result = asyncio.create_task(handle.aresult(60))
    admin = db.connect()
    await asyncio.to_thread(wait_for_waiter, admin, handle)
    for shard in shards_of(admin):
        [pid] = await asyncio.to_thread(wait_for_listener, shard)
        admin.execute("select pg_terminate_backend(%s)", [pid])
    await asyncio.to_thread(work)
    assert (await result).invoice_id == 7


def test_a_failed_task_says_how_each_attempt_went_wrong(charge: Task[..., Receipt], work: Work) -> None:
    handle = charge.enqueue(-1)
    work()
    assert handle.status() == "retrying"
    handle.reschedule(delay=0)
    work()
    with pytest.raises(
        TaskFailed, match="failed after 2 attempts: ValueError: there is no invoice -1"
    ) as caught:
        handle.result()
    assert caught.value.status == "dead_letter"
    assert caught.value.task_id == handle.task_id
    assert [(error.attempt, error.kind) for error in caught.value.errors] == [
        (1, "handler_error"),
        (2, "handler_error"),
    ]
    assert all("in charge" in (error.traceback or "") for error in caught.value.errors)
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert (str(copied), copied.errors) == (str(caught.value), caught.value.errors)


def test_a_handler_may_fail_or_cancel_its_task(app: App, work: Work) -> None:
    @app.task("outcome.choose")
    def choose(outcome: str) -> Cancel | Fail:
        return Cancel("not today") if outcome == "cancel" else Fail("not ever")

    cancelled, failed = choose.enqueue("cancel"), choose.enqueue("fail")
    work()
    with pytest.raises(TaskCancelled, match="was cancelled: not today"):
        cancelled.result()
    with pytest.raises(TaskFailed, match="failed: not ever") as caught:
        failed.result()
    assert [error.message for error in caught.value.errors] == ["not ever"]


def test_a_cancelled_task_does_not_run(charge: Task[..., Receipt], work: Work) -> None:
    handle = charge.enqueue(7)
    assert handle.cancel("changed my mind") == "cancelled"
    assert handle.cancel() == "cancelled"
    assert work() == 0
    with pytest.raises(TaskCancelled, match="changed my mind") as caught:
        handle.result()
    assert caught.value.status == "cancelled"


async def test_an_event_loop_cancels_and_reschedules(charge: Task[..., Receipt]) -> None:
    handle = await charge.using(delay=60).aenqueue(7)
    assert await handle.areschedule(delay=0) == "pending"
    assert await handle.areschedule(datetime(2040, 1, 1, tzinfo=UTC)) == "scheduled"
    assert await handle.acancel("late") == "cancelled"
    with pytest.raises(TaskCancelled):
        await handle.aresult()


def test_a_moment_is_given_once(charge: Task[..., Receipt]) -> None:
    handle = charge.enqueue(7)
    with pytest.raises(InvalidArgument, match="give run_at or delay"):
        handle.reschedule()
    with pytest.raises(InvalidArgument, match="not both"):
        handle.reschedule(datetime.now(UTC), delay=1)


def test_a_result_that_does_not_come_in_time_is_a_timeout(charge: Task[..., Receipt]) -> None:
    handle = charge.enqueue(7)
    with pytest.raises(
        TimeoutError, match=f"task {handle.task_id} did not end in time; its status is pending"
    ):
        handle.result(timeout=0)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)


def test_a_time_to_wait_may_be_a_timedelta(charge: Task[..., Receipt]) -> None:
    with pytest.raises(TimeoutError, match="did not end in time; its status is pending"):
        charge.enqueue(invoice_id=7).result(timedelta(milliseconds=10))


def test_a_result_that_is_there_needs_no_time(charge: Task[..., Receipt], work: Work) -> None:
    handle = charge.enqueue(7)
    work()
    assert handle.result(timeout=0).invoice_id == 7


def test_a_task_of_an_open_transaction_cannot_be_waited_for(db: Database, charge: Task[..., Receipt]) -> None:
    with db.connect(autocommit=False) as tx:
        handle = charge.using(tx=tx).enqueue(7)
        with pytest.raises(NotFound, match="commit that transaction first"):
            handle.result()
        with pytest.raises(NotFound, match="commit that transaction first"):
            handle.status()
    assert handle.status() == "pending"


def test_a_handle_can_be_made_from_a_task_id(app: App, charge: Task[..., Receipt], work: Work) -> None:
    task_id = charge.enqueue(7).task_id
    work()
    again = app.handle(str(task_id))
    assert again.created is None
    assert again.result() == charge.handle(task_id).result() == Receipt(7, datetime(2030, 1, 31, tzinfo=UTC))
    with pytest.raises(NotFound):
        app.handle(uuid4()).status()
    with pytest.raises(InvalidArgument, match="task_id 'seven' is not a UUID"):
        app.handle("seven")


def test_a_result_of_a_type_without_a_handler_is_what_json_says(app: App, db: Database) -> None:
    elsewhere = App(db.dsn)

    @elsewhere.task("elsewhere.sum")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    [handle] = app.enqueue_many([NewTask("elsewhere.sum", {"numbers": [1, 2]})])
    drain(elsewhere, db.connect())
    assert handle.result() == 3
    elsewhere.close()


def test_a_result_that_changed_its_type_meanwhile_is_named(app: App, db: Database, work: Work) -> None:
    @app.task("billing.total")
    def total() -> str:
        return "seven"

    handle = total.enqueue()
    work()
    later = App(db.dsn)

    @later.task("billing.total")
    def total_as_number() -> int:
        return 7

    with pytest.raises(ResultError, match=r"the result of billing\.total does not fit"):
        total_as_number.handle(handle.task_id).result()
    later.close()


def test_the_type_of_a_result_has_no_outcomes_in_it(app: App, work: Work) -> None:
    @app.task("billing.maybe")
    def maybe(amount: int) -> str | Cancel | Fail:
        return str(amount) if amount else Cancel("nothing to pay")

    handle = maybe.enqueue(7)
    assert_type(handle, Handle[str | Cancel | Fail])
    work()
    assert assert_type(handle.result(30), str) == "7"


def test_a_client_waits_for_and_cancels_its_own_tasks_with_its_own_rights(db: Database, work: Work) -> None:
    app = App(db.dsn_as("holdfast_client"))

    @app.task("client.echo")
    def echo(text: str) -> str:
        return text

    handle, other = echo.enqueue("hello"), echo.using(delay=5).enqueue("no")
    drain(app, db.connect())
    assert handle.result(30) == "hello"
    assert other.cancel() == "cancelled"
    with pytest.raises(TaskCancelled):
        other.result()
    Engine(db.connect()).run(enqueue.enqueue(NewTask("client.echo", {"text": "of another login"})))
    app.close()
