"""The backend of `django.tasks`: "BACKEND": "holdfast.contrib.django.backend.HoldfastBackend"."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from holdfast._connections.transaction import run_in
from holdfast._engine import tasks
from holdfast._engine.enqueue import NewTask, enqueue_one
from holdfast._engine.tasks import TaskStatus
from holdfast.contrib.django import compat
from holdfast.contrib.django.client import DjangoAddress, DjangoClient, default_alias
from holdfast.contrib.django.conf import dsn_of
from holdfast.contrib.django.task_results import (
    BACKEND,
    RUN_AFTER,
    find_task,
    result_of,
    run_after_text,
    task_of,
)
from holdfast.retry import RetryPolicy

__all__ = ["HoldfastBackend", "HoldfastTask", "task"]

base = compat.load(".base")
MAX_ATTEMPTS = 1000
MAX_TYPE_BYTES = 200

Backoff = RetryPolicy | Callable[[BaseException, Any], float | timedelta | None]
"""Returns the seconds until the next attempt, or None for no further attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldfastTask(base.Task):  # type: ignore[name-defined] # of either package
    """A task of `django.tasks` with options of Holdfast. Only the decorator takes `backoff`."""

    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout: float | None = None
    key: str | None = None
    concurrency_key: str | None = None

    def using(
        self,
        *,
        max_attempts: int | None = None,
        timeout: float | None = None,
        key: str | None = None,
        concurrency_key: str | None = None,
        **options: Any,
    ) -> "HoldfastTask":
        """Create a new task with other options."""
        given = {
            "max_attempts": max_attempts,
            "timeout": timeout,
            "key": key,
            "concurrency_key": concurrency_key,
        }
        changed: HoldfastTask = base.Task.using(self, **options)  # super() fails in a class with slots
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return dataclasses.replace(changed, **changes) if changes else changed


def task(
    function: Callable[..., Any] | None = None,
    *,
    backend: str = base.DEFAULT_TASK_BACKEND_ALIAS,
    **options: Any,
) -> Any:
    """Django's decorator with the fields of HoldfastTask, which Django's own takes from 6.1 on."""

    def wrapper(f: Callable[..., Any]) -> Any:
        plain = {"priority": base.DEFAULT_TASK_PRIORITY, "queue_name": base.DEFAULT_TASK_QUEUE_NAME}
        kind = compat.load().task_backends[backend].task_class
        return kind(**plain | {"func": f, "backend": backend, "run_after": None} | options)

    return wrapper if function is None else wrapper(function)


class HoldfastBackend(compat.load(".backends.base").BaseTaskBackend):  # type: ignore[misc] # of either package
    """Enqueues on Django's connection. OPTIONS: DATABASE, MAX_ATTEMPTS (1) and TIMEOUT in seconds."""

    task_class = HoldfastTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.max_attempts: int = self.options.get("MAX_ATTEMPTS", 1)
        self.timeout: float | None = self.options.get("TIMEOUT")
        # Of its methods, only run_here is used, which waits as Django's connection does.
        self._client = DjangoClient(DjangoAddress(self.database), reply_seconds=30)

    def database(self) -> str:
        """The alias of the database."""
        return str(self.options.get("DATABASE") or default_alias())

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        if len(task.module_path.encode()) > MAX_TYPE_BYTES:
            raise compat.invalid_task(f"{task.module_path} is longer than {MAX_TYPE_BYTES} bytes.")
        if isinstance(task, HoldfastTask):
            _check_options(task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        enqueued = self._client.run_here(enqueue_one(self._new_task(task, args, kwargs)), "enqueue")
        result = self._read(enqueued.task_id, task)
        if enqueued.created:
            compat.load(".signals").task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        missing = compat.load(".exceptions").TaskResultDoesNotExist(result_id)
        try:
            task_id = UUID(str(result_id))
        except ValueError:
            raise missing from None
        result = self._read(task_id)
        if result is None:
            raise missing
        return result

    def check(self, **_: Any) -> Iterable[CheckMessage]:
        if not apps.is_installed("holdfast.contrib.django"):
            yield Error(
                f"The backend of TASKS[{self.alias!r}] needs its app.",
                hint='Add "holdfast.contrib.django" to INSTALLED_APPS.',
                id="holdfast.E004",
            )
        try:
            dsn_of(self.database())
        except ImproperlyConfigured as error:
            yield Error(str(error), hint="Name one in OPTIONS['DATABASE'].", id="holdfast.E002")
        for name in self.options.keys() - {"DATABASE", "MAX_ATTEMPTS", "TIMEOUT"}:
            yield Error(
                f"TASKS[{self.alias!r}]['OPTIONS'] has no {name!r}.",
                hint="The options are DATABASE, MAX_ATTEMPTS and TIMEOUT.",
                id="holdfast.E005",
            )
        for problem in _wrong_numbers(("MAX_ATTEMPTS", self.max_attempts), ("TIMEOUT", self.timeout)):
            yield Error(f"TASKS[{self.alias!r}]['OPTIONS']: {problem}", id="holdfast.E005")

    def _new_task(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
        timeout = getattr(task, "timeout", None) or self.timeout
        metadata = {BACKEND: self.alias, RUN_AFTER: run_after_text(task.run_after)}
        return NewTask(
            task.module_path,
            compat.normalize_json({"args": list(args), "kwargs": dict(kwargs)}),
            queue=task.queue_name,
            priority=int(task.priority),
            run_at=_aware(task.run_after),
            max_attempts=getattr(task, "max_attempts", None) or self.max_attempts,
            timeout=None if timeout is None else timedelta(seconds=timeout),
            idempotency_key=getattr(task, "key", None),
            concurrency_key=getattr(task, "concurrency_key", None),
            metadata={name: value for name, value in metadata.items() if value is not None},
        )

    def _read(self, task_id: UUID, known: Any = None) -> Any:
        """The result of a task of this backend, or None. `known` is the task that was just enqueued."""
        row: TaskStatus | None = run_in(self.database(), tasks.task_status(task_id), "get_result")
        if row is None or row.deleted_at is not None or (row.metadata or {}).get(BACKEND) != self.alias:
            return None
        return self.read_row(row, known)

    def read_row(self, row: TaskStatus, known: Any = None) -> Any:
        if known is None:
            declared = find_task(row.type)
            if declared is None:
                return None
            known = task_of(declared, row, self.alias, max_attempts=self.max_attempts, timeout=self.timeout)
        failed = row.error is not None
        errors = run_in(self.database(), tasks.task_errors(row.task_id), "get_result") if failed else []
        return result_of(self.alias, known, row, [error for error in errors if error.step is None])


def _check_options(task: HoldfastTask) -> None:
    for problem in _wrong_numbers(("max_attempts", task.max_attempts), ("timeout", task.timeout)):
        raise compat.invalid_task(problem)
    if task.backoff is not None and not callable(task.backoff) and not isinstance(task.backoff, RetryPolicy):
        raise compat.invalid_task(
            "backoff must be a function of an exception and a result, or a retry policy."
        )
    for name in ("key", "concurrency_key"):
        value = getattr(task, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise compat.invalid_task(f"{name} must be a text that is not empty.")


def _wrong_numbers(attempts: tuple[str, Any], timeout: tuple[str, Any]) -> Iterator[str]:
    """What is wrong with them, each under the name that its place gives it."""
    name, given = attempts
    if given is not None and (type(given) is not int or not 1 <= given <= MAX_ATTEMPTS):
        yield f"{name} must be a whole number between 1 and {MAX_ATTEMPTS}."
    name, given = timeout
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float) or given < 1):
        yield f"{name} must be a number of seconds, and at least 1."


def _aware(moment: datetime | None) -> datetime | None:
    """Without USE_TZ, a time has the project's time zone."""
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment
