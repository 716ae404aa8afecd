"""Runs outside the worker's process: their bounds, and how they ended."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdfast._serialization.failure import error_of, fitted
from holdfast._worker.executor import ExecutorTask
from holdfast._worker.report import AttemptEnd
from holdfast.isolation.run_output import OutputStream, describe_output
from holdfast.isolation.spawner_client import ProcessExit, signal_name
from holdfast.resources import Resources, size_text
from holdfast.retry import RetryPolicy, next_delay

SHUTDOWN_GRACE = 1.0
LEASE_MARGIN = 0.5

STOPPED = {
    "cancelled": ("killed_on_cancel", "the run was ended because its task was cancelled"),
    "deleted": ("killed_on_delete", "the run was ended because its task was deleted"),
    "lost": ("killed_on_loss", "the run was ended because the lease of its task was lost"),
    "shutdown": ("killed_on_shutdown", "the run was ended because the worker shuts down"),
}
"""Why a worker stops a run: the kind and the message that are stored."""

A = TypeVar("A")


class RunFailed(Exception):
    """The error that a retry policy is given when a run ended without an answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class RunBounds:
    """What a run may use before it is ended."""

    timeout: float | None
    output: int
    grace: float
    resources: Resources

    @property
    def is_watched(self) -> bool:
        """Whether the spawner has to measure the whole process tree."""
        return self.resources.memory is not None or self.resources.processes is not None


@dataclass(frozen=True, slots=True)
class RunEnd(Generic[A]):
    """With an answer, the run itself told how it ended; otherwise kind and message say what was observed.

    A child process returns an AttemptEnd, a command an Envelope.
    """

    kind: str = ""
    message: str = ""
    answer: A | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_error(self) -> dict[str, Any]:
        return {**error_of(self.kind, self.message), **fitted(self.detail)}

    def as_attempt_end(self, retry: RetryPolicy, attempt: int) -> AttemptEnd:
        """The end of an attempt whose run has no answer."""
        delay = next_delay(retry, attempt, RunFailed(self.kind, self.message))
        if delay is None:
            return AttemptEnd("failed", error=self.as_error())
        return AttemptEnd("retry", error=self.as_error(), delay=delay)


def reason_to_stop(job: ExecutorTask, bounds: RunBounds) -> tuple[str, float]:
    """Why a run has to end, and the seconds it has: another worker must not start the task before."""
    why = job.stop or "shutdown"
    lease_left = job.lease_ends - time.monotonic() - LEASE_MARGIN
    grace = {"shutdown": min(bounds.grace, SHUTDOWN_GRACE), "lost": min(bounds.grace, lease_left)}.get(
        why, bounds.grace
    )
    return why, max(0.0, grace)


def judge(exited: ProcessExit, why: str | None, bounds: RunBounds) -> tuple[str, str]:
    """The kind and message of an end without an answer. What the worker did explains what was observed."""
    cause = why or exited.why
    if cause in STOPPED:
        return STOPPED[cause]
    if cause is not None:
        return cause, _cause_text(cause, bounds)
    if bounds.resources.memory is not None and exited.status and exited.memory > bounds.resources.memory:
        return "memory_limit", _cause_text("memory_limit", bounds)
    if exited.signal is not None:
        return _signalled(exited.signal, bounds)
    if exited.exit_code:
        return "exit_code", f"the process ended with exit code {exited.exit_code}"
    return "envelope_missing", "the process ended with exit code 0 and without an envelope"


def describe_exit(exited: ProcessExit, stdout: OutputStream, stderr: OutputStream) -> dict[str, Any]:
    """How a process ended, what it used and what it printed."""
    found: dict[str, Any] = {
        "exit_code": exited.exit_code,
        "signal": None if exited.signal is None else signal_name(exited.signal),
        "cpu_seconds": round(exited.cpu, 3),
        "max_memory_bytes": exited.memory,
    }
    known = {name: value for name, value in found.items() if value is not None}
    return {**known, **describe_output(stdout, stderr)}


def _cause_text(cause: str, bounds: RunBounds) -> str:
    resources = bounds.resources
    return {
        "timeout": f"the attempt took longer than its limit of {bounds.timeout or 0:g} s",
        "memory_limit": f"the run took more memory than its limit of {size_text(resources.memory or 0)}",
        "process_limit": f"the run started more than its limit of {resources.processes} processes",
        "output_limit": f"the run printed more than the {size_text(bounds.output)} allowed",
        "envelope_malformed": "what came in place of an envelope cannot be read",
        "spawner_died": "the worker's spawner was killed, and the run with it",
    }.get(cause, cause)


def _signalled(number: int, bounds: RunBounds) -> tuple[str, str]:
    resources, name = bounds.resources, signal_name(number)
    if number == signal.SIGXCPU and resources.cpu is not None:
        return "cpu_limit", f"the run used more than its limit of {resources.cpu:g} s of CPU time"
    if number == signal.SIGXFSZ and resources.file_size is not None:
        return "file_size_limit", f"the run wrote a file of more than {size_text(resources.file_size)}"
    if number == signal.SIGKILL:
        return "signal", f"another process ended the run with {name}: was the system out of memory?"
    return "signal", f"the process was ended by {name}"
