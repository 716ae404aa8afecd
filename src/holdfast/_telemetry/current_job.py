"""The task whose handler runs."""

from contextvars import ContextVar
from typing import Any, Protocol


class LoggedJob(Protocol):
    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every log line about this task."""


current_job: ContextVar[LoggedJob | None] = ContextVar("current_job", default=None)
"""The task whose handler runs in this context: every log line in it names the task."""
