"""Statements that enqueue tasks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from uuid import UUID, uuid4

from holdfast._engine.statement import (
    Argument,
    Bound,
    Statement,
    Texts,
    call,
    document,
    due,
    integer,
    interval,
    many,
    only,
    scalar,
    text,
    texts,
    timestamptz,
)
from holdfast._serialization.text import (
    RawJson,
    dump_json,
    json_array,
    json_object,
    seconds_json,
    text_json,
    time_json,
)
from holdfast.errors import InvalidArgument, did_you_mean
from holdfast.options import ARRANGED, is_arranged, parameters

# succeeded: a run of the same spec that has succeeded; active: also one that has not ended
Reuse = Literal["succeeded", "active"]
# succeeded: only if all before it have succeeded; ended: whatever became of them
When = Literal["succeeded", "ended"]
REUSES: tuple[Reuse, ...] = get_args(Reuse)
_NO_ARGUMENTS: Mapping[str, Any] = {}


class NewTask:
    """A task to enqueue. Options have the names of the parameters of `queues.enqueue`, and `delay`.

    A plain class, because a frozen dataclass takes twice as long to create.
    """

    __slots__ = ("options", "payload", "reuse", "type")

    def __init__(
        self,
        type: str,  # noqa: A002 - the engine's name for it
        payload: Any = _NO_ARGUMENTS,
        *,
        reuse: Reuse | None = None,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in parameters():
                raise InvalidArgument(f"unknown option {name!r}{did_you_mean(name, parameters())}")
        self.type = type
        self.payload = payload
        self.reuse = reuse
        self.options: Mapping[str, Any] = {name: v for name, v in options.items() if v is not None}

    def __repr__(self) -> str:
        return f"<NewTask {self.type}>"

    @classmethod
    def with_checked(
        cls, task_type: str, payload: RawJson, options: Mapping[str, Any], reuse: Reuse | None
    ) -> "NewTask":
        """Options that are checked already; many tasks may share the same mapping."""
        task = cls.__new__(cls)
        task.type, task.payload, task.options, task.reuse = task_type, payload, options, reuse
        return task

    @property
    def idempotency_key(self) -> str | None:
        return self.options.get("idempotency_key")


@dataclass(slots=True)
class Enqueued:
    """The id of a task, and whether it is new. Not frozen, because that takes twice as long to create."""

    task_id: UUID
    created: bool


_ENQUEUE_MANY = call("queues.enqueue_many", many(Enqueued), {"tasks": document([])}).sql
_ENQUEUE_PAYLOADS = call(
    "queues.enqueue_many", many(Enqueued), {"tasks": document([]), "payloads": texts([])}
).sql
# A delay becomes a time on the database's clock.
_DELAYED = """(
  select jsonb_agg(case when element -> 'delay' is not null
      then element - 'delay' || jsonb_build_object('run_at', queues.clock() + (element ->> 'delay')::interval)
      else element end order by position)
  from jsonb_array_elements({tasks}) with ordinality listed(element, position))"""

_BIND: dict[str, Callable[[Any], Argument]] = {
    "text": text,
    "name": text,
    "integer": integer,
    "time": timestamptz,
    "duration": interval,
    "document": document,
    "tasks": lambda value: Bound("uuid[]", list(value)),
}
_WRITE: dict[str, Callable[[str, Any], str | None]] = {
    "text": text_json,
    "name": text_json,
    "integer": dump_json,
    "time": time_json,
    "duration": lambda _, value: seconds_json(value),
    "document": dump_json,
    "tasks": lambda name, value: dump_json(name, [str(task_id) for task_id in value]),
}


def enqueue(task: NewTask) -> Statement[UUID]:
    return call("queues.enqueue", scalar, arguments_of(task))


def enqueue_many(tasks: Iterable[NewTask]) -> Statement[list[Enqueued]]:
    """All or nothing. Returns one row per task, in their order."""
    asked = list(tasks)
    written, payloads = batch_json(asked)
    params: tuple[RawJson | Texts, ...]
    if payloads is not None:
        sql, params = _ENQUEUE_PAYLOADS, (written, payloads)
    else:
        sql, params = _ENQUEUE_MANY, (written,)
    if any("delay" in task.options for task in asked):
        sql = _with_delays(sql, "$1::text::jsonb")
    return Statement(sql, params, many(Enqueued))


def batch_json(asked: Sequence[NewTask]) -> tuple[RawJson, Texts | None]:
    """The tasks, and the payloads of tasks that differ only in those: then there is one task for all."""
    if shared := _shared_object(asked):
        payloads = _written(asked, lambda task: dump_json("payload", task.payload))
        return json_array([shared]), Texts(payloads)
    objects: dict[tuple[str, int], str] = {}
    return json_array(_written(asked, lambda task: _element(task, objects))), None


def enqueue_json(
    tasks: str, token_hash: bytes | None = None, *, delayed: bool = False
) -> Statement[list[Enqueued]]:
    """A batch that is JSON already: it is sent as it is, so that no digit is lost.

    In the namespace of the access token, or in that of the connection's login. Elements may have a delay if
    `delayed` says so.
    """
    batch = Bound("text::jsonb", RawJson(tasks))
    if token_hash is None:
        built = call("queues.enqueue_many", many(Enqueued), {"tasks": batch})
    else:
        arguments = {"token_hash": Bound("bytea", token_hash), "tasks": batch}
        built = call("queues.enqueue_for_token", many(Enqueued), arguments)
    if not delayed:
        return built
    sql = _with_delays(built.sql, f"${len(built.params)}::text::jsonb")
    return Statement(sql, built.params, built.decode)


def enqueue_after(
    tasks: Iterable[NewTask], after: Sequence[UUID], condition: When | None
) -> Statement[list[Enqueued]]:
    """Tasks that wait until these have ended. What their own options say about that is replaced."""
    written = json_array(_written(tasks, task_json))
    arguments = {
        "tasks": document(written),
        "after": Bound("uuid[]", list(after)),
        "condition": text(condition or "succeeded"),
    }
    return call("queues.enqueue_after", many(Enqueued), arguments)


def keep_together(tasks: Sequence[NewTask]) -> list[NewTask]:
    """The same tasks with one shard_key, for a front: tasks wait only for others on their own shard.

    A task that has another key is looked for on the shard of that key, so it is not moved.
    """
    given = {task.options["shard_key"] for task in tasks if "shard_key" in task.options}
    keyed = any(
        "shard_key" not in task.options and task.options.keys() & {"idempotency_key", "concurrency_key"}
        for task in tasks
    )
    if keyed or len(given) > 1:
        raise InvalidArgument(
            "this is a front, and tasks that wait for each other have to be on one shard",
            hint="Give all of them the same shard_key.",
        )
    shard_key = given.pop() if given else uuid4().hex
    return [
        NewTask.with_checked(task.type, task.payload, {**task.options, "shard_key": shard_key}, task.reuse)
        for task in tasks
    ]


def _enqueue_arranged(task: NewTask) -> Statement[Enqueued]:
    """One task that comes after others, or that is unique or debounced."""
    options = task.options
    if "after" in options:
        many_of_one = enqueue_after([_without(task, "after", "when")], options["after"], options.get("when"))
        return Statement(many_of_one.sql, many_of_one.params, lambda rows: many_of_one.decode(rows)[0])
    arguments = {f'"{name}"' if name == "unique" else name: one for name, one in arguments_of(task).items()}
    arguments["key"] = arguments.pop("idempotency_key", text(None))
    return call("queues.enqueue_unique", only(Enqueued), arguments)


def _without(task: NewTask, *names: str) -> NewTask:
    options = {name: value for name, value in task.options.items() if name not in names}
    return NewTask.with_checked(task.type, task.payload, options, task.reuse)


def enqueue_one(task: NewTask) -> Statement[Enqueued]:
    """The shortest statement that also tells whether the task is new. Without a key it always is."""
    if not ARRANGED.isdisjoint(task.options):  # is_arranged, without the call
        return _enqueue_arranged(task)
    if task.idempotency_key is not None:
        batch = enqueue_many([task])
        return Statement(batch.sql, batch.params, lambda rows: batch.decode(rows)[0])
    if task.reuse is not None:  # on a front, equal tasks are on the same shard whatever their shard_key
        arguments = {**arguments_of(task), '"unique"': text(task.reuse)}
        return call("queues.enqueue_unique", only(Enqueued), arguments)
    alone = enqueue(task)
    return Statement(alone.sql, alone.params, lambda rows: Enqueued(alone.decode(rows), created=True))


def arguments_of(task: NewTask) -> dict[str, Argument]:
    """The arguments of the SQL functions that take one task."""
    known = parameters()
    arguments: dict[str, Argument] = {"type": text(task.type), "payload": document(task.payload)}
    for name, value in task.options.items():
        if name == "delay":
            arguments["run_at"] = due(None, value)
        else:
            arguments[name] = _BIND[known[name].kind](value)
    return arguments


def task_json(task: NewTask) -> str:
    """One task as JSON, as batches and schedules have it."""
    return _element(task, {})


def _written(tasks: Iterable[NewTask], write: Callable[[NewTask], str]) -> list[str]:
    """Each task as JSON. An error names the position of its task."""
    written: list[str] = []
    try:
        for task in tasks:
            written.append(write(task))  # noqa: PERF401 - its length tells which one was refused
    except InvalidArgument as error:
        raise type(error)(f"tasks[{len(written)}].{error.message}", hint=error.hint) from None
    return written


def _shared_object(tasks: Sequence[NewTask]) -> str | None:
    """The type and options of a batch whose tasks differ only in their payload: sent and checked once."""
    if len(tasks) < 2 or "idempotency_key" in tasks[0].options:  # noqa: PLR2004 - one task shares nothing
        return None
    task_type, options = tasks[0].type, tasks[0].options
    if is_arranged(options) or any(task.options is not options or task.type != task_type for task in tasks):
        return None
    try:
        return _object(task_type, options)
    except InvalidArgument as error:
        raise type(error)(f"tasks[0].{error.message}", hint=error.hint) from None


def _with_delays(sql: str, tasks: str) -> str:
    return sql.replace(tasks, _DELAYED.format(tasks=tasks))


def _element(task: NewTask, objects: dict[tuple[str, int], str]) -> str:
    """One element of a batch. Options that several tasks share are written once."""
    shared = (task.type, id(task.options))
    written = objects.get(shared)
    if written is None:
        written = objects[shared] = _object(task.type, task.options)
    return f'{written[:-1]},"payload":{dump_json("payload", task.payload)}}}'


def _object(task_type: str, options: Mapping[str, Any]) -> str:
    known = parameters()
    members = {name: _WRITE[known[name].kind](name, value) for name, value in options.items()}
    return json_object(type=text_json("type", task_type), **members)
