"""Steps of runs: how a worker records and reads them, and how anybody signals a run."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from holdfast._engine.statement import (
    Bound,
    Encoded,
    Rows,
    Statement,
    bigint,
    call,
    document,
    integer,
    many,
    nothing,
    scalar,
    select,
    sql_function,
    text,
    texts,
    uuid,
)
from holdfast._serialization.text import Json, RawJson, dump_json, json_array, load_json
from holdfast.errors import KeyConflict

MAX_VALUES = 1000
SignalAnswer = Literal["kept", "replayed", "conflict", "ended"]
Sent = Literal["kept", "replayed", "ended"]

_REMEMBERED = (
    "join queues.task_status t on t.task_id = answer.task_id and t.generation = answer.generation"
    " where answer.task_id = $1"
)
"""A run remembers the steps of its current generation."""

_FACTS = """
answer.task_id::text, answer.fact, answer.name, answer.number, answer.kind, date_part('epoch', answer.until),
answer.signal_id, answer.result::text, answer.error::text, date_part('epoch', queues.clock())"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What runs remember, by task_id, as of a time of the database. Each row is a `FactRow`."""

    rows: dict[str, list[tuple[Any, ...]]]
    clock: float


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """How a step of a run ended."""

    number: int
    name: str
    kind: str
    tries: int
    started_at: datetime
    ended_at: datetime
    until: datetime | None
    """Of a sleep: when it is over."""
    result: Json
    error: Json
    arguments: Json = None
    """What its function was called with, by name; null of others than steps and transactions."""


@dataclass(frozen=True, slots=True)
class StepValue:
    """What a run remembers of a step: its arguments, and its result or error cut if too long. JSON text."""

    name: str
    kind: str
    tries: int
    result: str | None
    error: str | None
    is_cut: bool
    arguments: str | None
    """Not cut again: they have at most 2 KiB."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened to a run: an event of its task, a step, a failed try, a signal, a wait."""

    happened: str
    name: str | None
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int | None
    tries: int | None
    worker_id: str | None
    actor: str | None
    reason: str | None
    related_id: UUID | None


Relation = Literal["process", "batch", "members", "parent", "fork_of", "replay_of", "schedule"]


@dataclass(frozen=True, slots=True)
class RelatedThing:
    """What a task belongs to or came from; of a batch, how many tasks it has and how many have ended."""

    relation: Relation
    name: str | None
    related_id: UUID | None
    process_id: int | None
    type: str | None
    status: str | None
    tasks: int | None
    ended: int | None


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """One thing that a suspended run waits for."""

    task_id: UUID
    type: str
    queue: str
    name: str
    signal: str | None
    on_task: UUID | None
    until: datetime


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A task that has steps and has not ended."""

    task_id: UUID
    type: str
    payload: Json
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StartingStep:
    """A step that starts children: whether it waits for them, and what becomes of them when the run ends."""

    name: str
    number: int
    awaited: bool = False
    leave: bool = False
    batch: bool = False
    keys: Sequence[str] | None = None


def run_json(task_id: str, token: int, written: str, *, lazy: bool = False) -> str:
    """A run for `record_steps`. `written` is the inside of a JSON object: steps and tries.

    What says whose steps these are comes last: of two members with one name, PostgreSQL takes the last.
    """
    return f'{{{written}{_LAZY if lazy else ""},"task_id":"{task_id}","token":{token}}}'


_LAZY = ',"lazy":true'


def record_steps(worker_id: str, runs: Iterable[str]) -> Statement[list[tuple[str, Any]]]:
    """Record steps of running tasks (`run_json`). Returns a verdict for each, and what was stored before."""
    # The statement is built once: a run waits for it after every step.
    return Statement(_RECORD.sql, (worker_id, dump_json("runs", json_array(runs))), _verdicts)


def record_step(
    worker_id: bytes,
    task_id: str,
    token: int,
    *,
    name: str,
    number: int,
    took_ms: int,
    result: str,
    arguments: str | None = None,
) -> Statement[bool]:
    """Record one plain step of a running task. False if `record_steps` has to look closer."""
    params = (worker_id, task_id.encode(), b"%d" % token, name.encode(), b"%d" % number, b"%d" % took_ms)
    shown = None if arguments is None else arguments.encode()
    return Statement(_RECORD_ONE.sql, Encoded((*params, result.encode(), shown)), scalar)


def read_json(task_id: str, token: int, signals: Sequence[str]) -> str:
    """A run for `read_steps`, and the names of signals whose payloads it wants."""
    wanted = f',"signals":{json.dumps(signals)}' if signals else ""
    return f'{{"task_id":"{task_id}","token":{token}{wanted}}}'


def read_steps(worker_id: str, held: Iterable[str]) -> Statement[Facts]:
    """What these runs remember (`read_json`)."""
    arguments = {"worker_id": text(worker_id), "held": document(json_array(held))}
    return call("queues.read_steps", Rows(_FACTS, _facts), arguments)


def read_results(
    worker_id: str, task_id: str, token: int, step: str, after: int
) -> Statement[list[tuple[int, str]]]:
    """The next results of the children of a step, after this place: each with its place, as JSON text."""
    arguments = {
        "worker_id": text(worker_id),
        "task_id": uuid(UUID(task_id)),
        "token": bigint(token),
        "step": text(step),
        "after_number": integer(after),
    }
    return call("queues.read_results", Rows("answer.number, answer.result::text", _places), arguments)


def start_children(
    worker_id: str, task_id: str, token: int, *, step: StartingStep, tasks: str, payloads: list[str] | None
) -> Statement[tuple[str, list[str]]]:
    """Start children of a running task. Returns the verdict, and their ids in order."""
    held = {name: value for name, value in asdict(step).items() if value is not None}
    arguments = {
        "worker_id": text(worker_id),
        "held": document({**held, "task_id": task_id, "token": token}),
        "tasks": document(RawJson(tasks)),
        "payloads": texts(payloads),
    }
    return call("queues.start_children", Rows("answer.verdict, answer.task_id::text", _started), arguments)


def wake_joined(task_ids: Sequence[str]) -> Statement[list[str] | None]:
    """Look at joins of tasks that have ended. Returns runs to look at again; None if there is no join."""
    return call("queues.wake_joined", scalar, {"task_ids": Bound("uuid[]", list(task_ids))})


def wake_waiting(task_ids: Sequence[str]) -> Statement[int]:
    """Look whether what these suspended runs wait for has come meanwhile."""
    return call("queues.wake_waiting", scalar, {"task_ids": Bound("uuid[]", list(task_ids))})


def signal(task_id: UUID, name: str, payload: Any, key: str | None = None) -> Statement[SignalAnswer]:
    arguments = {"task_id": uuid(task_id), "name": text(name), "payload": document(payload), "key": text(key)}
    return call("queues.signal", scalar, arguments)


def signal_key(
    task_type: str, idempotency_key: str, name: str, payload: Any, key: str | None = None
) -> Statement[SignalAnswer]:
    arguments = {
        "type": text(task_type),
        "idempotency_key": text(idempotency_key),
        "name": text(name),
        "payload": document(payload),
        "key": text(key),
    }
    return call("queues.signal_key", scalar, arguments)


def sent(answer: SignalAnswer, name: str) -> Sent:
    """What a signal has come to. A key that was used for another payload is an error."""
    if answer == "conflict":
        raise KeyConflict(
            f"a signal {name} with this key was sent before, with another payload",
            hint="Use another key, or send the same payload.",
        )
    return answer


def record_changes(task_type: str, names: Sequence[str]) -> Statement[None]:
    """Record that the code of this type asks `ctx.since` for these names."""
    return call("queues.record_changes", nothing, {"type": text(task_type), "names": texts(names)})


@sql_function("queues.fork")
def fork(task_id: UUID, before_step: str | None, reason: str | None) -> Statement[UUID]:
    """Run a task again as a new one that remembers the steps before this one."""


@sql_function("queues.run_timeline")
def run_timeline(task_id: UUID) -> Statement[list[TimelineEntry]]:
    """What happened to a run, in order."""


@sql_function("queues.related_to")
def related_to(task_id: UUID) -> Statement[list[RelatedThing]]:
    """What a task belongs to, and what it came from."""


def waiting_runs(queue: str | None, type_prefix: str | None, limit: int) -> Statement[list[WaitingRun]]:
    """Suspended runs and what they wait for; the next that is due comes first."""
    rest = (
        "where answer.queue = coalesce($1::text, answer.queue)"
        " and starts_with(answer.type, coalesce($2::text, ''))"
        " order by answer.until, answer.task_id, answer.name limit $3"
    )
    return select(many(WaitingRun), "queues.wait_status", rest, (queue, type_prefix, limit))


def waits_of_runs(task_ids: Sequence[UUID]) -> Statement[list[WaitingRun]]:
    """What these runs wait for; the next that is due comes first."""
    rest = "where answer.task_id = any ($1::uuid[]) order by answer.until, answer.task_id, answer.name"
    return select(many(WaitingRun), "queues.wait_status", rest, (list(task_ids),))


def unfinished_runs(types: Sequence[str], limit: int) -> Statement[list[UnfinishedRun]]:
    """A sample of the runs of these types that have recorded steps and have not ended."""
    rest = (
        "where answer.type = any ($1::text[]) and answer.finished_at is null and answer.deleted_at is null"
        " and exists (select from queues.step_status s where s.task_id = answer.task_id)"
        " order by md5(answer.task_id::text) limit $2"
    )
    return select(many(UnfinishedRun), "queues.task_status", rest, (list(types), limit))


def children_of(task_id: UUID) -> Statement[list[tuple[str, int, str | None, Any]]]:
    """The awaited children of each step of a run: its name, their number, results as JSON, and the others."""
    columns = "answer.step, answer.count, answer.results::text, answer.others::text"
    decode = Rows(columns, lambda rows: [(*row[:3], load_json(row[3])) for row in rows])
    return call("queues.children_of", decode, {"task_id": uuid(task_id)})


def waits_of(task_id: UUID) -> Statement[list[WaitingRun]]:
    """What a suspended run waits for; what is due next comes first."""
    rest = "where answer.task_id = $1 order by answer.until, answer.name"
    return select(many(WaitingRun), "queues.wait_status", rest, (task_id,))


def steps_of(task_id: UUID) -> Statement[list[RecordedStep]]:
    """The steps of a run that have come to an end, in the order in which it called them."""
    return _steps(task_id, " and (answer.kind <> 'sleep' or answer.until <= queues.clock())")


def memory_of(task_id: UUID) -> Statement[list[RecordedStep]]:
    """The same, with the sleeps that have begun and are not over: a run remembers when they are."""
    return _steps(task_id, "")


def _steps(task_id: UUID, also: str) -> Statement[list[RecordedStep]]:
    rest = f"{_REMEMBERED}{also} order by answer.number"
    return select(many(RecordedStep), "queues.step_status", rest, (task_id,))


def step_values(
    task_id: UUID, max_characters: int, max_steps: int = MAX_VALUES
) -> Statement[list[StepValue]]:
    """What a run remembers of its last steps, in their order."""
    most = int(max_characters)
    columns = (
        f"answer.name, answer.kind, answer.tries, left(answer.result::text, {most}),"
        f" left(answer.error::text, {most}),"
        f" greatest(length(answer.result::text), length(answer.error::text), 0) > {most},"
        " answer.arguments::text"
    )
    values = Rows(columns, lambda rows: [StepValue(*row) for row in reversed(rows)])
    rest = f"{_REMEMBERED} order by answer.number desc limit $2"
    return select(values, "queues.step_status", rest, (task_id, max_steps))


def _verdicts(rows: Sequence[Sequence[Any]]) -> list[tuple[str, Any]]:
    return [(verdict, load_json(stored)) for verdict, stored in rows]


_RECORD = call(
    "queues.record_steps",
    Rows("answer.verdict, answer.stored::text", _verdicts),
    {"worker_id": text(""), "runs": document(RawJson("[]"))},
)


_RECORD_ONE = call(
    "queues.record_step",
    scalar,
    {
        "worker_id": text(""),
        "task_id": uuid(UUID(int=0)),
        "token": bigint(0),
        "name": text(""),
        "number": integer(0),
        "took_ms": integer(0),
        "result": Bound("jsonb", "null"),
        "arguments": Bound("jsonb", "null"),
    },
)


def _started(rows: Sequence[Sequence[Any]]) -> tuple[str, list[str]]:
    return rows[0][0], [task_id for _, task_id in rows if task_id is not None]


def _places(rows: Sequence[Sequence[Any]]) -> list[tuple[int, str]]:
    return [(number, result) for number, result in rows]


def _facts(rows: Sequence[Sequence[Any]]) -> Facts:
    found: dict[str, list[tuple[Any, ...]]] = {}
    clock = 0.0
    for task_id, *fact, clock in rows:  # noqa: B007 - it is the same in every row
        found.setdefault(task_id, []).append(tuple(fact))
    return Facts(found, clock)
