"""Errors of runs and their steps: as they are recorded, and as a handler gets them."""

from typing import Any

from holdfast.errors import (
    HoldfastError,
    ResultError,
    RunTooLong,
    StepFailed,
    StepResultMismatch,
    UnexpectedDatabaseError,
)


def brief_error(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in ("kind", "message", "exception") if name in described}


def failed_step(name: str, error: dict[str, Any]) -> StepFailed:
    return StepFailed(
        f"the step {name} failed: {error.get('message') or 'no message'}",
        step=name,
        kind=str(error.get("kind") or "handler_error"),
        exception=error.get("exception"),
        arguments=error.get("arguments"),
    )


def failure_of(name: str, kind: str, recorded: Any) -> Exception:
    """The error of a step that is recorded as failed."""
    error = recorded if isinstance(recorded, dict) else {"message": str(recorded)}
    if error.get("kind") == "timeout" and kind in ("signal", "children", "first"):
        return timed_out(name, kind)
    return failed_step(name, error)


def timed_out(name: str, kind: str) -> TimeoutError:
    """The error of a wait, or of a join, that took too long."""
    if kind == "signal":
        return TimeoutError(f"no signal came for {name} in time")
    return TimeoutError(f"the tasks of {name} did not end in time")


def shape_changed(name: str, kind: str, error: ResultError) -> StepResultMismatch:
    """The error of a step whose recorded result does not fit the type that the code names."""
    if kind == "signal":
        message = f"the signal that {name} has taken does not fit: {error.message}"
        return StepResultMismatch(
            message, hint="Catch StepResultMismatch and wait again, or deploy code that reads it."
        )
    message = f"the step {name} was recorded with a result that does not fit: {error.message}"
    return StepResultMismatch(message, hint="Deploy code that reads it, pass adapt=, or rename the step.")


def unreadable(kind: str | None, why: str | None) -> HoldfastError:
    """The error with which a run fails that the database refuses to read."""
    message = f"what the run remembers cannot be read: {why}"
    if kind == "too_large":
        return RunTooLong(message, hint="Return references from its steps and tasks, and begin it again.")
    return UnexpectedDatabaseError(message)
