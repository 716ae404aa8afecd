"""The worker: claims tasks, runs their handlers and reports how they ended."""

from holdfast.worker.worker import Worker
from holdfast.worker.worker_process import run

__all__ = ["Worker", "run"]
