"""The program of a child process: runs handlers of the application, one at a time.

The spawner starts it as `python -m holdfast.isolation.child_program`, with the worker's socket as
descriptor 3. Only messages are written there; the output of handlers goes to stdout and stderr. The worker
may kill the child process at any time.
"""

import asyncio
import contextlib
import faulthandler
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast._serialization.failure import describe
from holdfast._telemetry.logs import configure, name_worker
from holdfast._worker.app_import import Origin, load
from holdfast._worker.report import AttemptEnd
from holdfast._workflows.ends import Stopped
from holdfast._workflows.memory import DEFAULT_MAX_RESULT_BYTES, RunReport
from holdfast.isolation.child_attempt import ChildApplication, ChildAttempt, ChildAttempts
from holdfast.isolation.child_messages import (
    ANSWER,
    PROGRESS,
    READY,
    RECORD,
    REFUSED,
    MalformedMessage,
    MessageLimits,
    encode,
    end_fields,
    report_fields,
    split,
)
from holdfast.isolation.child_protocol import MessageReader
from holdfast.isolation.process_tree import IS_LINUX, PAGE

if TYPE_CHECKING:
    from holdfast.isolation.ray_attempt import RayAttempts

CHANNEL = 3
PROGRESS_SECONDS = 0.1
EXIT_FAILED = 70  # EX_SOFTWARE of sysexits.h


class MessageWriter:
    """Sends messages to the worker. Progress is sent at most ten times a second, and only the latest."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.limits = MessageLimits(DEFAULT_MAX_RESULT_BYTES)
        self._lock = threading.Lock()
        self._attempt: ChildAttempt | None = None
        self._has_progress = threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, kind: bytes, fields: dict[str, Any], texts: Sequence[str] = ()) -> None:
        """Raises MalformedMessage if it is too long for a message."""
        written = encode(kind, fields, texts, self.limits)
        with self._lock:
            self._channel.sendall(written)

    def send_progress(self, attempt: ChildAttempt) -> None:
        self._attempt = attempt
        self._has_progress.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-progress", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._has_progress.wait()
            self._has_progress.clear()
            attempt = self._attempt
            if attempt is not None and not attempt.is_over:
                self.send(PROGRESS, {**(attempt.progress or {}), "run": attempt.run})
            time.sleep(PROGRESS_SECONDS)


class ChildProgram:
    """Runs attempts in the main thread. Messages that come during an attempt are read when a signal comes."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._reader = MessageReader()
        self._writer = MessageWriter(channel)
        self._orders: deque[dict[str, Any]] = deque()
        self._replies: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._questions = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_reading = False
        self._attempt: ChildAttempt | None = None
        self._pid = os.getpid()
        self._memory = ProcessMemory()

    def serve(self) -> None:
        """Run until the worker stops an attempt or is gone."""
        attempts = self._load_application(self._next_order())
        signal.signal(signal.SIGTERM, self._on_term)
        # Prints the stack of the handler to stderr, even if that hangs in C.
        faulthandler.register(signal.SIGTERM, all_threads=False, chain=True)
        self._writer.send(READY, {})
        while "stop" not in (order := self._next_order()):
            self._attempt = attempt = ChildAttempt(order, self._writer.send_progress)
            end = attempts.run(attempt)
            if os.getpid() != self._pid:  # the handler has forked, and its copy returned here
                os._exit(0)
            attempt.is_over = True
            if end is not None and end.report is not None:
                end = self._record_first(attempt, end, end.report)
            self._attempt = None
            self._replies.clear()
            _flush()
            self._answer(attempt, end)
            if attempt.stop is not None:
                return

    def _record_first(self, attempt: ChildAttempt, end: AttemptEnd, report: RunReport) -> AttemptEnd:
        """Record the steps that do not fit into the answer, and return what the answer is then."""
        *parts, end.report = split(report, self.limits)
        for part in parts:
            texts: list[str] = []
            replies: list[dict[str, Any]] = []
            fields = {"lazy": False, "report": report_fields(part, texts)}
            self.ask(RECORD, fields, texts, replies.append)
            while not replies:
                if attempt.stop is not None:
                    return end
                self.pump()
            if replies[0]["verdict"] not in ("recorded", "already"):
                why = replies[0]["error"] or replies[0]["verdict"]
                return AttemptEnd.retry(
                    attempt.attempt, "handler_error", f"its steps are not recorded: {why}"
                )
        return end

    def _answer(self, attempt: ChildAttempt, end: AttemptEnd | None) -> None:
        about = {"run": attempt.run, "left": _has_children(), "memory": self._memory.now()}
        texts: list[str] = []
        try:
            self._writer.send(ANSWER, {**about, **end_fields(end, texts, self.limits)}, texts)
        except MalformedMessage as error:
            failed = AttemptEnd.failed("result_not_serializable", f"the worker would not take it: {error}")
            self._writer.send(ANSWER, {**about, **end_fields(failed, [], self.limits)})

    def _load_application(self, boot: dict[str, Any]) -> "ChildAttempts | RayAttempts":
        sys.path[:] = boot["path"]
        self._writer.limits = MessageLimits(boot["max_result_bytes"])
        try:
            application: ChildApplication = load(Origin(**boot["origin"]))
            configure(boot["log_format"], boot["log_level"], terminal=boot["terminal"])
            name_worker(boot["worker_id"])
        except BaseException as error:  # noqa: BLE001 - a module may raise anything when it is imported
            _flush()
            self._writer.send(REFUSED, {"why": describe(error)})
            os._exit(EXIT_FAILED)
        if boot["on_ray"]:
            from holdfast.isolation.ray_attempt import RayAttempts  # noqa: PLC0415 - few need it

            return RayAttempts(application, boot)
        return ChildAttempts(application, self)

    @property
    def limits(self) -> MessageLimits:
        return self._writer.limits

    def tell(self, kind: bytes, fields: dict[str, Any]) -> None:
        assert self._attempt is not None  # noqa: S101 - only a handler has something to tell
        self._writer.send(kind, {"run": self._attempt.run, **fields})

    def ask(
        self,
        kind: bytes,
        fields: dict[str, Any],
        texts: Sequence[str],
        reply: Callable[[dict[str, Any]], None],
    ) -> None:
        """A question of the attempt to the worker."""
        attempt = self._attempt
        assert attempt is not None  # noqa: S101 - only a handler asks
        number = next(self._questions)
        self._replies[number] = reply
        try:
            self._writer.send(kind, {"ask": number, "run": attempt.run, **fields}, texts)
        except MalformedMessage as error:
            del self._replies[number]
            why = f"a child process cannot send this to its worker: {error}"
            reply({"verdict": "refused", "task_ids": [], "error": why})

    def pump(self) -> None:
        self._read()
        self._stop_if_told()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read in this event loop until `detach`."""
        self._loop = loop
        loop.add_reader(self._channel, self._read_in_loop)

    def detach(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._channel)
            self._loop = None

    def _read_in_loop(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._read(socket.MSG_DONTWAIT)
        self._stop_if_told()

    def _read(self, flags: int = 0) -> None:
        """Not to be entered by a signal: its bytes would be put before those that were just received."""
        self._is_reading = True
        try:
            data = self._channel.recv(65536, flags)
            if not data:
                os._exit(EXIT_FAILED)
            for message in self._reader.feed(data):
                if "reply" in message:
                    self._replies.pop(message["reply"], _ignore)(message)
                else:
                    self._orders.append(message)
        finally:
            self._is_reading = False

    def _next_order(self) -> dict[str, Any]:
        while not self._orders:
            self._read()
        return self._orders.popleft()

    def _on_term(self, *_: object) -> None:
        """End the attempt if the worker says so. A signal sent to a whole service is meant for the worker."""
        if self._attempt is None or os.getpid() != self._pid or self._is_reading:
            return  # who reads looks for the order
        with contextlib.suppress(BlockingIOError):
            self._read(socket.MSG_DONTWAIT)
        self._stop_if_told()

    def _stop_if_told(self) -> None:
        attempt = self._attempt
        if attempt is None or attempt.stop is not None:
            return
        reason = next((order["stop"] for order in self._orders if "stop" in order), None)
        if reason is None:
            return
        attempt.stop = reason
        if attempt.cancel is not None:
            attempt.cancel()
        elif attempt.is_interruptible:
            raise Stopped(reason)


class ProcessMemory:
    """The resident memory of this process. The file stays open: it is read after every attempt."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC) if IS_LINUX else None

    def now(self) -> int:
        if self._statm is None:
            return 0
        try:
            return int(os.pread(self._statm, 100, 0).split()[1]) * PAGE
        except OSError:  # a handler has closed descriptors that are not its own
            return 0


def _ignore(message: object) -> None:
    """An answer to a question of an attempt that is over."""
    del message


def _has_children() -> bool:
    """Whether a process that a run has started is still alive. Dead ones are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def main() -> None:
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        # Line by line, so that the last lines before a crash are not lost.
        stream.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    channel = socket.socket(fileno=CHANNEL)
    channel.set_inheritable(False)
    try:
        ChildProgram(channel).serve()
        code = 0
    except OSError:  # the worker is gone
        code = EXIT_FAILED
    # Not sys.exit: threads that handlers have left behind must not delay the end.
    _flush()
    os._exit(code)


if __name__ == "__main__":
    main()
