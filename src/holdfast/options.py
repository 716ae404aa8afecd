"""The options of enqueue, declared once.

`Task.using`, `enqueue_many`, the HTTP API, `holdfast enqueue` and the reference are all built from this
declaration. To add an option, add a field here and a parameter to the SQL function `queues.enqueue`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints
from uuid import UUID

from holdfast.errors import InvalidArgument, did_you_mean

Kind = Literal["text", "name", "integer", "time", "duration", "document", "tasks", "transaction"]
Executor = Literal["python", "process", "command", "ray", "db_function", "email", "sms"]
EXECUTORS: tuple[Executor, ...] = get_args(Executor)
IN_DATABASE = frozenset(("db_function", "email", "sms"))
"""Executors that act with the rights of the database, for its business processes."""


@dataclass(frozen=True, slots=True)
class Option:
    """What an option means, and how clients other than Python give it."""

    kind: Kind
    help: str
    parameter: str | None = None
    """Its name in SQL and JSON, where that differs from the name in Python."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """What its JSON schema says besides the type."""
    http: bool = True
    command_line: bool = True


class Options(TypedDict, total=False):
    """The options that `using` takes. The decorator gives the defaults, then the engine does."""

    key: Annotated[
        str | None,
        Option(
            "text",
            "Idempotency key: enqueueing again with the same key returns the existing task.",
            parameter="idempotency_key",
            schema={
                "minLength": 1,
                "maxLength": 500,
                "pattern": r"^[!-~]([ -~]{0,498}[!-~])?$",
                "examples": ["invoice-7"],
            },
        ),
    ]
    delay: Annotated[
        float | timedelta | None,
        Option(
            "duration",
            "Do not start before this much time has passed on the database's clock.",
            schema={"minimum": 0, "maximum": 31_536_000, "examples": [300]},
        ),
    ]
    run_at: Annotated[
        datetime | None,
        Option(
            "time",
            "Do not start before this time.",
            schema={"examples": ["2030-01-31T08:00:00+00:00"]},
        ),
    ]
    priority: Annotated[
        int | None,
        Option(
            "integer",
            "From -100 to 100; higher starts first. By default as declared for the type, or 0.",
            schema={"minimum": -100, "maximum": 100, "examples": [0]},
        ),
    ]
    queue: Annotated[
        str | None,
        Option(
            "name",
            "The queue. By default as declared for the type, or the first segment of the type.",
            schema={"examples": ["billing"]},
        ),
    ]
    max_attempts: Annotated[
        int | None,
        Option(
            "integer",
            "How many attempts to make, from 1 to 1000. By default as declared for the type, or 3.",
            schema={"minimum": 1, "maximum": 1000, "examples": [3]},
        ),
    ]
    timeout: Annotated[
        float | timedelta | None,
        Option(
            "duration",
            "How long one attempt may run. By default as declared for the type, or without a limit.",
            schema={"minimum": 1, "maximum": 2_592_000, "examples": [30]},
        ),
    ]
    deadline: Annotated[
        float | timedelta | None,
        Option(
            "duration",
            "How long after its enqueue the task has to have ended, with all attempts and waiting. By "
            "default as declared for the type, or without a limit.",
            schema={"minimum": 1, "maximum": 3_153_600_000, "examples": [86_400]},
        ),
    ]
    concurrency_key: Annotated[
        str | None,
        Option(
            "text",
            "Tasks with the same key count against one concurrency limit: see `holdfast limits`.",
            schema={
                "minLength": 1,
                "maxLength": 200,
                "pattern": r"^[!-~]([ -~]{0,198}[!-~])?$",
                "examples": ["customer-7"],
            },
        ),
    ]
    shard_key: Annotated[
        str | None,
        Option(
            "text",
            "With shards, tasks with the same key are on the same shard. By default its concurrency_key "
            "decides, or its type and key.",
            schema={
                "minLength": 1,
                "maxLength": 200,
                "pattern": r"^[!-~]([ -~]{0,198}[!-~])?$",
                "examples": ["tenant-7"],
            },
        ),
    ]
    metadata: Annotated[
        Mapping[str, Any] | None,
        Option(
            "document",
            "A JSON object that is stored with the task and given to its handler in the context.",
            schema={"maxProperties": 50, "examples": [{"order": 1}]},
        ),
    ]
    after: Annotated[
        Sequence[Any] | None,
        Option(
            "tasks",
            "Tasks that have to end first.",
            schema={"maxItems": 1000, "examples": [["0193e5a8-0000-7000-8000-000000000000"]]},
        ),
    ]
    when: Annotated[
        Literal["succeeded", "ended"] | None,
        Option(
            "text",
            "With after: `succeeded` (the default) cancels the task if one of them does not succeed; "
            "`ended` runs it in any case.",
            schema={"enum": ["succeeded", "ended"], "examples": ["succeeded"]},
        ),
    ]
    unique: Annotated[
        Literal["waiting", "unfinished"] | None,
        Option(
            "text",
            "With key: return the task of this type with this key that has not begun, or has not ended.",
            schema={"enum": ["waiting", "unfinished"], "examples": ["waiting"]},
        ),
    ]
    debounce: Annotated[
        float | timedelta | None,
        Option(
            "duration",
            "With key: run this long after the last enqueue, with its arguments. Replaces the waiting task.",
            schema={"minimum": 0, "maximum": 31_536_000, "examples": [5]},
        ),
    ]
    debounce_max: Annotated[
        float | timedelta | None,
        Option(
            "duration",
            "With debounce: run at the latest this long after the first enqueue.",
            schema={"minimum": 0, "maximum": 31_536_000, "examples": [60]},
        ),
    ]
    tx: Annotated[
        Any,
        Option(
            "transaction",
            "Enqueue in this transaction: a connection or session of psycopg, asyncpg, SQLAlchemy or Django.",
            http=False,
            command_line=False,
        ),
    ]


class ClientOptions(TypedDict, total=False):
    """Options of clients without the application's code: in Python, the decorator decides these."""

    lease: Annotated[
        timedelta | None,
        Option(
            "duration",
            "How long a worker holds the task without a heartbeat. By default as declared for the type.",
            schema={"minimum": 1, "maximum": 86_400, "examples": [30]},
        ),
    ]
    executor: Annotated[
        Executor | None,
        Option(
            "text",
            "What runs the task. By default as declared for the type, or python.",
            schema={"enum": ["python", "process", "command", "ray"], "examples": ["python"]},
        ),
    ]


@cache
def python_options() -> dict[str, Option]:
    """The options of `using`, by name."""
    return _declared_in(Options)


@cache
def client_options() -> dict[str, Option]:
    """Every option, by its name in Python and on the command line."""
    return _declared_in(Options) | _declared_in(ClientOptions)


@cache
def parameters() -> dict[str, Option]:
    """The options that the engine takes, by the names of its parameters. A delay becomes its run_at."""
    return {
        option.parameter or name: option
        for name, option in client_options().items()
        if option.kind != "transaction"
    }


def check_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names of the engine's parameters, durations as timedelta. None counts as not given."""
    known = python_options()
    checked: dict[str, Any] = {}
    for name, value in given.items():
        option = known.get(name)
        if option is None:
            raise InvalidArgument(f"unknown option {name!r}{did_you_mean(name, known)}")
        if value is not None and option.kind != "transaction":
            check = _CHECKS.get(option.kind)
            checked[option.parameter or name] = value if check is None else check(name, value)
    if "run_at" in checked and "delay" in checked:
        raise InvalidArgument("give run_at or delay, not both")
    if is_arranged(checked):
        _check_arrangement(checked)
    return checked


def is_arranged(options: Mapping[str, Any]) -> bool:
    """Whether a task stands in a relation to others: after them, unique among them, or debounced."""
    return not ARRANGED.isdisjoint(options)


def _check_arrangement(given: Mapping[str, Any]) -> None:
    is_unique = "unique" in given or "debounce" in given
    if "after" in given and is_unique:
        raise InvalidArgument("a task that comes after others cannot be unique or debounced")
    if "when" in given and "after" not in given:
        raise InvalidArgument("when needs after=[…]")
    if is_unique and "idempotency_key" not in given:
        raise InvalidArgument(
            "a unique or debounced task needs a key", hint='using(key="…", unique="waiting")'
        )
    if "debounce" in given and ("delay" in given or "run_at" in given):
        raise InvalidArgument("a debounced task has no delay or run_at of its own")


def _check_tasks(name: str, given: Sequence[Any]) -> tuple[UUID, ...]:
    """Handles or ids of tasks, each once."""
    found = [getattr(one, "task_id", one) for one in given]
    odd = next((one for one in found if not isinstance(one, UUID)), None)
    if odd is not None:
        raise InvalidArgument(f"{name} takes handles of tasks, not {odd!r}")
    return tuple(dict.fromkeys(found))


def check_duration(name: str, given: object) -> timedelta:
    """Seconds or a timedelta, as a timedelta."""
    try:
        duration = given if isinstance(given, timedelta) else timedelta(seconds=given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} takes seconds or a timedelta, not {given!r}") from None
    if duration < timedelta(0):
        raise InvalidArgument(f"{name} must not be negative, but {given!r} is")
    return duration


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {"duration": check_duration, "tasks": _check_tasks}
ARRANGED = frozenset(("after", "when", "unique", "debounce", "debounce_max"))


def _declared_in(declaration: type) -> dict[str, Option]:
    hints = get_type_hints(declaration, include_extras=True)
    return {
        name: next(part for part in hint.__metadata__ if isinstance(part, Option))
        for name, hint in hints.items()
    }
