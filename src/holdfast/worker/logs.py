"""The logs of a worker."""

from holdfast.logs import Log, configure, current_job, is_verbose, name_worker, worker_log

__all__ = ["Log", "configure", "current_job", "is_verbose", "name_worker", "worker_log"]
