"""The program of a child process: runs handlers of the application, one at a time.

The spawner starts it as `python -m holdfast.executors.child_program`, with the worker's socket as
descriptor 3. Only messages are written there; the output of handlers goes to stdout and stderr. The worker
may kill the child process at any time.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from holdfast.context import Stopped
from holdfast.executors import origin
from holdfast.executors.attempt import Application, Attempt, Attempts
from holdfast.executors.child_protocol import Frames, frame
from holdfast.executors.process_tree import IS_LINUX, PAGE
from holdfast.logs import configure, name_worker
from holdfast.serialization.failure import describe

CHANNEL = 3
PROGRESS_SECONDS = 0.1
IN_VAIN = 70  # EX_SOFTWARE of sysexits.h


class MessageWriter:
    """What is said to the worker. Of progress, only the last word in a tenth of a second."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._attempt: Attempt | None = None
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            self._channel.sendall(frame(message))

    def tell_progress(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._news.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._tell_progress, name="holdfast-progress", daemon=True)
            self._thread.start()

    def _tell_progress(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            attempt = self._attempt
            if attempt is not None and not attempt.is_over:
                self.say({"progress": attempt.progress, "run": attempt.run})
            time.sleep(PROGRESS_SECONDS)


class ChildProgram:
    """One thread: what the worker says during a run is read when its signal comes."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._frames = Frames()
        self._writer = MessageWriter(channel)
        self._orders: deque[dict[str, Any]] = deque()
        self._attempt: Attempt | None = None
        self._pid = os.getpid()
        self._memory = ProcessMemory()

    def serve(self) -> None:
        """Until stopped, or until the worker is gone."""
        attempts = self._prepare(self._next())
        signal.signal(signal.SIGTERM, self._on_term)
        # Leaves in stderr where the run is, even if that hangs in C.
        faulthandler.register(signal.SIGTERM, all_threads=False, chain=True)
        self._writer.say({"ready": True})
        while "stop" not in (order := self._next()):
            self._attempt = attempt = Attempt(order, self._writer.tell_progress)
            answer = attempts.run(attempt)
            if os.getpid() != self._pid:  # a handler has forked, and its copy came back here
                os._exit(0)
            attempt.is_over = True
            self._attempt = None
            _flush()
            left = _has_children()
            self._writer.say(
                {"answer": answer, "run": attempt.run, "left": left, "memory": self._memory.now()}
            )
            if attempt.stop is not None:
                return

    def _prepare(self, boot: dict[str, Any]) -> Attempts:
        sys.path[:] = boot["path"]
        try:
            application: Application = origin.load(origin.Origin(**boot["origin"]))
            configure(boot["log_format"], boot["log_level"], terminal=boot["terminal"])
            name_worker(boot["worker_id"])
        except BaseException as error:  # noqa: BLE001 - a module may raise anything when it is imported
            _flush()
            self._writer.say({"refused": describe(error)})
            os._exit(IN_VAIN)
        return Attempts(application)

    def _next(self) -> dict[str, Any]:
        while not self._orders:
            data = self._channel.recv(65536)
            if not data:
                os._exit(IN_VAIN)
            self._orders += self._frames.add(data)
        return self._orders.popleft()

    def _on_term(self, *_: object) -> None:
        """Of itself it means nothing: one that is sent to all of a service is for the worker to hear."""
        attempt = self._attempt
        if attempt is None or attempt.stop is not None or os.getpid() != self._pid:
            return
        with contextlib.suppress(BlockingIOError):
            self._orders += self._frames.add(self._channel.recv(65536, socket.MSG_DONTWAIT))
        told = next((order["stop"] for order in self._orders if "stop" in order), None)
        if told is None:
            return
        attempt.stop = told
        if attempt.cancel is not None:
            attempt.cancel()
        elif attempt.at_work:
            raise Stopped(told)


class ProcessMemory:
    """What this process holds, read without a detour: it is asked after every run."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC) if IS_LINUX else None

    def now(self) -> int:
        if self._statm is None:
            return 0
        try:
            return int(os.pread(self._statm, 100, 0).split()[1]) * PAGE
        except OSError:  # a handler has closed what was not its own
            return 0


def _has_children() -> bool:
    """Whether something that a run has started is still there. The dead are buried on the way."""
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
        # Line by line, so that the last words before a crash are heard.
        stream.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    channel = socket.socket(fileno=CHANNEL)
    channel.set_inheritable(False)
    try:
        ChildProgram(channel).serve()
        code = 0
    except OSError:  # the worker is gone
        code = IN_VAIN
    # Threads that handlers have left behind must not keep it.
    _flush()
    os._exit(code)


if __name__ == "__main__":
    main()
