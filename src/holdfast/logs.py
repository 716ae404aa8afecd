"""Structured logs: what happened, with the ids; for people on a terminal, as JSON for machines."""

import logging
import sys
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TypeAlias

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

Log: TypeAlias = structlog.stdlib.BoundLogger


class Named(Protocol):
    @property
    def name(self) -> dict[str, Any]:
        """What every line of the log about it says."""


current_job: ContextVar[Named | None] = ContextVar("current_job", default=None)
"""Whose handler runs here: its lines name the task, whichever logger they come from."""


def configure(form: Literal["console", "json"] | None, level: str, *, terminal: bool | None = None) -> None:
    """Unless the application has logs of its own making, and no format was asked for."""
    if form is None and structlog.is_configured():
        return
    people = form == "console" or (form is None and (sys.stderr.isatty() if terminal is None else terminal))
    numeric = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _name_task,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = _for_people() if people else structlog.processors.JSONRenderer()
    rendering: list[Processor] = [renderer] if people else [structlog.processors.format_exc_info, renderer]
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    _adopt_standard_logging(shared, rendering, numeric)


def _for_people() -> structlog.dev.ConsoleRenderer:
    """Without the values of variables in tracebacks: keys and passwords are among them."""
    return structlog.dev.ConsoleRenderer(
        exception_formatter=structlog.dev.RichTracebackFormatter(show_locals=False)
    )


def _adopt_standard_logging(shared: list[Processor], rendering: list[Processor], level: int) -> None:
    """What handlers and libraries log with Python's own `logging` looks the same, unless it is set up."""
    root = logging.getLogger()
    if root.handlers:
        return
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name], processors=[remove, *rendering]
        )
    )
    root.addHandler(handler)
    # Of libraries, no more than what they think important: their debug lines are not about tasks.
    root.setLevel(max(level, logging.INFO))


def worker_log(worker_id: str) -> Log:
    log: Log = structlog.get_logger("holdfast.worker").bind(worker_id=worker_id)
    return log


def name_worker(worker_id: str) -> None:
    """Let every line of this context name the worker, also those of libraries."""
    structlog.contextvars.bind_contextvars(worker_id=worker_id)


def is_verbose(log: Log) -> bool:
    """Whether a line for every task is wanted."""
    return bool(log.is_enabled_for(logging.DEBUG))


def _name_task(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    del logger, method
    job = current_job.get()
    if job is not None:
        for name, value in job.name.items():
            event.setdefault(name, value)
    return event
