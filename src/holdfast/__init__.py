"""Durable work on Postgres, in Python."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

__version__ = "0.2.0"

_MODULES = {
    "app": ("App",),
    "batch": ("Batch",),
    "context": (
        "Context",
        "SyncContext",
    ),
    "errors": (
        "DatabaseUnavailable",
        "HoldfastError",
        "InvalidArgument",
        "InvalidState",
        "KeyConflict",
        "NotAllowed",
        "NotFound",
        "PartialBatchError",
        "QuotaExceeded",
        "StepFailed",
        "TaskCancelled",
        "TaskFailed",
        "TransactionConflict",
    ),
    "handle": (
        "Handle",
        "TaskInfo",
    ),
    "middleware": ("Middleware",),
    "outcome": (
        "Cancel",
        "Fail",
        "Retry",
        "Snooze",
    ),
    "resources": ("Resources",),
    "retry": (
        "ByException",
        "Exponential",
        "Linear",
        "NoRetry",
        "RetryPolicy",
    ),
    "task": ("Task",),
}
"""The public names of each module, which is loaded when one is first used. Type checkers read the stub."""

_WITH_LIBPQ = ("psycopg_binary", "psycopg_c")  # they bring libpq, or are linked to it

# Not where the driver is absent altogether: a program without site-packages starts the child processes.
if find_spec("psycopg") and not any(map(find_spec, _WITH_LIBPQ)):
    try:
        import_module("psycopg")
    except ImportError as error:
        raise ImportError(
            "Holdfast needs libpq, the client library of PostgreSQL. Install it from your system "
            "(libpq5 on Debian), or with the driver: pip install 'holdfast-pg[binary]'",
            name="psycopg",
        ) from error

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604 - the names are those above


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the driver and pydantic take time that not every program needs."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = getattr(import_module(f"holdfast.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found
