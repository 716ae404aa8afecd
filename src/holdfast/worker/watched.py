"""A handler under watch: it can be interrupted at its next step in Python, wherever it runs."""

import threading
import time
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, TypeVar

from holdfast.worker.job import Job
from holdfast.worker.threads import interrupt

T = TypeVar("T")


class Watched:
    """A handler that may be interrupted while it is at work, and never once it has left."""

    __slots__ = ("_interrupted", "_lock", "_thread_id", "deadline", "in_loop", "job", "limit_ends")

    def __init__(self, job: Job, limit: float | None, *, in_loop: bool) -> None:
        self.job = job
        self.in_loop = in_loop
        self.limit_ends = float("inf") if limit is None else time.monotonic() + limit
        self.deadline = self.limit_ends
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._interrupted = False

    def enter(self) -> None:
        with self._lock:
            self._thread_id = threading.get_ident()

    def leave(self) -> None:
        """May be called twice. What is on its way here is taken back: it must not arrive anywhere else."""
        with self._lock:
            if self._interrupted and self._thread_id is not None:
                interrupt(self._thread_id, None)
            self._thread_id = None

    def run(self, call: Callable[..., T], *given: Any) -> T:
        """Call it, at work from before its first step until after its last."""
        self.enter()
        try:
            try:
                return call(*given)
            finally:
                self.leave()
        except BaseException:
            self.leave()  # an interruption may have come while the first leave was under way
            raise

    def interrupt(self, error: type[BaseException]) -> bool:
        """Whether it is at work. One that blocks in C notices only when it comes back."""
        with self._lock:
            if self._thread_id is None:
                return False
            self._interrupted = True
            interrupt(self._thread_id, error)
            return True


class Guarded:
    """An awaitable whose every step can be interrupted: the event loop between them cannot."""

    __slots__ = ("_call", "_watched")

    def __init__(self, call: Awaitable[Any], watched: Watched) -> None:
        self._call = call
        self._watched = watched

    def __await__(self) -> "_Steps":
        return _Steps(self._call.__await__(), self._watched)


class _Steps(Generator[Any, Any, Any]):
    def __init__(self, steps: Generator[Any, Any, Any], watched: Watched) -> None:
        self._steps = steps
        self._watched = watched

    def send(self, value: Any) -> Any:
        return self._watched.run(self._steps.send, value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
        /,
    ) -> Any:
        del value, trace
        return self._watched.run(self._steps.throw, kind if isinstance(kind, BaseException) else kind())
