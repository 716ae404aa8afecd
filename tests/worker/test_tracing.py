"""One trace covers a task from the caller to its attempts, its steps, its child processes and its events."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import App, Context, Exponential, Retry, SyncContext, TaskFailed
from holdfast._telemetry import tracing
from outbox.conftest import running
from support.database import Database
from support.outbox import subscribe
from support.worker_thread import working

Spans = Callable[[str], list[ReadableSpan]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Ended spans whose name begins with a word."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield lambda word: [span for span in exporter.get_finished_spans() if span.name.partition(" ")[0] == word]
    provider.shutdown()


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Its trace, and itself."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("is_async", [True, False])
def test_attempts_and_every_try_of_a_step_join_the_trace_of_the_caller(
    db: Database, spans: Spans, *, is_async: bool
) -> None:
    app, calls = App(db.dsn), []

    def charge() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("declined")
        return 7

    if is_async:

        @app.task("shop.order", queue="orders")
        async def order(ctx: Context) -> int:
            value: int = await ctx.step(charge, retries=1, retry=Exponential(base=0))
            if ctx.attempt == 1:
                raise Retry(0, "again")
            return value

        handle = order.enqueue()
    else:

        @app.task("shop.order", queue="orders")
        def plain_order(ctx: SyncContext) -> int:
            value: int = ctx.step(charge, retries=1, retry=Exponential(base=0))
            if ctx.attempt == 1:
                raise Retry(0, "again")
            return value

        handle = plain_order.enqueue()
    with working(app, db.dsn):
        assert handle.result(timeout=30) == 7
    [enqueue] = spans("enqueue")
    first, second = sorted(spans("process"), key=lambda span: facts(span)["holdfast.attempt"])
    failed, succeeded = spans("step")
    assert {ids(span)[0] for span in (first, second, failed, succeeded)} == {ids(enqueue)[0]}
    assert (enqueue.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_of(first) == parent_of(second) == ids(enqueue)
    assert parent_of(failed) == parent_of(succeeded) == ids(first)  # the second attempt remembers the step
    assert [facts(span)["holdfast.step.try"] for span in (failed, succeeded)] == [1, 2]
    assert (failed.status.status_code, succeeded.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert [facts(span)["holdfast.outcome"] for span in (first, second)] == ["retry", "succeeded"]
    assert facts(first) | facts(enqueue) == {
        "messaging.system": "holdfast",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": str(handle.task_id),
        "holdfast.task.type": "shop.order",
        "holdfast.attempt": 1,
        "holdfast.executor": "python",
        "holdfast.outcome": "retry",
        "error.type": "retried_by_handler",
    }


def test_a_failed_attempt_has_the_exception_and_children_have_the_run_as_parent(
    db: Database, spans: Spans
) -> None:
    app = App(db.dsn)

    @app.task("shop.item", max_attempts=1)
    async def item(n: int) -> int:
        if n == 2:
            raise LookupError("none left")
        return n

    @app.task("shop.cart", max_attempts=1)
    async def cart(ctx: Context) -> str:
        async with ctx.step_transaction("book") as tx:
            await tx.execute("select 1")
        await ctx.map(item, [1, 2])
        return "done"

    handle = cart.enqueue()
    with working(app, db.dsn), pytest.raises(TaskFailed):
        handle.result(timeout=30)
    carts = [span for span in spans("process") if span.name.endswith("cart")]
    items = [span for span in spans("process") if span.name.endswith("item")]
    assert {parent_of(span) for span in items} <= {ids(span) for span in carts}
    [booked] = spans("step")
    assert (booked.name, parent_of(booked)) == ("step book", ids(carts[0]))
    [failed] = [span for span in items if span.status.status_code is StatusCode.ERROR]
    assert facts(failed)["error.type"] == "builtins.LookupError"
    [event] = failed.events
    assert "none left" in str((event.attributes or {})["exception.message"])


async def test_sending_an_event_joins_the_trace_in_which_it_was_emitted(
    db: Database, spans: Spans, tmp_path: Path
) -> None:
    app = App(db.dsn)
    subscribe(db.connect(), "audit", "shop.*", sink="file", target="events.jsonl")
    with trace.get_tracer("test").start_as_current_span("request") as request:
        await app.aemit("shop.paid", {"order": 7})
    async with running(db.dsn_as("holdfast_dispatcher"), tmp_path), asyncio.timeout(30):
        while not spans("publish"):  # noqa: ASYNC110 - the exporter cannot be awaited
            await asyncio.sleep(0.01)
    [publish] = spans("publish")
    context = request.get_span_context()
    assert parent_of(publish) == (context.trace_id, context.span_id)
    assert facts(publish)["messaging.destination.name"] == "audit"


def test_without_a_provider_there_are_no_spans_and_nothing_is_stored(db: Database) -> None:
    app = App(db.dsn)

    @app.task("shop.quiet")
    async def quiet(ctx: Context) -> Any:
        return ctx.metadata

    handle = quiet.enqueue()
    with working(app, db.dsn):
        assert handle.result(timeout=30) in (None, {})
    assert tracing.attempt(None, None) is tracing.step("a", 1) is tracing.enqueueing("a.b", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["nonsense", 7, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", {"a": 1}])
def test_a_malformed_trace_begins_a_new_one(spans: Spans, given: Any) -> None:
    class Held:
        type, task_id, attempt, status, executor = "a.b", "1", 1, "succeeded", "python"
        metadata = json.dumps({"traceparent": given, "tracestate": given})

    with tracing.attempt(Held(), None):
        pass
    [span] = spans("process")
    assert span.parent is None


PROGRAM = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from holdfast import App, Context, SyncContext

provider = TracerProvider()
out = open(os.environ["SPANS"], "a", buffering=1)
exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
app = App()

def double(n: int) -> int:
    return 2 * n

@app.task("isolated.double", executor="process")
def isolated(ctx: SyncContext, n: int) -> int:
    return ctx.step(double, n)

if __name__ == "__main__":
    assert isolated.enqueue(n=21).result(timeout=60) == 42
"""


@pytest.mark.full
def test_one_trace_spans_the_processes_of_caller_worker_and_child(db: Database, tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(PROGRAM)
    written = tmp_path / "spans"
    environment = {
        **os.environ,
        "DATABASE_URL": db.dsn,
        "SPANS": str(written),
        "HOLDFAST_PROCESS_ENV": "SPANS",
        "PYTHONPATH": str(tmp_path),
    }
    program = Path(sys.executable).with_name("holdfast")
    worker = subprocess.Popen([program, "worker", "traced:app"], cwd=tmp_path, env=environment)
    try:
        subprocess.run([sys.executable, "traced.py"], cwd=tmp_path, env=environment, check=True)
    finally:
        worker.terminate()
        worker.wait(30)
    found = {
        span["name"].partition(" ")[0]: span for span in map(json.loads, written.read_text().splitlines())
    }
    assert found.keys() == {"enqueue", "process", "step"}
    assert len({span["context"]["trace_id"] for span in found.values()}) == 1
    assert found["process"]["parent_id"] == found["enqueue"]["context"]["span_id"]
    assert found["step"]["parent_id"] == found["process"]["context"]["span_id"]
