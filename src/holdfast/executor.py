"""What a package needs that adds an executor: see docs/howto/add-an-executor.md."""

from holdfast._worker.attempt import AttemptEnd
from holdfast._worker.executor import CannotStart, Executor, ExecutorTask, ExecutorWorker
from holdfast._worker.handler import Handler

__all__ = ["AttemptEnd", "CannotStart", "Executor", "ExecutorTask", "ExecutorWorker", "Handler"]
