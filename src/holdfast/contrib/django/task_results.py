"""Rows of the engine as results of `django.tasks`."""

import dataclasses
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.apps import apps
from django.utils.dateparse import parse_datetime
from django.utils.module_loading import import_string

from holdfast._engine.tasks import TaskError, TaskStatus
from holdfast.contrib.django import compat

BACKEND = "django_backend"
"""The member of a task's metadata that names its backend. Other tasks have none."""
RUN_AFTER = "django_run_after"

_STATUSES = {
    "scheduled": "READY",
    "pending": "READY",
    "retrying": "READY",
    "suspended": "READY",
    "claimed": "RUNNING",
    "running": "RUNNING",
    "succeeded": "SUCCESSFUL",
}
_WITHOUT_EXCEPTION = {"timeout": "builtins.TimeoutError"}
_OTHERWISE = "holdfast.errors.TaskFailed"
_CANCELLED = "holdfast.errors.TaskCancelled"


def find_task(path: str) -> Any:
    """The task with this module path, or None.

    The path comes from the database, and importing a module runs it. So only modules that are loaded already
    or belong to an installed app are imported.
    """
    module = path.rpartition(".")[0]
    packages = tuple(f"{config.name}." for config in apps.get_app_configs())
    if module not in sys.modules and not f"{module}.".startswith(packages):
        return None
    try:
        found = import_string(path)
    except ImportError:
        return None
    if isinstance(found, compat.load(".base").Task):
        return found
    logging.getLogger("django.security.SuspiciousOperation").warning("%s is not a task of django.tasks", path)
    return None


def result_of(alias: str, declared: Any, row: TaskStatus, errors: Sequence[TaskError]) -> Any:
    """The TaskResult of a row, for a task that was declared or given."""
    base = compat.load(".base")
    payload = row.payload if isinstance(row.payload, dict) else {}
    starts = [error.started_at or error.claimed_at for error in errors]
    last = row.started_at or row.claimed_at
    ended = row.status in ("failed", "dead_letter", "cancelled")
    result = base.TaskResult(
        task=declared,
        id=str(row.task_id),
        status=base.TaskResultStatus[_STATUSES.get(row.status, "FAILED")],
        enqueued_at=row.created_at,
        started_at=next((start for start in (*starts, last) if start is not None), None),
        finished_at=row.finished_at,
        last_attempted_at=last or next((start for start in reversed(starts) if start is not None), None),
        args=payload.get("args", []),
        kwargs=payload.get("kwargs", {}),
        backend=alias,
        errors=[error_of(error) for error in errors] + _cancellation(row),
        worker_ids=_worker_ids(row, errors, running_or_done=last is not None and not ended),
    )
    if row.status == "succeeded":
        object.__setattr__(result, "_return_value", row.result)
    return result


def task_of(declared: Any, row: TaskStatus, alias: str, *, max_attempts: int, timeout: float | None) -> Any:
    """The declared task with the options of this row. What the declaration gives anyway stays as it is."""
    metadata = row.metadata or {}
    run_after = metadata.get(RUN_AFTER)
    given = {
        "priority": row.priority,
        "queue_name": row.queue,
        "backend": alias,
        "run_after": parse_datetime(run_after) if run_after else None,
        "key": row.idempotency_key,
        "concurrency_key": row.concurrency_key,
    }
    if row.max_attempts != (getattr(declared, "max_attempts", None) or max_attempts):
        given["max_attempts"] = row.max_attempts
    seconds = None if row.timeout is None else row.timeout.total_seconds()
    if seconds != (getattr(declared, "timeout", None) or timeout):
        given["timeout"] = seconds
    known = {field.name for field in dataclasses.fields(declared)}
    changes = {
        name: value for name, value in given.items() if name in known and getattr(declared, name) != value
    }
    return dataclasses.replace(declared, **changes) if changes else declared


def error_of(error: TaskError) -> Any:
    detail = error.detail if isinstance(error.detail, dict) else {}
    exception = detail.get("exception") or _WITHOUT_EXCEPTION.get(error.kind, _OTHERWISE)
    return compat.load(".base").TaskError(
        exception_class_path=exception, traceback=detail.get("traceback") or error.message
    )


def run_after_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _cancellation(row: TaskStatus) -> list[Any]:
    if row.status != "cancelled":
        return []
    reason = row.reason or "the task was cancelled"
    return [compat.load(".base").TaskError(exception_class_path=_CANCELLED, traceback=reason)]


def _worker_ids(row: TaskStatus, errors: Sequence[TaskError], *, running_or_done: bool) -> list[str]:
    """One for each attempt: those that failed, and the one that runs or has succeeded."""
    failed = [error.worker_id or "" for error in errors]
    return [*failed, row.worker_id or ""] if running_or_done else failed
