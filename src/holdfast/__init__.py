"""Durable work on Postgres, in Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.context import Context
    from holdfast.errors import TaskCancelled, TaskFailed
    from holdfast.handle import Handle
    from holdfast.outcome import Cancel, Fail, Snooze
    from holdfast.resources import Resources
    from holdfast.retry import ByException, Exponential, Linear, Never
    from holdfast.task import Task

__all__ = [
    "App",
    "ByException",
    "Cancel",
    "Context",
    "Exponential",
    "Fail",
    "Handle",
    "Linear",
    "Never",
    "Resources",
    "Snooze",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "App": "app",
    "ByException": "retry",
    "Cancel": "outcome",
    "Context": "context",
    "Exponential": "retry",
    "Fail": "outcome",
    "Handle": "handle",
    "Linear": "retry",
    "Never": "retry",
    "Resources": "resources",
    "Snooze": "outcome",
    "Task": "task",
    "TaskCancelled": "errors",
    "TaskFailed": "errors",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: a driver and models take a while, and not everybody needs them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
