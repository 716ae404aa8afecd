"""What runs on a node of a Ray cluster: one attempt of a handler, with its output as a stream."""

import asyncio
import contextlib
import ctypes
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from holdfast._telemetry.logs import configure, name_worker
from holdfast._worker.app_import import Origin, load
from holdfast._workflows.ends import Stopped
from holdfast._workflows.memory import DEFAULT_MAX_RESULT_BYTES
from holdfast._workflows.run import Run
from holdfast.isolation.child_attempt import ChildApplication, ChildAttempt, ChildAttempts
from holdfast.isolation.child_messages import MessageLimits

PROGRESS_SECONDS = 0.1
CHUNK_BYTES = 16 * 1024
NO_STEPS = (
    "steps, waits and children need a handler that runs on the host of its worker: "
    "use the executor python or process there, and start this task as its child"
)
MAX_WAITING = 64
"""Messages that are not sent yet: a handler that prints faster than they leave has to wait."""


def attempt_on_node(boot: Mapping[str, Any], order: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the output of a run, its progress, and at last its answer.

    The handler runs in a thread, as in a worker, because Ray interrupts the main thread to cancel a run.
    """
    messages: queue.Queue[dict[str, Any]] = queue.Queue(MAX_WAITING)
    attempt = ChildAttempt(order, lambda _: None)
    run = threading.Thread(target=_run, args=(boot, attempt, messages), daemon=True)
    sent = None
    run.start()
    try:
        while True:
            try:
                message = messages.get(timeout=PROGRESS_SECONDS)
            except queue.Empty:
                message = {}
            progress = attempt.progress
            if progress is not None and progress is not sent:
                sent = progress
                yield {"progress": progress}
            if message:
                yield message
            if "answer" in message:
                return
    except BaseException:  # KeyboardInterrupt, by which Ray cancels
        _interrupt(attempt, run)
        while run.is_alive():
            with contextlib.suppress(queue.Empty):
                messages.get(timeout=PROGRESS_SECONDS)
        raise


def _run(boot: Mapping[str, Any], attempt: ChildAttempt, messages: "queue.Queue[dict[str, Any]]") -> None:
    with ExitStack() as outputs:
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            outputs.enter_context(_captured(name, descriptor, messages))
        # Ray keeps its processes: those of one application run one attempt after the other.
        application = _application(tuple(boot["path"]), tuple(boot["origin"].items()), boot["log_format"])
        name_worker(boot["worker_id"])
        end = _Attempts(application, _NoChannel()).run(attempt)
    messages.put({"answer": None if end is None else end.as_message()})


class _Attempts(ChildAttempts):
    def open_run(self, task: ChildAttempt, *, is_async: bool) -> Run:
        del task, is_async
        raise RuntimeError(NO_STEPS)


class _NoChannel:
    """There is no way from here to the records of the worker."""

    limits = MessageLimits(DEFAULT_MAX_RESULT_BYTES)

    def tell(self, kind: bytes, fields: dict[str, Any]) -> None:
        del kind, fields
        raise RuntimeError(NO_STEPS)

    def ask(
        self,
        kind: bytes,
        fields: dict[str, Any],
        texts: Sequence[str],
        reply: Callable[[dict[str, Any]], None],
    ) -> None:
        del kind, fields, texts, reply
        raise RuntimeError(NO_STEPS)

    def pump(self) -> None:
        raise RuntimeError(NO_STEPS)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        del loop
        raise RuntimeError(NO_STEPS)

    def detach(self) -> None:
        """Nothing is attached."""


@cache
def _application(
    path: tuple[str, ...], named: tuple[tuple[str, str], ...], log_format: Any
) -> ChildApplication:
    """Import it as the child process did; directories that the worker searches come last."""
    sys.path += [directory for directory in path if directory not in sys.path]
    application: ChildApplication = load(Origin(**dict(named)))
    configure(log_format, "info", terminal=False)
    return application


@contextmanager
def _captured(name: str, descriptor: int, messages: "queue.Queue[dict[str, Any]]") -> Iterator[None]:
    """Send what is written to a descriptor, also by programs that the handler starts."""
    reading, writing = os.pipe()
    before = os.dup(descriptor)
    stream = getattr(sys, name)
    stream.flush()
    os.dup2(writing, descriptor)
    os.close(writing)

    def read() -> None:
        while data := os.read(reading, CHUNK_BYTES):
            messages.put({name: data})
        os.close(reading)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the handler has closed it
            stream.flush()
        os.dup2(before, descriptor)
        os.close(before)
        reader.join(1.0)  # a program that the handler has left behind keeps it open


def _interrupt(attempt: ChildAttempt, run: threading.Thread) -> None:
    attempt.stop = "cancelled"
    if attempt.cancel is not None:
        attempt.cancel()
    elif attempt.is_interruptible and run.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(run.ident), ctypes.py_object(Stopped))
