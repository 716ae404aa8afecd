"""The child: runs handlers of the application, one at a time, for a worker that may kill it at any moment.

Started by the keeper as `python -m holdfast.executors.child`, with the worker's socket as descriptor 3. What
handlers print goes elsewhere: nothing but messages is ever written there.
"""

import contextlib
import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from holdfast.context import Stopped
from holdfast.executors import origin
from holdfast.executors.attempt import Application, Attempt, Attempts
from holdfast.executors.frames import Frames, frame
from holdfast.executors.system import memory_of
from holdfast.failure import describe
from holdfast.logs import configure

CHANNEL = 3
PROGRESS_SECONDS = 0.1
IN_VAIN = 70  # EX_SOFTWARE of sysexits.h
INTERRUPT = signal.SIGRTMIN + 4 if sys.platform == "linux" else signal.SIGUSR2


class Mouth:
    """What is said to the worker. Of progress, only the last word in a tenth of a second."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._attempt: Attempt | None = None
        self._news = threading.Event()
        threading.Thread(target=self._tell_progress, name="holdfast-progress", daemon=True).start()

    def say(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            self._channel.sendall(frame(message))

    def tell_progress(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._news.set()

    def _tell_progress(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            attempt = self._attempt
            if attempt is not None and not attempt.is_over:
                self.say({"progress": attempt.progress, "run": attempt.run})
            time.sleep(PROGRESS_SECONDS)


class Child:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._frames = Frames()
        self._mouth = Mouth(channel)
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._attempt: Attempt | None = None
        self._pid = os.getpid()
        self._main_thread = threading.get_ident()

    def serve(self) -> None:
        """Until stopped, or until the worker is gone."""
        threading.Thread(target=self._listen, name="holdfast-orders", daemon=True).start()
        attempts = self._prepare(self._orders.get())
        # Of itself it means nothing here: one that is sent to all of a service is for the worker to hear.
        # It leaves in stderr where the run is, even if that hangs in C.
        signal.signal(signal.SIGTERM, lambda *_: None)
        faulthandler.register(signal.SIGTERM, all_threads=False)
        signal.signal(INTERRUPT, self._interrupt)
        self._mouth.say({"ready": True})
        while True:
            order = self._orders.get()
            self._attempt = attempt = Attempt(order, self._mouth.tell_progress)
            answer = attempts.run(attempt)
            if os.getpid() != self._pid:  # a handler has forked, and its copy came back here
                os._exit(0)
            attempt.is_over = True
            _flush()
            self._mouth.say(
                {
                    "answer": answer,
                    "run": attempt.run,
                    "left": _has_children(),
                    "memory": memory_of(self._pid),
                }
            )
            if attempt.stop is not None:
                return
            self._attempt = None

    def _prepare(self, boot: dict[str, Any]) -> Attempts:
        sys.path[:] = boot["path"]
        try:
            application: Application = origin.load(origin.Origin(**boot["origin"]))
            configure(boot["log_format"], boot["log_level"], terminal=boot["terminal"])
        except BaseException as error:  # noqa: BLE001 - a module may raise anything when it is imported
            _flush()
            self._mouth.say({"refused": describe(error)})
            os._exit(IN_VAIN)
        return Attempts(application)

    def _listen(self) -> None:
        while data := self._receive():
            for order in self._frames.add(data):
                if "stop" in order:
                    self._stop(order["stop"])
                else:
                    self._orders.put(order)
        os._exit(IN_VAIN)

    def _receive(self) -> bytes:
        try:
            return self._channel.recv(65536)
        except OSError:
            return b""

    def _stop(self, why: str) -> None:
        attempt = self._attempt
        if attempt is not None:
            attempt.stop = why
            with contextlib.suppress(ProcessLookupError):
                signal.pthread_kill(self._main_thread, INTERRUPT)  # which also ends a blocking call

    def _interrupt(self, *_: object) -> None:
        """In the main thread, at its next step in Python."""
        attempt = self._attempt
        if attempt is None or attempt.is_interrupted or os.getpid() != self._pid:
            return
        attempt.is_interrupted = True
        if attempt.cancel is not None:
            attempt.cancel()
        elif attempt.at_work:
            raise Stopped(attempt.stop)


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
        Child(channel).serve()
        code = 0
    except BrokenPipeError:
        code = IN_VAIN
    # Threads that handlers have left behind must not keep it.
    _flush()
    os._exit(code)


if __name__ == "__main__":
    main()
