"""Structured logs: an event with its fields, in colours for people or as JSON for machines."""

import logging
import sys
import threading
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TypeAlias

# Where they are installed, structlog imports Rich and colorama, for colours, and greenlet, for an interface
# that it deprecates: 6 MB in every worker. Without a terminal it does without, unless the application has
# loaded one of them, or has another thread, which could import one at this moment.
_UNWANTED = ("rich", "colorama", "greenlet")
_PLAIN = (
    not sys.stderr.isatty()
    and threading.active_count() == 1
    and sys.modules.keys().isdisjoint({"structlog", *_UNWANTED})
)
if _PLAIN:
    sys.modules.update(dict.fromkeys(_UNWANTED))  # type: ignore[arg-type]  # None makes an import fail
import structlog  # noqa: E402
from structlog.typing import EventDict, ExceptionRenderer, Processor, WrappedLogger  # noqa: E402

if _PLAIN:
    for _name in _UNWANTED:
        del sys.modules[_name]

Log: TypeAlias = structlog.stdlib.BoundLogger


class LoggedJob(Protocol):
    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every log line about this task."""


current_job: ContextVar[LoggedJob | None] = ContextVar("current_job", default=None)
"""The task whose handler runs in this context: every log line in it names the task."""


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
    formatter: ExceptionRenderer = structlog.dev.plain_traceback
    if not _PLAIN:
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


def worker_log(worker_id: str) -> Log:
    log: Log = structlog.get_logger("holdfast.worker").bind(worker_id=worker_id)
    return log


def name_worker(worker_id: str) -> None:
    """Add the worker to every log line of this context, including those of libraries."""
    structlog.contextvars.bind_contextvars(worker_id=worker_id)


def is_verbose(log: Log) -> bool:
    """Whether each start and end of a task is logged for debugging."""
    return bool(log.is_enabled_for(logging.DEBUG))


def _name_task(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    del logger, method
    job = current_job.get()
    if job is not None:
        for name, value in job.log_fields.items():
            event.setdefault(name, value)
    return event
