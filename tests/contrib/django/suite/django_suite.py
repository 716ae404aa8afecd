"""Django's tests of its own backends, with ours in their place. What differs is overridden."""

import os
from typing import Any
from unittest import mock, skip

from asgiref.sync import sync_to_async
from django.db import connections
from django.test import override_settings
from suite_backends import DrainingBackend, RecordingBackend
from tasks import tasks as test_tasks
from tasks import test_dummy_backend, test_immediate_backend
from tasks import test_tasks as django_tests

from holdfast.contrib.django.compat import load
from holdfast.contrib.django.testing import Sandbox

READY, SUCCESSFUL = load().TaskResultStatus.READY, load().TaskResultStatus.SUCCESSFUL
DRAINING = "suite_backends.DrainingBackend"
RECORDING = "suite_backends.RecordingBackend"
IMMEDIATE = load(".backends.immediate").ImmediateBackend
NOT_FOR_US = "our backend supports it"


def backend() -> Any:
    return load().task_backends["default"]


@override_settings(
    TASKS={
        "default": {"BACKEND": RECORDING, "QUEUES": ["default", "queue_1"]},
        "immediate": {"BACKEND": f"{IMMEDIATE.__module__}.{IMMEDIATE.__qualname__}", "QUEUES": []},
        "missing": {"BACKEND": "does.not.exist"},
    }
)
class HoldfastTaskTestCase(django_tests.TaskTestCase):
    databases = "__all__"

    def test_using_correct_backend(self) -> None:
        assert isinstance(backend(), RecordingBackend)

    def test_get_backend(self) -> None:
        assert isinstance(test_tasks.noop_task.get_backend(), RecordingBackend)
        moved = test_tasks.noop_task.using(backend="immediate")
        assert isinstance(moved.get_backend(), IMMEDIATE)

    async def test_refresh_result(self) -> None:
        """Calls refresh() in an event loop, which Django allows no database to do unless this is set."""
        with mock.patch.dict(os.environ, DJANGO_ALLOW_ASYNC_UNSAFE="1"):
            await super().test_refresh_result()
            connections.close_all()  # that of the thread of the event loop


@override_settings(TASKS={"default": {"BACKEND": RECORDING, "QUEUES": []}})
class HoldfastDummyTestCase(test_dummy_backend.DummyBackendTestCase):
    databases = "__all__"

    def test_using_correct_backend(self) -> None:
        assert isinstance(backend(), RecordingBackend)

    def test_refresh_result(self) -> None:
        """The original changes a result in memory; here the task runs."""
        result = backend().enqueue(test_tasks.calculate_meaning_of_life, (), {})
        Sandbox().drain()
        assert result.status == READY
        result.refresh()
        assert result.status == SUCCESSFUL

    async def test_refresh_result_async(self) -> None:
        result = await backend().aenqueue(test_tasks.calculate_meaning_of_life, (), {})
        await (await _asandbox()).adrain()
        assert result.status == READY
        await result.arefresh()
        assert result.status == SUCCESSFUL


@override_settings(TASKS={"default": {"BACKEND": DRAINING, "QUEUES": []}})
class HoldfastImmediateTestCase(test_immediate_backend.ImmediateBackendTestCase):
    databases = "__all__"

    def tearDown(self) -> None:
        Sandbox().close()

    def test_using_correct_backend(self) -> None:
        assert isinstance(backend(), DrainingBackend)

    @skip(NOT_FOR_US)
    def test_cannot_get_result(self) -> None: ...

    @skip(NOT_FOR_US)
    def test_cannot_refresh_result(self) -> None: ...

    @skip(NOT_FOR_US)
    def test_cannot_pass_run_after(self) -> None: ...


class HoldfastDummyTransactionTestCase(test_dummy_backend.DummyBackendTransactionTestCase):
    def test_doesnt_wait_until_transaction_commit_by_default(self) -> None:
        with override_settings(TASKS={"default": {"BACKEND": RECORDING}}):
            unwrapped = test_dummy_backend.DummyBackendTransactionTestCase
            unwrapped.test_doesnt_wait_until_transaction_commit_by_default.__wrapped__(self)
            Sandbox().close()


class HoldfastImmediateTransactionTestCase(test_immediate_backend.ImmediateBackendTransactionTestCase):
    def test_doesnt_wait_until_transaction_commit_by_default(self) -> None:
        with override_settings(TASKS={"default": {"BACKEND": DRAINING}}):
            unwrapped = test_immediate_backend.ImmediateBackendTransactionTestCase
            unwrapped.test_doesnt_wait_until_transaction_commit_by_default.__wrapped__(self)
            Sandbox().close()


async def _asandbox() -> Sandbox:
    found: Sandbox = await sync_to_async(Sandbox)()
    return found
