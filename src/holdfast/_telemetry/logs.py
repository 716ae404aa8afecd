"""Structured logs: an event with its fields, in colours for people or as JSON for machines.

An application that uses structlog finds all lines there. Holdfast does not load it: it would load Rich.
"""

import contextlib
import json
import logging
import os
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast._telemetry.current_job import current_job

_COLOURS = {"debug": 32, "info": 32, "warning": 33}
_RED = 31
_EVENT_WIDTH = 30
_worker_id: ContextVar[str | None] = ContextVar("worker_id", default=None)


class Log:
    """A logger that never raises: standard error may be gone, and that must end no loop and no thread.

    The application may have configured structlog, so it is the call that is guarded, not what writes.
    """

    __slots__ = ("_fields",)

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> "Log":
        return Log(**{**self._fields, **fields})

    def is_enabled_for(self, level: int) -> bool:
        structlog = _configured_structlog()
        if structlog is None:
            return level >= _lines.level
        return bool(structlog.get_logger().is_enabled_for(level))

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
            structlog = _configured_structlog()
            if structlog is not None:
                getattr(structlog.get_logger(), method)(event, **{**self._fields, **fields})
                return
            level = "error" if method == "exception" else method
            if logging.getLevelNamesMapping()[level.upper()] < _lines.level:
                return
            if method == "exception":
                fields.setdefault("exc_info", True)
            # At once: `print` would let the line of a library come between text and newline.
            sys.stderr.write(_lines.line(level, event, {**self._fields, **fields}) + "\n")


class SilentLog(Log):
    def is_enabled_for(self, level: int) -> bool:
        del level
        return False

    def bind(self, **fields: Any) -> "Log":
        del fields
        return self

    def _write(self, method: str, event: str, fields: dict[str, Any]) -> None:
        """Nothing."""


class _Lines:
    """How lines look, and from which level they are written."""

    def __init__(self, *, for_people: bool, level: int) -> None:
        self.level = level
        self._line = _line_for_people if for_people else _line_for_machines

    def line(self, level: str, event: object, fields: dict[str, Any], created: float | None = None) -> str:
        """With what is known about the context, unless the fields say otherwise."""
        error = _error_in(fields.pop("exc_info", None))
        if error is not None:
            # Without the values of variables: they may be keys and passwords.
            fields["exception"] = "".join(traceback.format_exception(error)).rstrip()
        worker_id, job = _worker_id.get(), current_job.get()
        if worker_id is not None:
            fields.setdefault("worker_id", worker_id)
        for name, value in {} if job is None else job.log_fields.items():
            fields.setdefault(name, value)
        moment = datetime.now(UTC) if created is None else datetime.fromtimestamp(created, UTC)
        return self._line(level, str(event), fields, moment.isoformat().replace("+00:00", "Z"))


class _StandardLines(logging.Formatter):
    """Lines of Python's `logging`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"logger": record.name, "exc_info": record.exc_info}
        if record.stack_info:
            fields["stack"] = record.stack_info
        return _lines.line(record.levelname.lower(), record.getMessage(), fields, record.created)


def is_for_people(form: Literal["console", "json"] | None, terminal: bool | None = None) -> bool:
    """Whether logs are written for people: by default they are if standard error is a terminal."""
    return form == "console" or (form is None and (sys.stderr.isatty() if terminal is None else terminal))


def configure(form: Literal["console", "json"] | None, level: str, *, terminal: bool | None = None) -> None:
    """Set up logging, and structlog if it is loaded; without a format, only what the application has not."""
    global _lines  # noqa: PLW0603 - one for the process, like the configuration of `logging`
    if form is None and _configured_structlog() is not None:
        return
    numeric = logging.getLevelNamesMapping()[level.upper()]
    _lines = _Lines(for_people=is_for_people(form, terminal), level=numeric)
    structlog = sys.modules.get("structlog")
    if structlog is not None:
        structlog.configure(
            processors=[structlog.contextvars.merge_contextvars, _line_of_structlog],
            wrapper_class=structlog.make_filtering_bound_logger(numeric),
            logger_factory=structlog.WriteLoggerFactory(sys.stderr),
            cache_logger_on_first_use=True,
        )
    _adopt_standard_logging(numeric)


def log_of(name: str) -> Log:
    return Log(logger=name)


def worker_log(worker_id: str) -> Log:
    return Log(worker_id=worker_id)


def name_worker(worker_id: str) -> None:
    """Add the worker to every log line of this context, including those of libraries."""
    _worker_id.set(worker_id)
    structlog = sys.modules.get("structlog")
    if structlog is not None:
        structlog.contextvars.bind_contextvars(worker_id=worker_id)


def is_verbose(log: Log) -> bool:
    """Whether each start and end of a task is logged for debugging."""
    return log.is_enabled_for(logging.DEBUG)


def _configured_structlog() -> Any:
    structlog = sys.modules.get("structlog")
    is_configured = getattr(structlog, "is_configured", None)  # incomplete while another thread imports it
    return structlog if is_configured is not None and is_configured() else None


def _line_of_structlog(logger: object, method: str, fields: Any) -> str:
    del logger
    level = {"exception": "error", "warn": "warning"}.get(method, method)
    return _lines.line(level, fields.pop("event", ""), dict(fields))


def _adopt_standard_logging(level: int) -> None:
    """Format the lines of Python's `logging` the same way, unless the application has set it up."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_StandardLines())
    root.addHandler(handler)
    # The debug lines of libraries are not about tasks.
    root.setLevel(max(level, logging.INFO))


def _error_in(exc_info: Any) -> BaseException | None:
    """As `logging` and structlog pass it on: an exception, what `sys.exc_info` returns, or whether to ask."""
    if isinstance(exc_info, BaseException):
        return exc_info
    found = exc_info if isinstance(exc_info, tuple) else sys.exc_info() if exc_info else (None, None)
    error: BaseException | None = found[1]
    return error


def _line_for_machines(level: str, event: str, fields: dict[str, Any], moment: str) -> str:
    return json.dumps({"event": event, **fields, "level": level, "timestamp": moment}, default=repr)


def _line_for_people(level: str, event: str, fields: dict[str, Any], moment: str) -> str:
    exception = fields.pop("exception", None)
    parts = [_coloured(f"{name}=", 36) + _coloured(_shown(value), 35) for name, value in fields.items()]
    head = f"{_coloured(moment, 2)} [{_coloured(f'{level:<9}', _COLOURS.get(level, _RED))}]"
    line = " ".join([head, _coloured(f"{event:<{_EVENT_WIDTH}}", 1), *parts])
    return line if exception is None else f"{line}\n{exception}"


def _coloured(text: str, colour: int) -> str:
    return text if os.environ.get("NO_COLOR") else f"\x1b[{colour}m{text}\x1b[0m"


def _shown(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() else repr(value)


_lines = _Lines(for_people=True, level=logging.INFO)
