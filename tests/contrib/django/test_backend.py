"""The backend of django.tasks: what Django's own tests do not ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from holdfast.contrib.django.compat import load
from holdfast.errors import KeyConflict
from support.database import Database
from support.worker_thread import working

BACKEND = "holdfast.contrib.django.backend.HoldfastBackend"


@pytest.fixture
def tasks(sandbox: Any) -> Any:
    from support.django_app import tasks

    return tasks


@contextmanager
def received(name: str) -> Iterator[list[Any]]:
    """The status and the number of errors of each result that a signal brings."""
    found: list[Any] = []

    def receive(task_result: Any, **_: Any) -> None:
        found.append((str(task_result.status), task_result.attempts, len(task_result.errors)))

    signal = getattr(load(".signals"), name)
    signal.connect(receive)
    try:
        yield found
    finally:
        signal.disconnect(receive)


def test_a_worker_runs_tasks_of_django(db: Database, tasks: Any) -> None:
    from holdfast.contrib.django import app

    results = [tasks.add.enqueue(1, second=2), tasks.aadd.enqueue(3, 4)]
    with working(app, db.dsn, worker_queues="default"):
        for result in results:
            app.handle(result.id).result(30)
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [3, 7]
    assert [len(result.worker_ids) for result in results] == [1, 1]


def test_the_worker_serves_the_queues_of_the_tasks_setting(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.contrib.django import app

    served: list[Any] = []
    monkeypatch.setattr(
        "holdfast._worker.worker_process.run", lambda _, settings: served.append(settings.worker_queues)
    )
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["mail", "slow"]}}):
        app.run_worker()
        app.run_worker(worker_queues="one")
    # Another test may have loaded a module that sends messages.
    assert [set(queues) - {"comms"} for queues in served] == [{"mail", "shop", "slow"}, {"one"}]


def test_a_rollback_removes_the_task(tasks: Any) -> None:
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        transaction.set_rollback(True)
    with pytest.raises(load(".exceptions").TaskResultDoesNotExist):
        result.refresh()


def test_a_task_runs_once_unless_it_says_more(sandbox: Any, tasks: Any) -> None:
    tasks.stumble.using(max_attempts=1).enqueue(9)
    [ran] = sandbox.drain(until=timedelta(hours=1))
    assert ran.status == "dead_letter"
    assert tasks.add.enqueue(1).task.max_attempts is None
    [waiting] = sandbox.enqueued()
    assert waiting.max_attempts == 1


def test_backoff_decides_on_every_attempt_with_the_exception_and_the_result(sandbox: Any, tasks: Any) -> None:
    result = tasks.stumble.enqueue(9, why="this")
    ran = sandbox.drain(until=timedelta(hours=1))
    assert [one.status for one in ran] == ["retrying", "retrying", "failed"]
    assert [call for call in tasks.calls if call != "run"] == [
        (ValueError, 1, 1),
        (ValueError, 2, 2),
        (ValueError, 3, 3),
    ]
    first, second, _ = (one.run_at for one in ran)
    assert timedelta(minutes=2) <= second - first < timedelta(minutes=3)
    result.refresh()
    assert [error.exception_class for error in result.errors] == [ValueError] * 3
    assert result.errors[0].traceback.endswith("ValueError: this\n")
    assert result.attempts == 3


def test_task_finished_is_sent_once_at_the_end(sandbox: Any, tasks: Any) -> None:
    with received("task_started") as started, received("task_finished") as finished:
        tasks.stumble.enqueue(2)
        sandbox.drain(until=timedelta(hours=1))
    assert started == [("RUNNING", 1, 0), ("RUNNING", 2, 1), ("RUNNING", 3, 2)]
    assert finished == [("SUCCESSFUL", 3, 2)]


def test_task_finished_is_sent_when_the_attempts_are_used_up(sandbox: Any, tasks: Any) -> None:
    with received("task_finished") as finished:
        tasks.stumble.using(max_attempts=2).enqueue(9)
        sandbox.drain(until=timedelta(hours=1))
    assert finished == [("FAILED", 2, 2)]


def test_a_receiver_that_raises_does_not_fail_the_task(sandbox: Any, tasks: Any) -> None:
    def receive(**_: Any) -> None:
        raise RuntimeError("a receiver")

    signals = load(".signals")
    for signal in (signals.task_started, signals.task_finished):
        signal.connect(receive)
    try:
        tasks.add.enqueue(1)
        [ran] = sandbox.drain()
    finally:
        for signal in (signals.task_started, signals.task_finished):
            signal.disconnect(receive)
    assert ran.status == "succeeded"


def test_the_context_counts_attempts(sandbox: Any, tasks: Any) -> None:
    result = tasks.attempts.enqueue()
    sandbox.drain(until=timedelta(hours=1))
    result.refresh()
    assert result.return_value == [2, result.id]


def test_a_key_returns_the_existing_task_and_sends_no_signal(tasks: Any) -> None:
    with received("task_enqueued") as enqueued:
        first = tasks.add.using(key="one").enqueue(1)
        again = tasks.add.using(key="one").enqueue(1)
    assert first.id == again.id
    assert len(enqueued) == 1
    with pytest.raises(KeyConflict):
        tasks.add.using(key="one").enqueue(2)


def test_options_reach_the_engine_and_come_back(sandbox: Any, tasks: Any) -> None:
    later = timezone.now() + timedelta(hours=1)
    options = {"max_attempts": 4, "timeout": 20, "key": "k", "concurrency_key": "customer-7"}
    given = tasks.add.using(priority=5, run_after=later, **options)
    result = given.enqueue(1)
    [waiting] = sandbox.enqueued()
    assert (waiting.type, waiting.queue) == ("support.django_app.tasks.add", "default")
    assert (waiting.priority, waiting.run_at, waiting.timeout) == (5, later, timedelta(seconds=20))
    assert (waiting.max_attempts, waiting.concurrency_key) == (4, "customer-7")
    assert tasks.add.get_result(result.id).task == given
    assert tasks.add.get_result(result.id) == result


def test_options_of_the_decorator_and_of_using_are_kept_together(tasks: Any) -> None:
    changed = tasks.stumble.using(priority=3).using(key="one")
    assert (changed.priority, changed.key, changed.max_attempts) == (3, "one", 5)
    assert changed.backoff is tasks.backoff


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 1001),
        ("max_attempts", 2.0),
        ("max_attempts", True),
        ("timeout", 0.5),
        ("timeout", "10"),
        ("key", ""),
        ("key", 7),
        ("concurrency_key", ""),
    ],
)
def test_an_option_that_cannot_be_used_makes_the_task_invalid(tasks: Any, option: str, value: object) -> None:
    with pytest.raises(load(".exceptions").TaskException, match=f"^{option} must be"):
        tasks.add.using(**{option: value})


def test_a_time_limit_fails_the_task_with_a_timeout(sandbox: Any, tasks: Any) -> None:
    with received("task_finished") as finished:
        result = tasks.hang.enqueue()
        sandbox.drain()
    result.refresh()
    assert [error.exception_class for error in result.errors] == [TimeoutError]
    assert finished == [("FAILED", 1, 1)]


def test_outcomes_of_holdfast_work_in_tasks_of_django(sandbox: Any, tasks: Any) -> None:
    failed, asleep = tasks.give_up.enqueue(), tasks.wait_once.enqueue()
    ran = sandbox.drain(until=timedelta(minutes=5))
    assert sorted(one.status for one in ran) == ["failed", "snoozed", "succeeded"]
    failed.refresh()
    asleep.refresh()
    assert (str(failed.status), asleep.return_value) == ("FAILED", "awake")


def test_a_cancelled_task_has_failed_and_says_why(tasks: Any) -> None:
    from holdfast.contrib.django import app
    from holdfast.errors import TaskCancelled

    result = tasks.add.enqueue(1)
    app.handle(result.id).cancel("not wanted")
    result.refresh()
    assert str(result.status) == "FAILED"
    [error] = result.errors
    assert (error.exception_class, error.traceback) == (TaskCancelled, "not wanted")


def test_a_task_of_another_kind_or_backend_is_no_result(tasks: Any) -> None:
    missing = load(".exceptions").TaskResultDoesNotExist
    backend = load().default_task_backend
    with override_settings(
        TASKS={"default": {"BACKEND": BACKEND}, "other": {"BACKEND": BACKEND, "QUEUES": []}}
    ):
        elsewhere = tasks.add.using(backend="other").enqueue(1)
        for result_id in (str(tasks.double.enqueue(1).task_id), elsewhere.id, str(uuid4()), "no uuid"):
            with pytest.raises(missing):
                backend.get_result(result_id)


@pytest.mark.parametrize(
    "task_type",
    [
        "support.django_app.tasks.not_a_task",
        "support.django_app.tasks.missing",
        "os.system",
        "this.s",
        "json.tool.main",
    ],
)
def test_a_type_from_the_database_runs_only_what_is_a_task(
    sandbox: Any, task_type: str, db: Database
) -> None:
    import sys

    loaded = "this" in sys.modules
    db.connect().execute("select queues.enqueue(%s, queue => 'default', max_attempts => 1)", [task_type])
    [ran] = sandbox.drain()
    assert (ran.status, ran.error and ran.error.partition(":")[0]) == ("failed", "no_handler_registered")
    assert ("this" in sys.modules) == loaded


def test_a_result_that_is_not_json_is_not_tried_again(sandbox: Any, tasks: Any) -> None:
    from holdfast.contrib.django.backend import task

    assert task(max_attempts=3)(tasks.add.func).max_attempts == 3
    result = tasks.as_is.using(max_attempts=3).enqueue()
    [ran] = sandbox.drain(until=timedelta(hours=1))
    assert ran.status == "failed"
    result.refresh()
    assert result.errors[0].exception_class is TypeError


def test_times_are_naive_without_time_zones(sandbox: Any, tasks: Any, django: Any) -> None:
    django.close()
    with override_settings(USE_TZ=False, TIME_ZONE="UTC"):
        later = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(run_after=later).enqueue(1)
        assert result.enqueued_at.tzinfo is None
        assert tasks.add.get_result(result.id).task.run_after == later
    django.close()
