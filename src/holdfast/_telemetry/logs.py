"""Structured logs: an event with its fields, in colours for people or as JSON for machines."""

import contextlib
import logging
import sys
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from holdfast._telemetry.current_job import current_job


class Log:
    """A logger that never raises: standard error may be gone, and that must end no loop and no thread.

    The application may have configured structlog, so it is the call that is guarded, not what writes.
    """

    __slots__ = ("_logger",)

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def bind(self, **fields: Any) -> "Log":
        return Log(self._logger.bind(**fields))

    def is_enabled_for(self, level: int) -> bool:
        return bool(self._logger.is_enabled_for(level))

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        self._write("exception", event, fields)

    def critical(self, event: str, **fields: Any) -> None:
        self._write("critical", event, fields)

    def _write(self, method: str, event: str, fields: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            getattr(self._logger, method)(event, **fields)


def is_for_people(form: Literal["console", "json"] | None, terminal: bool | None = None) -> bool:
    """Whether logs are written for people: by default they are if standard error is a terminal."""
    return form == "console" or (form is None and (sys.stderr.isatty() if terminal is None else terminal))


def configure(form: Literal["console", "json"] | None, level: str, *, terminal: bool | None = None) -> None:
    """Set up structlog and logging, unless the application has done so and no format is set."""
    if form is None and structlog.is_configured():
        return
    people = is_for_people(form, terminal)
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
        # Writes text and newline at once: `print` would let the line of a library come between them.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    _adopt_standard_logging(shared, rendering, numeric)


def _for_people() -> structlog.dev.ConsoleRenderer:
    """Show no values of variables in tracebacks: they may be keys and passwords."""
    formatter = structlog.dev.RichTracebackFormatter(show_locals=False)
    return structlog.dev.ConsoleRenderer(exception_formatter=formatter)


def _adopt_standard_logging(shared: list[Processor], rendering: list[Processor], level: int) -> None:
    """Format the lines of Python's `logging` the same way, unless the application has set it up."""
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
    # The debug lines of libraries are not about tasks.
    root.setLevel(max(level, logging.INFO))


def log_of(name: str) -> Log:
    return Log(structlog.get_logger(name))


def worker_log(worker_id: str) -> Log:
    return log_of("holdfast.worker").bind(worker_id=worker_id)


def name_worker(worker_id: str) -> None:
    """Add the worker to every log line of this context, including those of libraries."""
    structlog.contextvars.bind_contextvars(worker_id=worker_id)


def is_verbose(log: Log) -> bool:
    """Whether each start and end of a task is logged for debugging."""
    return log.is_enabled_for(logging.DEBUG)


def _name_task(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    del logger, method
    job = current_job.get()
    if job is not None:
        for name, value in job.log_fields.items():
            event.setdefault(name, value)
    return event
