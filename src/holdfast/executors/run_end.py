"""How a run ended: each way has a kind of its own, with what the run printed last."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.executors.spawner_client import ProcessExit, signal_name
from holdfast.resources import Resources, size_text

HEAD_BYTES = 2048
TAIL_BYTES = 6144
PASSED_ON_BYTES = 64 * 1024
CHUNK_BYTES = 64 * 1024

STOPPED = {
    "cancelled": ("killed_on_cancel", "the run was ended because its task was cancelled"),
    "deleted": ("killed_on_delete", "the run was ended because its task was deleted"),
    "lost": ("killed_on_loss", "the run was ended because the lease of its task was lost"),
    "shutdown": ("killed_on_shutdown", "the run was ended because the worker shuts down"),
}
"""Why a task is taken from a worker, and what is kept of it."""


@dataclass(frozen=True, slots=True)
class RunBounds:
    """What a run may take before it is ended."""

    timeout: float | None
    output: int
    grace: float
    resources: Resources

    @property
    def is_watched(self) -> bool:
        """Whether somebody has to look at what the whole family takes."""
        return self.resources.memory is not None or self.resources.processes is not None


class OutputStream:
    """One of stdout and stderr, read without waiting."""

    def __init__(
        self,
        descriptor: int,
        counted: Callable[[int], None],
        pass_on: Callable[[bytes], None],
        *,
        keep: int = 0,
    ) -> None:
        """So many bytes from its beginning are kept whole."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._counted = counted
        self._pass_on = pass_on
        self._keeps = keep
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.begin()
        self._loop.add_reader(descriptor, self._read)

    def begin(self) -> None:
        """Of another run."""
        self.count = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._whole = bytearray()

    def drain(self) -> None:
        """Read what is there by now."""
        while self._read():
            pass

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    @property
    def whole(self) -> bytes:
        return bytes(self._whole)

    @property
    def text(self) -> str:
        """With what it could not be decoded, or was left out, marked."""
        left_out = self.count - len(self._head) - len(self._tail)
        between = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        return (self._head + between + self._tail).decode(errors="replace")

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, CHUNK_BYTES) if self._open else b""
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._pass_on(data[: max(0, PASSED_ON_BYTES - self.count)])
        self.count += len(data)
        self._whole += data[: self._keeps - len(self._whole)]
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-TAIL_BYTES:]
        del self._tail[:-TAIL_BYTES]
        self._counted(len(data))


@dataclass(frozen=True, slots=True)
class RunEnd:
    """With an answer, the run has told its end itself; without, kind and message say what was seen of it."""

    kind: str = ""
    message: str = ""
    answer: Mapping[str, Any] | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def judge(exit: ProcessExit, why: str | None, bounds: RunBounds) -> tuple[str, str]:  # noqa: A002 - it is one
    """Kind and message of an end without an answer. What we did ourselves explains what was seen."""
    cause = why or exit.why
    if cause in STOPPED:
        return STOPPED[cause]
    if cause is not None:
        return cause, _own_act(cause, bounds)
    if bounds.resources.memory is not None and exit.status and exit.memory > bounds.resources.memory:
        return "memory_limit", _own_act("memory_limit", bounds)
    if exit.signal is not None:
        return _signalled(exit.signal, bounds)
    if exit.exit_code:
        return "exit_code", f"the process ended with exit code {exit.exit_code}"
    return "envelope_missing", "the process ended with exit code 0 and without an envelope"


def described(exit: ProcessExit, stdout: OutputStream, stderr: OutputStream) -> dict[str, Any]:  # noqa: A002 - it is one
    """What is kept of a process: how it ended, what it used, what it printed."""
    found: dict[str, Any] = {
        "exit_code": exit.exit_code,
        "signal": None if exit.signal is None else signal_name(exit.signal),
        "cpu_seconds": round(exit.cpu, 3),
        "max_memory_bytes": exit.memory,
    }
    return {**{name: value for name, value in found.items() if value is not None}, **printed(stdout, stderr)}


def printed(stdout: OutputStream, stderr: OutputStream) -> dict[str, Any]:
    """Nothing of a stream that holds nothing."""
    found: dict[str, Any] = {}
    for name, stream in (("stdout", stdout), ("stderr", stderr)):
        if stream.count:
            found |= {name: stream.text, f"{name}_bytes": stream.count}
    return found


def _own_act(cause: str, bounds: RunBounds) -> str:
    limits = bounds.resources
    return {
        "timeout": f"the attempt took longer than its limit of {bounds.timeout or 0:g} s",
        "memory_limit": f"the run took more memory than its limit of {size_text(limits.memory or 0)}",
        "process_limit": f"the run started more than its limit of {limits.processes} processes",
        "output_limit": f"the run printed more than the {size_text(bounds.output)} allowed",
        "envelope_malformed": "what came in place of an envelope cannot be read",
        "spawner_died": "the process that looks after runs was killed, and the run with it",
    }.get(cause, cause)


def _signalled(number: int, bounds: RunBounds) -> tuple[str, str]:
    limits, name = bounds.resources, signal_name(number)
    if number == signal.SIGXCPU and limits.cpu is not None:
        return "cpu_limit", f"the run used more than its limit of {limits.cpu:g} s of CPU time"
    if number == signal.SIGXFSZ and limits.file_size is not None:
        return "file_size_limit", f"the run wrote a file of more than {size_text(limits.file_size)}"
    if number == signal.SIGKILL:
        return "signal", f"the process was ended by {name}, which was not ours: was the system out of memory?"
    return "signal", f"the process was ended by {name}"
