"""How a run ended: each way has a kind of its own, with what the run printed last."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.executors.kept import Exit, signal_name
from holdfast.executors.output import Stream
from holdfast.limits import Limits, size_text

STOPPED = {
    "cancelled": ("killed_on_cancel", "the run was ended because its task was cancelled"),
    "deleted": ("killed_on_delete", "the run was ended because its task was deleted"),
    "lost": ("killed_on_loss", "the run was ended because the lease of its task was lost"),
    "shutdown": ("killed_on_shutdown", "the run was ended because the worker shuts down"),
}
"""Why a task is taken from a worker, and what is kept of it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run may take before it is ended."""

    timeout: float | None
    output: int
    grace: float
    limits: Limits

    @property
    def is_watched(self) -> bool:
        """Whether somebody has to look at what the whole family takes."""
        return self.limits.memory is not None or self.limits.processes is not None


@dataclass(frozen=True, slots=True)
class End:
    """With an answer, the run has told its end itself; without, kind and message say what was seen of it."""

    kind: str = ""
    message: str = ""
    answer: Mapping[str, Any] | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def judge(exit: Exit, why: str | None, bounds: Bounds) -> tuple[str, str]:  # noqa: A002 - it is one
    """Kind and message of an end without an answer. What we did ourselves explains what was seen."""
    cause = why or exit.why
    if cause in STOPPED:
        return STOPPED[cause]
    if cause is not None:
        return cause, _own_act(cause, bounds)
    if bounds.limits.memory is not None and exit.status and exit.memory > bounds.limits.memory:
        return "memory_limit", _own_act("memory_limit", bounds)
    if exit.signal is not None:
        return _signalled(exit.signal, bounds)
    if exit.exit_code:
        return "exit_code", f"the process ended with exit code {exit.exit_code}"
    return "envelope_missing", "the process ended with exit code 0 and without an envelope"


def described(exit: Exit, stdout: Stream, stderr: Stream) -> dict[str, Any]:  # noqa: A002 - it is one
    """What is kept of a process: how it ended, what it used, what it printed."""
    found: dict[str, Any] = {
        "exit_code": exit.exit_code,
        "signal": None if exit.signal is None else signal_name(exit.signal),
        "cpu_seconds": round(exit.cpu, 3),
        "max_memory_bytes": exit.memory,
    }
    return {**{name: value for name, value in found.items() if value is not None}, **printed(stdout, stderr)}


def printed(stdout: Stream, stderr: Stream) -> dict[str, Any]:
    """Nothing of a stream that holds nothing."""
    found: dict[str, Any] = {}
    for name, stream in (("stdout", stdout), ("stderr", stderr)):
        if stream.count:
            found |= {name: stream.text, f"{name}_bytes": stream.count}
    return found


def _own_act(cause: str, bounds: Bounds) -> str:
    limits = bounds.limits
    return {
        "timeout": f"the attempt took longer than its limit of {bounds.timeout or 0:g} s",
        "memory_limit": f"the run took more memory than its limit of {size_text(limits.memory or 0)}",
        "process_limit": f"the run started more than its limit of {limits.processes} processes",
        "output_limit": f"the run printed more than the {size_text(bounds.output)} allowed",
        "envelope_malformed": "what came in place of an envelope cannot be read",
        "keeper_died": "the process that looks after runs was killed, and the run with it",
    }.get(cause, cause)


def _signalled(number: int, bounds: Bounds) -> tuple[str, str]:
    limits, name = bounds.limits, signal_name(number)
    if number == signal.SIGXCPU and limits.cpu is not None:
        return "cpu_limit", f"the run used more than its limit of {limits.cpu:g} s of CPU time"
    if number == signal.SIGXFSZ and limits.file_size is not None:
        return "file_size_limit", f"the run wrote a file of more than {size_text(limits.file_size)}"
    if number == signal.SIGKILL:
        return "signal", f"the process was ended by {name}, which was not ours: was the system out of memory?"
    return "signal", f"the process was ended by {name}"
