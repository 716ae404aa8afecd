"""The executors that a worker has besides its own event loop and threads."""

from collections.abc import Mapping

from holdfast.worker.executor import Executor


def build_executors() -> Mapping[str, Executor]:
    """By the name that a task asks for."""
    return {}
