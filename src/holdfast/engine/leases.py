"""Leases: claim, heartbeat, finish and release of the tasks that a worker holds."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from holdfast.engine.documents import (
    Json,
    RawJson,
    array_of,
    dump_json,
    load_json,
    object_of,
    report_json,
    written_instant,
)
from holdfast.engine.statement import (
    Bound,
    Statement,
    bigint,
    call,
    columns_of,
    document,
    first,
    integer,
    many,
    only,
    scalar,
    span,
    text,
    texts,
    uuid,
)

# held, deleted: a heartbeat · accepted: a finish · released: a release · already_done: a repeated call
VerdictWord = Literal["held", "deleted", "accepted", "released", "already_done", "cancelled", "lost", "busy"]
ResultStatus = Literal["succeeded", "failed", "retry", "snooze", "cancelled"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task that this worker holds until lease_until."""

    task_id: UUID
    token: int
    type: str
    executor: str
    payload_json: str
    attempt: int
    max_attempts: int
    lease_until: datetime
    timeout: timedelta | None
    metadata_json: str | None
    run_at: datetime
    lane_id: int

    @property
    def payload(self) -> Any:
        return json.loads(self.payload_json)

    @property
    def metadata(self) -> Any:
        return None if self.metadata_json is None else json.loads(self.metadata_json)


@dataclass(frozen=True, slots=True)
class NextDue:
    """How long until a claim may find something, and whether a due task waits for one that runs to end."""

    due: timedelta | None
    held: bool


@dataclass(frozen=True, slots=True)
class Held:
    """What a worker says it holds, for a heartbeat or a release."""

    task_id: UUID
    token: int
    started_at: datetime | None = None
    progress: Any = None


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt went, for a finish. `run_at` says when a retry or a snooze is due."""

    task_id: UUID
    token: int
    status: ResultStatus
    result: Any = None
    error: Any = None
    run_at: datetime | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one element of a heartbeat, finish or release."""

    task_id: UUID
    verdict: VerdictWord


@dataclass(frozen=True, slots=True)
class Swept:
    recovered: int
    dead: int


@dataclass(frozen=True, slots=True)
class LastError:
    """How the attempt before this one ended, and how long ago it was claimed."""

    kind: str
    recovered: bool
    detail: Json
    age: timedelta


# A worker's own view of a claim: no objects that it would only take apart again, and times as numbers.
_WORK = """
answer.task_id::text, answer.token, answer.type, answer.payload::text, answer.attempt, answer.max_attempts,
answer.executor, answer.metadata::text, date_part('epoch', answer.timeout),
date_part('epoch', answer.lease_until), date_part('epoch', answer.run_at), answer.lane_id,
date_part('epoch', queues.clock())"""


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


def claim_work(
    worker_id: str,
    max_tasks: int,
    *,
    queues: Sequence[str] | None,
    type_prefixes: Sequence[str] | None,
    lease: timedelta,
    after: str | None,
) -> Statement[Sequence[Sequence[Any]]]:
    """The same claim for the worker's hot path: rows as they come."""
    arguments = {
        "worker_id": text(worker_id),
        "max_tasks": integer(max_tasks),
        "queues": texts(queues),
        "type_prefixes": texts(type_prefixes),
        "lease": span(lease),
        "after": None if after is None else document(RawJson(after)),
    }
    return call("queues.claim", lambda rows: rows, arguments, _WORK)


def next_due(queues: Sequence[str] | None, type_prefixes: Sequence[str] | None) -> Statement[NextDue]:
    """How long until a claim may find something."""
    arguments = {"queues": texts(queues), "type_prefixes": texts(type_prefixes)}
    return call("queues.next_due", only(NextDue), arguments, columns_of(NextDue))


def settle_work(
    function: Literal["finish", "heartbeat", "release", "record_killed"], worker_id: str, written: str
) -> Statement[Sequence[Sequence[Any]]]:
    """A call of these whose batch is JSON text already; answers (task_id, verdict) as text."""
    batch = {"finish": "results", "record_killed": "killed"}.get(function, "held")
    arguments = {"worker_id": text(worker_id), batch: Bound("text::jsonb", RawJson(written))}
    return call(f"queues.{function}", lambda rows: rows, arguments, "answer.task_id::text, answer.verdict")


def heartbeat(worker_id: str, held: Iterable[Held]) -> Statement[list[Verdict]]:
    beats = (
        object_of(
            task_id=f'"{task.task_id}"',
            token=str(task.token),
            started_at=written_instant("held.started_at", task.started_at),
            progress=None if task.progress is None else report_json(task.progress),
        )
        for task in held
    )
    return _settle("queues.heartbeat", worker_id, held=array_of(beats))


def finish(worker_id: str, results: Iterable[Result]) -> Statement[list[Verdict]]:
    """One call settles a batch of mixed results. Nothing that a result or an error holds refuses it."""
    settled = (
        object_of(
            task_id=f'"{result.task_id}"',
            token=str(result.token),
            status=dump_json("results.status", result.status),
            result=None if result.result is None else report_json(result.result),
            error=None if result.error is None else report_json(result.error),
            run_at=written_instant("results.run_at", result.run_at),
            started_at=written_instant("results.started_at", result.started_at),
        )
        for result in results
    )
    return _settle("queues.finish", worker_id, results=array_of(settled))


def release(worker_id: str, held: Iterable[Held]) -> Statement[list[Verdict]]:
    tokens = (object_of(task_id=f'"{task.task_id}"', token=str(task.token)) for task in held)
    return _settle("queues.release", worker_id, held=array_of(tokens))


def sweep(max_tasks: int | None = None) -> Statement[Swept]:
    return call("queues.sweep", only(Swept), {"max_tasks": integer(max_tasks)}, columns_of(Swept))


def run_function(function_name: str, payload: Any) -> Statement[Any]:
    """Call a business function; the answer is its envelope."""
    arguments = {"function_name": text(function_name), "payload": document(payload)}
    called = call("internal.run_function", scalar, arguments)
    return Statement(f"{called.sql}::text", called.params, lambda rows: load_json(scalar(rows)))


def call_function(function_name: str, payload: str) -> Statement[tuple[Any, str | None]]:
    """The same for a worker: JSON text in, and out the envelope and its payload as JSON text."""
    arguments = {"function_name": text(function_name), "payload": document(RawJson(payload))}
    columns = "answer::text, (answer -> 'payload')::text"
    return call("internal.run_function", _envelope, arguments, columns)


def _envelope(rows: Sequence[Sequence[Any]]) -> tuple[Any, str | None]:
    answer, payload = rows[0]
    return load_json(answer), payload


def last_error(worker_id: str, task_id: UUID, token: int) -> Statement[LastError | None]:
    """How the attempt before this one ended, of a task that the worker holds."""
    arguments = {"worker_id": text(worker_id), "task_id": uuid(task_id), "token": bigint(token)}
    return call("queues.last_error", first(LastError), arguments, columns_of(LastError))


def _settle(function: str, worker_id: str, **batch: RawJson) -> Statement[list[Verdict]]:
    documents = {name: document(value) for name, value in batch.items()}
    return call(function, many(Verdict), {"worker_id": text(worker_id), **documents}, columns_of(Verdict))
