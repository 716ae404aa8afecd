"""Durable work on Postgres, in Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.context import Context, SyncContext
    from holdfast.errors import (
        DatabaseUnavailable,
        HoldfastError,
        KeyConflict,
        StepFailed,
        TaskCancelled,
        TaskFailed,
    )
    from holdfast.handle import Handle, TaskInfo
    from holdfast.middleware import Middleware
    from holdfast.outcome import Cancel, Fail, Retry, Snooze
    from holdfast.resources import Resources
    from holdfast.retry import ByException, Exponential, Linear, NoRetry, RetryPolicy
    from holdfast.task import Task

__all__ = [
    "App",
    "ByException",
    "Cancel",
    "Context",
    "DatabaseUnavailable",
    "Exponential",
    "Fail",
    "Handle",
    "HoldfastError",
    "KeyConflict",
    "Linear",
    "Middleware",
    "NoRetry",
    "Resources",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "StepFailed",
    "SyncContext",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskInfo",
    "__version__",
]

__version__ = "0.2.0"

_MODULES = {
    "App": "app",
    "ByException": "retry",
    "Cancel": "outcome",
    "Context": "context",
    "DatabaseUnavailable": "errors",
    "Exponential": "retry",
    "Fail": "outcome",
    "Handle": "handle",
    "HoldfastError": "errors",
    "KeyConflict": "errors",
    "Resources": "resources",
    "Linear": "retry",
    "Middleware": "middleware",
    "NoRetry": "retry",
    "Retry": "outcome",
    "RetryPolicy": "retry",
    "Snooze": "outcome",
    "StepFailed": "errors",
    "SyncContext": "context",
    "Task": "task",
    "TaskCancelled": "errors",
    "TaskFailed": "errors",
    "TaskInfo": "handle",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the driver and pydantic take time that not every program needs."""
    if name not in _MODULES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = getattr(import_module(f"holdfast.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
