"""Leases: how a worker claims tasks, runs functions in the database, and reports how its attempts ended.

The batches of `heartbeat`, `finish`, `release` and `record_killed` are JSON text, one object per task, made
by the `*_json` functions. Payloads and results are never decoded here: a worker sends thousands per second.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from holdfast._engine.statement import (
    Argument,
    BigInt,
    Bound,
    Rows,
    Statement,
    bigint,
    call,
    document,
    integer,
    interval,
    many,
    only,
    sql_function,
    text,
    texts,
    uuid,
)
from holdfast._serialization.text import Json, RawJson, json_array, load_json

# held, deleted: a heartbeat · accepted: a finish · released: a release · recorded: a killed run
# already_done: a repeated call · busy: another session has locked the task, so call again
Verdict = Literal[
    "held", "deleted", "accepted", "released", "recorded", "already_done", "cancelled", "lost", "busy"
]
ResultStatus = Literal["succeeded", "failed", "retry", "snooze", "suspend", "continue", "cancelled"]


class Claimed(NamedTuple):
    """A task that this worker holds until `lease_until`. Documents are JSON text, times Unix seconds."""

    task_id: str
    token: int
    type: str
    payload: str
    attempt: int
    max_attempts: int
    executor: str
    metadata: str | None
    timeout: float | None
    lease_until: float
    run_at: float
    lane_id: int
    queue: str
    ends_at: float | None
    clock: float


_CLAIMED = """
answer.task_id::text, answer.token, answer.type, answer.payload::text, answer.attempt, answer.max_attempts,
answer.executor, answer.metadata::text, date_part('epoch', answer.timeout),
date_part('epoch', answer.lease_until), date_part('epoch', answer.run_at), answer.lane_id,
answer.queue, date_part('epoch', answer.ends_at), date_part('epoch', queues.clock())"""


@dataclass(frozen=True, slots=True)
class NextDue:
    """How long until a claim may find a task, and whether a due task waits for a running one to end."""

    due: timedelta | None
    held: bool


@dataclass(frozen=True, slots=True)
class FleetState:
    """What a worker has to know about the others."""

    registered: bool
    term_left: timedelta | None
    """How long the current term lasts unless it is renewed; None if there is no leader."""
    sweep_in: timedelta | None
    """How long until this worker should sweep; None if there were no leases at the last sweep."""


@dataclass(frozen=True, slots=True)
class Rest(FleetState):
    """How long until a claim may find a task, whether a due task waits for a running one to end, and more."""

    due: timedelta | None
    held: bool
    idle: bool


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a worker reports about itself: its resident memory, the attempts that ended, and their rate."""

    memory_bytes: int | None
    finished: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Swept:
    """How many tasks with an expired lease were returned to their queue, and how many are dead letters."""

    recovered: int
    dead: int


@dataclass(frozen=True, slots=True)
class Handled:
    """Whether another live worker has a handler for a task, and for how long it was postponed without one."""

    handled: bool
    waiting: timedelta


@dataclass(frozen=True, slots=True)
class LastError:
    """How the previous attempt ended, and how long ago it was claimed."""

    kind: str
    recovered: bool
    detail: Json
    age: timedelta


def claim(
    worker_id: str,
    max_tasks: int = 1,
    *,
    queues: Sequence[str] | None = None,
    type_prefixes: Sequence[str] | None = None,
    lease: timedelta | None = None,
    after: str | None = None,
) -> Statement[list[Claimed]]:
    """Lease the first due tasks. `after` is the claim cursor: JSON of where the previous claim ended."""
    arguments = {
        "worker_id": text(worker_id),
        "max_tasks": integer(max_tasks),
        "queues": texts(queues),
        "type_prefixes": texts(type_prefixes),
        "lease": interval(lease),
        "after": None if after is None else document(RawJson(after)),
    }
    return call("queues.claim", Rows(_CLAIMED, _claimed), arguments)


@sql_function("queues.next_due")
def next_due(queues: Sequence[str] | None, type_prefixes: Sequence[str] | None) -> Statement[NextDue]:
    """How long until a claim may find a task."""


def rest(
    worker_id: str,
    queues: Sequence[str] | None,
    type_prefixes: Sequence[str] | None,
    vitals: Vitals | None = None,
    *,
    holding: bool,
) -> Statement[Rest]:
    """Learn how long there is nothing to do. A worker that holds no tasks stays registered by it."""
    arguments = {
        "worker_id": text(worker_id),
        "holding": Bound("boolean", holding),
        "queues": texts(queues),
        "type_prefixes": texts(type_prefixes),
        **_vitals(vitals),
    }
    return call("queues.rest", only(Rest), arguments)


def held_json(
    task_id: UUID | str,
    token: int,
    *,
    started_at: str | None = None,
    progress: str | None = None,
    trouble: str | None = None,
) -> str:
    """A task in a heartbeat or a release. `progress` is JSON, `started_at` a time as PostgreSQL reads it.

    `trouble` is the name of what delays its run, for health.
    """
    held = f'{{"task_id":"{task_id}","token":{token}'
    if started_at is not None:
        held += f',"started_at":"{started_at}"'
    if progress is not None:
        held += f',"progress":{progress}'
    if trouble is not None:
        held += f',"trouble":"{trouble}"'
    return held + "}"


def result_json(
    task_id: UUID | str,
    token: int,
    status: ResultStatus,
    *,
    result: str | None = None,
    error: str | None = None,
    run_at: str | None = None,
    started_at: str | None = None,
    memo: str | None = None,
    payload: str | None = None,
    ends_at: str | None = None,
) -> str:
    """How an attempt ended, for `finish`. `result` and `error` are JSON; a retry is due at `run_at`.

    `memo` is the inside of a JSON object: the steps that come with the report, and what a run waits for.
    `payload` holds the arguments of the run that goes on. The task is due at `ends_at` at the latest.
    """
    ended = "{"
    if memo is not None:
        ended += f"{memo},"
    if started_at is not None:
        ended += f'"started_at":"{started_at}",'
    if result is not None:
        ended += f'"result":{result},'
    if error is not None:
        ended += f'"error":{error},'
    if run_at is not None:
        ended += f'"run_at":"{run_at}",'
    if payload is not None:
        ended += f'"payload":{payload},'
    if ends_at is not None:
        ended += f'"ends_at":"{ends_at}",'
    # Last, as in run_json: of two members with one name, PostgreSQL takes the last.
    return f'{ended}"status":"{status}","task_id":"{task_id}","token":{token}}}'


def killed_json(task_id: UUID | str, token: int, error: str) -> str:
    """A run that was killed after its lease was lost, for `record_killed`. `error` is JSON."""
    return f'{{"task_id":"{task_id}","token":{token},"error":{error}}}'


def heartbeat(
    worker_id: str, held: Iterable[str], vitals: Vitals | None = None, *, complete: bool = True
) -> Statement[list[Verdict]]:
    """Extend the leases of these tasks (`held_json`). Returns a verdict for each, in their order.

    `complete`: with this call, the database has been told of every task that the worker has begun.
    """
    arguments = {
        "worker_id": text(worker_id),
        "held": document(json_array(held)),
        **_vitals(vitals),
        "complete": Bound("boolean", complete),
    }
    return call("queues.heartbeat", Rows("answer.verdict", _verdicts), arguments)


def finish(worker_id: str, results: Iterable[str], *, looks_again: bool = False) -> Statement[list[Verdict]]:
    """Record how attempts ended (`result_json`). Returns a verdict for each, in their order.

    A worker that `looks_again` afterwards is not notified that a limit has room for a due task.
    """
    arguments = {
        "worker_id": text(worker_id),
        "results": document(json_array(results)),
        "looks_again": Bound("boolean", looks_again),
    }
    return call("queues.finish", Rows("answer.verdict", _verdicts), arguments)


def release(worker_id: str, held: Iterable[str]) -> Statement[list[Verdict]]:
    """Return tasks to their queue (`held_json`). Returns a verdict for each, in their order."""
    return _settle("queues.release", worker_id, held=json_array(held))


def record_killed(worker_id: str, killed: Iterable[str]) -> Statement[list[Verdict]]:
    """Record the errors of killed runs (`killed_json`). Returns a verdict for each, in their order."""
    return _settle("queues.record_killed", worker_id, killed=json_array(killed))


@sql_function("queues.sweep")
def sweep(max_tasks: int | None = None) -> Statement[Swept]:
    """Recover tasks whose leases have expired."""


@sql_function("queues.last_error")
def last_error(worker_id: str, task_id: UUID, token: BigInt) -> Statement[LastError | None]:
    """How the previous attempt of a task that the worker holds ended."""


def handled_elsewhere(worker_id: str, held: Iterable[str]) -> Statement[list[Handled]]:
    """Whether other workers have handlers for these tasks (`held_json`), in their order."""
    arguments = {"worker_id": text(worker_id), "held": document(json_array(held))}
    return call("queues.handled_elsewhere", many(Handled), arguments)


def run_function(
    function_name: str, payload: Any, task_id: UUID | None = None
) -> Statement[tuple[Any, str | None]]:
    """Call a business function. Returns its envelope, and the envelope's payload as JSON text.

    It acts for the namespace of this task, or of the instance of a process with this wait key.
    """
    arguments = {
        "function_name": text(function_name),
        "payload": document(payload),
        "task_id": uuid(task_id),
    }
    columns = "answer::text, (answer -> 'payload')::text"
    return call("internal.run_function", Rows(columns, _envelope), arguments)


def _claimed(rows: Sequence[Sequence[Any]]) -> list[Claimed]:
    return list(map(Claimed._make, rows))


def _envelope(rows: Sequence[Sequence[Any]]) -> tuple[Any, str | None]:
    envelope, payload = rows[0]
    return load_json(envelope), payload


def _settle(function: str, worker_id: str, **batch: RawJson) -> Statement[list[Verdict]]:
    documents = {name: document(value) for name, value in batch.items()}
    return call(function, Rows("answer.verdict", _verdicts), {"worker_id": text(worker_id), **documents})


def _vitals(vitals: Vitals | None) -> dict[str, Argument]:
    if vitals is None:
        return {}
    return {
        "memory_bytes": bigint(vitals.memory_bytes),
        "finished": bigint(vitals.finished),
        "per_second": Bound("real", vitals.per_second),
    }


def _verdicts(rows: Sequence[Sequence[Any]]) -> list[Verdict]:
    return [row[0] for row in rows]
