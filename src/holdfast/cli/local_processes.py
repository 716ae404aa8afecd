"""The child processes of `holdfast up` and `holdfast dev`, and the one log that all parts write to."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO

from holdfast.errors import DatabaseUnavailable, TransactionConflict

STOP_SECONDS = 15.0
RESTART_SECONDS = 1.0
OUTPUT_SECONDS = 2.0
_COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()"]
_STUCK = 70
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RESTARTED = (DatabaseUnavailable.exit_code, TransactionConflict.exit_code, _STUCK)


class Log:
    """Writes whole lines to standard error, each with the name of the part that it comes from."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream or sys.stderr
        self._colours = self._stream.isatty()
        self._lock = threading.Lock()

    def write(self, part: str, line: str) -> None:
        text = line if self._colours else _COLOUR.sub("", line)
        with self._lock, contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            self._stream.write(f"{part:<8} | {text}\n")
            self._stream.flush()

    def stream(self, part: str) -> "PartStream":
        return PartStream(self, part)


class PartStream:
    """A text stream for the logger of a part that runs in this process."""

    def __init__(self, log: Log, part: str) -> None:
        self._log = log
        self._part = part

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._log.write(self._part, line)
        return len(text)

    def flush(self) -> None:
        """Every line is flushed."""

    def isatty(self) -> bool:
        return False


@dataclass(frozen=True)
class Part:
    """A command that runs as a child process."""

    name: str
    command: tuple[str, ...]
    reloads: bool = False
    """Started again when the code changes; if the code cannot be loaded, it waits for the next change."""


@dataclass(frozen=True)
class Exited:
    part: Part
    process: "subprocess.Popen[str]"
    code: int


class LocalProcesses:
    """Starts the parts, starts those that reload again, and ends all of them.

    One thread does all of it, and it ends last: Linux ends a child process together with the thread that has
    started it.
    """

    def __init__(
        self,
        parts: tuple[Part, ...],
        log: Log,
        *,
        stop_all: Callable[[], None],
        stop_seconds: float = STOP_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.lost: list[str] = []
        self._parts = parts
        self._log = log
        self._stop_all = stop_all
        self._stop_seconds = stop_seconds
        self._environment = dict(environment or {})
        self._events: SimpleQueue[Exited | list[str] | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._running: dict[Part, subprocess.Popen[str]] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._supervise, name="processes", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._events.put(None)
            thread.join()

    def changed(self, paths: list[str]) -> None:
        """The code has changed."""
        self._events.put(paths)

    def _supervise(self) -> None:
        try:
            for part in self._parts:
                self._start(part)
            while (event := self._events.get()) is not None and not self._stopping.is_set():
                if isinstance(event, Exited):
                    self._after_exit(event)
                else:
                    self._reload(event)
        except Exception as error:  # noqa: BLE001 - without this thread nothing would be watched any more
            self._lose(repr(error))
        finally:
            self._end(list(self._running))

    def _start(self, part: Part) -> None:
        """Start it in its own process group, so that Ctrl-C reaches only this process."""
        process = subprocess.Popen(
            [*_COMMAND, *part.command],
            process_group=0,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
        )
        self._running[part] = process
        threading.Thread(target=self._wait, args=(part, process), daemon=True).start()

    def _wait(self, part: Part, process: "subprocess.Popen[str]") -> None:
        """Copy its output to the log, until it has exited."""
        reading = threading.Thread(target=self._copy, args=(part.name, process.stdout), daemon=True)
        reading.start()
        code = process.wait()
        reading.join(OUTPUT_SECONDS)  # a program that a handler has started may keep the pipe open
        self._events.put(Exited(part, process, code))

    def _copy(self, name: str, output: IO[str]) -> None:
        with contextlib.suppress(OSError, ValueError), output:
            for line in output:
                self._log.write(name, line.rstrip("\n"))

    def _after_exit(self, exited: Exited) -> None:
        part, code = exited.part, exited.code
        if self._running.get(part) is not exited.process:
            return  # ended by us
        del self._running[part]
        if not part.reloads:
            self._lose(f"holdfast {part.command[0]} exited ({_describe(code)})")
        elif code < 0 or code in _RESTARTED:
            self._log.write(part.name, f"The {part.name} exited ({_describe(code)}) and is started again.")
            if not self._stopping.wait(RESTART_SECONDS):
                self._start(part)
        else:
            self._log.write(
                part.name,
                f"The {part.name} exited ({_describe(code)}). No {part.name} runs until you change a file.",
            )

    def _reload(self, paths: list[str]) -> None:
        named = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")  # noqa: PLR2004 - enough
        for part in self._parts:
            if not part.reloads:
                continue
            self._log.write(part.name, f"{named} changed: the {part.name} is started again.")
            self._end([part])
            if not self._stopping.is_set():
                self._start(part)

    def _end(self, parts: list[Part]) -> None:
        """SIGTERM to all of them: a worker finishes its tasks or gives them back within its grace period."""
        ending = [(part, self._running.pop(part)) for part in parts if part in self._running]
        for _, process in ending:
            process.terminate()
        for part, process in ending:
            try:
                process.wait(self._stop_seconds)
            except subprocess.TimeoutExpired:
                self._log.write(part.name, f"The {part.name} did not end in time and is killed.")
                process.kill()
                process.wait()

    def _lose(self, what: str) -> None:
        self.lost.append(what)
        self._stop_all()


def _describe(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
