"""The caller's trace is stored with the task if OpenTelemetry is in use."""

import subprocess
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from holdfast import App, Task

TRACER = TracerProvider().get_tracer("test")


def _task() -> Task[[], None]:
    @App().task("trace.run")
    def run() -> None: ...

    return run


def test_a_task_enqueued_within_a_span_carries_its_context() -> None:
    with TRACER.start_as_current_span("request") as span:
        metadata = _task().using(metadata={"tenant": 7}).build().options.get("metadata")
    context = span.get_span_context()
    ids = f"{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}"
    assert metadata == {"tenant": 7, "traceparent": f"00-{ids}-{context.trace_flags:02x}"}


def test_what_the_caller_says_outweighs_the_span() -> None:
    with TRACER.start_as_current_span("request"):
        assert _task().using(metadata={"traceparent": "mine"}).build().options.get("metadata") == {
            "traceparent": "mine"
        }


def test_without_a_span_nothing_is_added() -> None:
    assert _task().build().options.get("metadata") is None
    assert _task().using(metadata={"a": 1}).build().options.get("metadata") == {"a": 1}


def test_opentelemetry_is_not_loaded_by_us() -> None:
    script = (
        "import sys; from holdfast import App; App().task('a.b')(lambda: None).build(); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded.isdisjoint(
        {"opentelemetry", "typer", "rich", "structlog", "sqlalchemy", "django", "asyncpg"}
    )
