"""Spans of OpenTelemetry: enqueue, each attempt, each try of a step, and the sending of events, in one trace.

The trace is stored with the task as W3C Trace Context, in its metadata. Until the application has loaded
OpenTelemetry and set a tracer provider, nothing is imported, and each call here is one look-up.
Names and attributes follow the semantic conventions for messaging where these have a word.
"""

import contextvars
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Protocol

from holdfast.outcome import OUTCOMES

API = "opentelemetry.trace"
"""Loaded by the application, or tracing is off. Callers on hot paths look for it themselves."""
_CARRIED = ("traceparent", "tracestate")
OFF: AbstractContextManager[Any] = nullcontext()
_known: tuple[Any, Any] = (None, None)
"""The provider that was last in use, and its tracer."""

Kind = Literal["PRODUCER", "CONSUMER", "INTERNAL"]


class TracedTask(Protocol):
    type: str
    task_id: Any
    attempt: int
    status: str
    executor: str
    metadata: Any


def with_trace(metadata: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Add the trace of the current span, so that the spans of the handler join it. What is given wins."""
    if API not in sys.modules:  # not imported, so that no span can be active
        return metadata
    return {**_current(), **(metadata or {})} or None


def enqueueing(task_type: str, queue: str | None, tasks: int = 1) -> AbstractContextManager[Any]:
    """The span of a caller that enqueues."""
    tracer = _tracer()
    if tracer is None:
        return OFF
    attributes = _message("enqueue", "send", task_type, queue)
    if tasks != 1:
        attributes["messaging.batch.message_count"] = tasks
    return _span(tracer, f"enqueue {task_type}", "PRODUCER", attributes)


def enqueued(task_id: Any) -> None:
    """Name the task in the span of its caller."""
    if _tracer() is not None:
        _note({"messaging.message.id": str(task_id)})


def attempt(task: TracedTask, queue: str | None) -> AbstractContextManager[Any]:
    """The span of one attempt, in the trace that was stored with the task."""
    tracer = _tracer()
    return OFF if tracer is None else _attempt(tracer, task, queue)


def attempt_failed(error: Mapping[str, Any]) -> None:
    """Mark the current span with an error as it is stored."""
    if _tracer() is None:
        return
    from opentelemetry import trace  # noqa: PLC0415 - an extra, which is loaded

    kind = str(error.get("exception") or error.get("kind"))
    span = trace.get_current_span()
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR, str(error.get("kind")))
    if "exception" in error:
        told = {
            "type": kind,
            "message": str(error.get("message")),
            "stacktrace": error.get("traceback") or "",
        }
        span.add_event("exception", {f"exception.{name}": value for name, value in told.items()})


def step(name: str, number: int) -> AbstractContextManager[Any]:
    """The span of one try of a step. A step that is remembered has none."""
    tracer = _tracer()
    if tracer is None:
        return OFF
    attributes = {"holdfast.step.name": name, "holdfast.step.try": number}
    return _span(tracer, f"step {name}", "INTERNAL", attributes)


def sending(
    event_type: str, event_id: Any, subscription: str, traceparent: str | None
) -> AbstractContextManager[Any]:
    """The span of a dispatcher that sends an event, in the trace that was stored with the event."""
    tracer = _tracer()
    if tracer is None:
        return OFF
    attributes = {
        "messaging.system": "holdfast",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": subscription,
        "messaging.message.id": str(event_id),
    }
    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return _span(tracer, f"publish {event_type}", "PRODUCER", attributes, carrier)


def carried(metadata: str | None) -> str | None:
    """Metadata for a child process, whose spans join the attempt of this process."""
    if _tracer() is None:
        return metadata
    return json.dumps({**_read(metadata), **_current()})


def joined(metadata: str | None) -> AbstractContextManager[Any]:
    """In a child process: the attempt of its worker is the parent of what is traced here."""
    return OFF if _tracer() is None else _joined(_read(metadata))


def _tracer() -> Any:
    global _known  # noqa: PLW0603 - replaced as a whole, so that threads see both or neither
    if API not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - an extra, which is loaded

    provider = trace.get_tracer_provider()
    if provider is not _known[0]:
        is_set = not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
        _known = (provider, provider.get_tracer("holdfast") if is_set else None)
    return _known[1]


@contextmanager
def _attempt(tracer: Any, task: TracedTask, queue: str | None) -> Iterator[None]:
    attributes = _message("process", "process", task.type, queue)
    attributes |= {
        "messaging.message.id": str(task.task_id),
        "holdfast.attempt": task.attempt,
        "holdfast.executor": task.executor,
    }
    with _span(tracer, f"process {task.type}", "CONSUMER", attributes, _read(task.metadata)) as span:
        try:
            yield
        finally:
            span.set_attribute("holdfast.outcome", task.status or "lost")


@contextmanager
def _span(
    tracer: Any, name: str, kind: Kind, attributes: dict[str, Any], carrier: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    from opentelemetry import trace  # noqa: PLC0415 - an extra, which is loaded

    parent = None if carrier is None else _extracted(carrier)
    span = tracer.start_span(name, parent, kind=trace.SpanKind[kind], attributes=attributes)
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except OUTCOMES:
            raise
        except Exception as error:
            span.record_exception(error)
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


@contextmanager
def _joined(carrier: Mapping[str, Any]) -> Iterator[None]:
    from opentelemetry import context  # noqa: PLC0415 - an extra, which is loaded

    token: contextvars.Token[Any] = context.attach(_extracted(carrier))
    try:
        yield
    finally:
        context.detach(token)


def _extracted(carrier: Mapping[str, Any]) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - as above

    texts = {name: carrier[name] for name in _CARRIED if isinstance(carrier.get(name), str)}
    return TraceContextTextMapPropagator().extract(texts)


def _current() -> dict[str, str]:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - as above

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def _read(metadata: Any) -> dict[str, Any]:
    try:
        found = json.loads(metadata) if metadata else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _note(attributes: dict[str, Any]) -> None:
    from opentelemetry import trace  # noqa: PLC0415 - an extra, which is loaded

    trace.get_current_span().set_attributes(attributes)


def _message(name: str, kind: str, task_type: str, queue: str | None) -> dict[str, Any]:
    return {
        "messaging.system": "holdfast",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue or re.split(r"[.:]", task_type, maxsplit=1)[0],
        "holdfast.task.type": task_type,
    }
