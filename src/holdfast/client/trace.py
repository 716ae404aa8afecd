"""The trace that a task belongs to, so that its handler's spans join those of whoever enqueued it."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def with_trace(metadata: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Adds `traceparent` where a span is active. Nobody can have one who has not imported OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return metadata
    return {**_current(), **(metadata or {})} or None


def _current() -> dict[str, str]:
    propagation = import_module("opentelemetry.trace.propagation.tracecontext")
    carrier: dict[str, str] = {}
    propagation.TraceContextTextMapPropagator().inject(carrier)
    return carrier
