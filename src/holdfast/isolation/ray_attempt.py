"""Attempts on a Ray cluster: a child process of the worker is the driver, and a Ray worker runs the handler.

The driver is a process of its own because Ray ends a driver that has lost its cluster, at any line.
"""

import contextlib
import logging
import os
import queue
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast._worker.handler import Handler
from holdfast._worker.report import AttemptEnd
from holdfast._workflows.ends import Stopped
from holdfast.isolation.child_attempt import ChildApplication, ChildAttempt
from holdfast.isolation.ray_node import attempt_on_node
from holdfast.isolation.run_end import RunEnd

CLEANUP_SECONDS = 1.0
CONNECT_SECONDS = 5.0
_MAX_MESSAGE = 2000
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENDED = object()


class RayAttempts:
    """Runs attempts one at a time, in the main thread of a child process. The cluster stays connected."""

    def __init__(self, application: ChildApplication, boot: Mapping[str, Any]) -> None:
        self._handlers = application.handlers
        self._boot = {name: boot[name] for name in ("path", "origin", "log_format", "log_level", "worker_id")}
        self._ray: Any = None
        with contextlib.suppress(Exception):  # the first attempt tries again, and reports why it cannot
            self._ray = _in_thread(_connect)

    def run(self, attempt: ChildAttempt) -> AttemptEnd | None:
        """How it ended, or None if it was stopped."""
        handler = self._handlers.get(attempt.type)
        if handler is None:
            message = f"the child process has no handler for {attempt.type}"
            return AttemptEnd.failed("no_handler_registered", message)
        attempt.is_interruptible = True
        try:
            if self._ray is None:
                self._ray = _in_thread(_connect)
            elif not _address().startswith("ray://"):  # of a cluster that is gone, Ray tells after a minute
                _check_address(self._ray.get_runtime_context().gcs_address)
            return self._run(attempt, handler)
        except Stopped:
            return None
        except ImportError:
            return _failed(handler, attempt, "Ray is not installed: pip install 'holdfast-pg[ray]'")
        except Exception as error:  # noqa: BLE001 - Ray raises classes of its own, and plain ones
            if attempt.stop is not None:
                return None
            return _failed(handler, attempt, _explained(error))
        finally:
            attempt.is_interruptible = False

    def _run(self, attempt: ChildAttempt, handler: Handler) -> AttemptEnd | None:
        remote = self._ray.remote(attempt_on_node).options(
            name=attempt.type, num_returns="streaming", max_retries=0, **handler.ray
        )
        messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        running = remote.remote(self._boot, _order(attempt))
        reader = threading.Thread(target=self._read, args=(running, messages), daemon=True)
        reader.start()
        try:
            return _follow(attempt, messages)
        except Stopped:
            self._cancel(
                running, reader, CLEANUP_SECONDS if attempt.stop in ("cancelled", "timeout") else 0.2
            )
            _print_rest(messages)
            raise

    def _read(self, running: Any, messages: "queue.SimpleQueue[Any]") -> None:
        """In a thread: Ray looks for signals once a second, and the main thread has to hear them at once."""
        try:
            for reference in running:
                messages.put(self._ray.get(reference))
            messages.put(_ENDED)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            messages.put(error)

    def _cancel(self, running: Any, reader: threading.Thread, cleanup: float) -> None:
        """End the run on its node: first by an exception in the handler, then with its process."""
        self._ray.cancel(running, force=False)
        reader.join(cleanup)
        if reader.is_alive():
            self._ray.cancel(running, force=True)
            reader.join(CLEANUP_SECONDS)


def _address() -> str:
    return os.environ.get("RAY_ADDRESS") or "auto"


def _connect() -> Any:
    """Connect to the cluster of RAY_ADDRESS, or to one that runs on this host. Never starts one."""
    import ray  # noqa: PLC0415 - an extra, which only this process needs

    logging.getLogger("ray").setLevel(logging.ERROR)
    _check_address(_address())
    ray.init(
        address=_address(),
        namespace="holdfast",
        log_to_driver=False,
        configure_logging=False,
    )
    return ray


def _check_address(named: str) -> None:
    """Raise an error at once if nothing listens there: Ray itself tries for minutes, and then exits."""
    found = re.fullmatch(r"(?:ray://)?\[?([^/\]]+)\]?:(\d+)", named)
    if found is not None:
        try:
            socket.create_connection((found[1], int(found[2])), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            raise ConnectionError(str(error)) from error


def _in_thread(call: Callable[[], Any]) -> Any:
    """Call it outside the main thread, in which Ray would replace our handler of SIGTERM."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _follow(attempt: ChildAttempt, messages: "queue.SimpleQueue[Any]") -> AttemptEnd | None:
    """Print what the handler prints, pass its progress on, and return how it ended."""
    for message in iter(messages.get, _ENDED):
        if isinstance(message, BaseException):
            raise message
        if "progress" in message:
            attempt.progress = message["progress"]
            attempt.send_progress()
        elif "answer" in message:
            return None if message["answer"] is None else AttemptEnd(**message["answer"])
        _print(message)
    raise RuntimeError("the run ended on the Ray cluster without saying how")


def _print_rest(messages: "queue.SimpleQueue[Any]") -> None:
    """Print what the handler had printed when it was stopped, and what it printed while it ended."""
    with contextlib.suppress(queue.Empty):
        while True:
            message = messages.get_nowait()
            if isinstance(message, dict):
                _print(message)


def _print(message: Mapping[str, Any]) -> None:
    for name in ("stdout", "stderr"):
        if name in message:
            stream = getattr(sys, name)
            stream.buffer.write(message[name])
            stream.buffer.flush()


def _order(attempt: ChildAttempt) -> dict[str, Any]:
    names = ("run", "task_id", "type", "attempt", "max_attempts", "payload", "metadata")
    return {**{name: getattr(attempt, name) for name in names}, "resources": {}, "now": attempt.now()}


def _failed(handler: Handler, attempt: ChildAttempt, why: str) -> AttemptEnd:
    end: RunEnd[AttemptEnd] = RunEnd("executor_failed", why)
    return end.as_attempt_end(handler.retry, attempt.attempt)


def _explained(error: Exception) -> str:
    text = " ".join(_COLOUR.sub("", str(error)).split())[-_MAX_MESSAGE:]
    if isinstance(error, ConnectionError):
        return f"the Ray cluster (RAY_ADDRESS={_address()}) cannot be reached: {text}"
    return (
        f"the Ray cluster (RAY_ADDRESS={_address()}) did not run the attempt: {type(error).__name__}: {text}"
    )
