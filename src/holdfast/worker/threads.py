"""Threads for handlers that block. Daemons: one that never returns must not keep the process from ending."""

import ctypes
import queue
import threading
from collections.abc import Callable


class ThreadPool:
    """As many threads as were ever needed at once, up to a limit that the runner keeps."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], None]) -> None:
        """The call must not raise. RuntimeError if the system has no thread left to give."""
        with self._lock:
            if self._idle == 0:
                threading.Thread(target=self._serve, name="holdfast-handler", daemon=True).start()
            else:
                self._idle -= 1
        self._work.put(call)

    def close(self) -> None:
        with self._lock:
            for _ in range(self._idle):
                self._work.put(None)
            self._idle = 0

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            call()
            del call  # else it would be kept until the next one comes
            with self._lock:
                self._idle += 1


def interrupt(thread_id: int, error: type[BaseException] | None) -> None:
    """Raise in another thread, at its next step in Python, or take back what was not raised yet.

    A call into C that blocks is not woken by it.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if error is None else ctypes.py_object(error)
    )
