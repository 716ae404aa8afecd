"""What a package needs that adds an executor: see docs/howto/add-an-executor.md."""

from holdfast._worker.executor import CannotStart, Executor, ExecutorTask, ExecutorWorker
from holdfast._worker.handler import Handler
from holdfast._worker.report import AttemptEnd

__all__ = ["AttemptEnd", "CannotStart", "Executor", "ExecutorTask", "ExecutorWorker", "Handler"]
