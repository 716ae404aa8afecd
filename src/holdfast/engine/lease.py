"""Statements of a worker about the tasks that it holds."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.engine.statement import (
    Statement,
    call,
    columns_of,
    document,
    integer,
    load_json,
    many,
    only,
    scalar,
    span,
    text,
    texts,
    written_instant,
)
from holdfast.model import Claimed, Held, Result, Swept, Verdict


def claim(
    worker_id: str,
    max_tasks: int = 1,
    *,
    queues: Sequence[str] | None = None,
    type_prefixes: Sequence[str] | None = None,
    lease: timedelta | None = None,
    after: Any = None,
) -> Statement[list[Claimed]]:
    """Lease the first due tasks. `after` is the claim cursor: where the last claim of this worker ended."""
    arguments = {
        "worker_id": text(worker_id),
        "max_tasks": integer(max_tasks),
        "queues": texts(queues),
        "type_prefixes": texts(type_prefixes),
        "lease": span(lease),
        "after": None if after is None else document(after),
    }
    return call("queues.claim", many(Claimed), arguments, columns_of(Claimed))


def heartbeat(worker_id: str, held: Iterable[Held]) -> Statement[list[Verdict]]:
    beats = [
        _present(
            task_id=str(task.task_id),
            token=task.token,
            started_at=_instant("held.started_at", task.started_at),
            progress=task.progress,
        )
        for task in held
    ]
    return _settle("queues.heartbeat", worker_id, held=beats)


def finish(worker_id: str, results: Iterable[Result]) -> Statement[list[Verdict]]:
    """One call settles a batch of mixed results."""
    settled = [
        _present(
            task_id=str(result.task_id),
            token=result.token,
            status=result.status,
            result=result.result,
            error=result.error,
            run_at=_instant("results.run_at", result.run_at),
            started_at=_instant("results.started_at", result.started_at),
        )
        for result in results
    ]
    return _settle("queues.finish", worker_id, results=settled)


def release(worker_id: str, held: Iterable[Held]) -> Statement[list[Verdict]]:
    tokens = [{"task_id": str(task.task_id), "token": task.token} for task in held]
    return _settle("queues.release", worker_id, held=tokens)


def sweep(max_tasks: int | None = None) -> Statement[Swept]:
    return call("queues.sweep", only(Swept), {"max_tasks": integer(max_tasks)}, columns_of(Swept))


def run_function(function_name: str, payload: Any) -> Statement[Any]:
    """Call a business function; the answer is its envelope."""
    arguments = {"function_name": text(function_name), "payload": document(payload)}
    called = call("internal.run_function", scalar, arguments)
    return Statement(f"{called.sql}::text", called.params, lambda rows: load_json(scalar(rows)))


def _settle(function: str, worker_id: str, **batch: Any) -> Statement[list[Verdict]]:
    documents = {name: document(value) for name, value in batch.items()}
    return call(function, many(Verdict), {"worker_id": text(worker_id), **documents}, columns_of(Verdict))


def _instant(field: str, value: datetime | None) -> str | None:
    return None if value is None else written_instant(field, value)


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
