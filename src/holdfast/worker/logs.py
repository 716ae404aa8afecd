"""Structured logs: what happened, with the ids; for people on a terminal, as JSON for machines."""

import logging
import sys
from typing import Literal, TypeAlias

import structlog

Log: TypeAlias = structlog.stdlib.BoundLogger


def configure(form: Literal["console", "json"] | None, level: str) -> None:
    """What the command line sets up. A worker inside an application leaves this to the application."""
    people = form == "console" or (form is None and sys.stderr.isatty())
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def worker_log(worker_id: str) -> Log:
    log: Log = structlog.get_logger("holdfast.worker").bind(worker_id=worker_id)
    return log
