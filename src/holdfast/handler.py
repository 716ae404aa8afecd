"""Handlers: the function that runs the tasks of a type, with its options and its codecs."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import wraps
from typing import Any, Required, TypedDict

from pydantic.errors import PydanticUserError

from holdfast.engine.enqueue import REUSES, Reuse
from holdfast.errors import InvalidHandler, ResultError, did_you_mean
from holdfast.options import EXECUTORS, IN_DATABASE
from holdfast.resources import NO_RESOURCE_LIMITS, Resources
from holdfast.retry import DEFAULT_RETRY, RetryPolicy
from holdfast.serialization.codec import ArgumentsCodec, ResultCodec
from holdfast.serialization.signature import (
    name_of,
    read_batch_signature,
    read_result,
    read_signature,
)
from holdfast.workflows.changes import asks_since, changes_in

RAY_OPTIONS = (
    *("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "label_selector", "runtime_env"),
    "scheduling_strategy",
)
"""Options of `ray.remote` that say what a run needs. The others belong to Holdfast."""
MAX_NAME_BYTES = 200
# As queues.check_name decides: white space and control characters are listed by number.
_NO_SPACE = r"[^.:\x00-\x20\x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]+"
_NAME = re.compile(rf"{_NO_SPACE}(?:[.:]{_NO_SPACE})*")
MAX_SCHEMA_CHARACTERS = 30_000
"""Of a JSON schema that is registered: the database takes 64 KiB."""


class HandlerOptions(TypedDict, total=False):
    """The options of `@app.task`, declared once. docs/reference/python.md describes them."""

    queue: str | None
    priority: int
    max_attempts: int
    timeout: float | None
    deadline: float | timedelta | None
    lease: float | None
    retry: RetryPolicy
    executor: str
    memory: int | str | None
    resources: Resources | None
    fresh: bool
    ray: Mapping[str, Any] | None
    deterministic: bool
    reuse: Reuse | None


class BatchHandlerOptions(HandlerOptions, total=False):
    """The options of a handler that takes many tasks at once."""

    batch: Required[int]
    batch_wait: float


DEFAULT_OPTIONS: HandlerOptions = {
    "queue": None,
    "priority": 0,
    "max_attempts": 3,
    "timeout": None,
    "deadline": None,
    "lease": None,
    "retry": DEFAULT_RETRY,
    "executor": "python",
    "memory": None,
    "resources": None,
    "fresh": False,
    "ray": None,
    "deterministic": False,
    "reuse": None,
}

MAX_BATCH = 10_000
MAX_BATCH_WAIT_SECONDS = 60.0
DEFAULT_BATCH_WAIT_SECONDS = 0.1
_BATCH_OPTIONS = ("batch", "batch_wait")


@dataclass(frozen=True, slots=True)
class BatchHandler:
    """A function that takes the items of up to `size` tasks, which are gathered for up to `wait` seconds."""

    function: Callable[..., Any]
    size: int
    wait: float
    returns_nothing: bool

    def results_of(self, task_type: str, value: Any, count: int) -> Sequence[Any]:
        """One result for each task. Raises ResultError if the function returned more or fewer."""
        if value is None and self.returns_nothing:
            return [None] * count
        if not isinstance(value, list | tuple):
            returned = f"a {type(value).__name__}, not a list"
        elif len(value) == count:
            return value
        else:
            returned = f"{len(value)} results for {count} tasks"
        raise ResultError(
            f"the handler of {task_type} returned {returned}",
            hint="Return a list with one result or outcome for each task, in the same order.",
        )

    def for_one(self, task_type: str, parameter: str, *, is_async: bool) -> Callable[..., Any]:
        """The function for a single task, as a batch of one."""

        @wraps(self.function)
        async def in_loop(**given: Any) -> Any:
            return self._only(task_type, await self.function([given[parameter]]))

        @wraps(self.function)
        def here(**given: Any) -> Any:
            return self._only(task_type, self.function([given[parameter]]))

        return in_loop if is_async else here

    def _only(self, task_type: str, value: Any) -> Any:
        [result] = self.results_of(task_type, value, 1)
        if isinstance(result, BaseException):
            raise result
        return result


@dataclass(frozen=True, slots=True)
class Handler:
    """Built by `build_handler`, which reads the function's signature."""

    type: str
    function: Callable[..., Any]
    is_async: bool
    wants_context: bool
    retry: RetryPolicy
    timeout: float | None
    deadline: float | None
    lease: float | None
    executor: str
    max_attempts: int
    queue: str | None
    priority: int
    resources: Resources
    fresh: bool
    ray: Mapping[str, Any]
    reuse: Reuse | None
    arguments: ArgumentsCodec = field(repr=False, compare=False)
    result: ResultCodec = field(repr=False, compare=False)
    batch: BatchHandler | None = field(default=None, repr=False, compare=False)
    """Set if it takes many tasks at once. `function` then takes one."""
    remembers_first: bool = field(init=False, repr=False, compare=False)
    """Whether something has to be known of the run before its first step."""
    defaults: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    """What the decorator declared, as options of enqueue."""

    def __post_init__(self) -> None:
        # Always given where the payload may hold a task_type, by which the engine would choose one.
        names_executor = self.executor != "python" or self.may_have("task_type")
        declared = {
            "queue": self.queue,
            "priority": self.priority or None,
            "max_attempts": self.max_attempts,
            "lease": None if self.lease is None else timedelta(seconds=self.lease),
            "executor": self.executor if names_executor else None,
            "deadline": None if self.deadline is None else timedelta(seconds=self.deadline),
        }
        given = {name: value for name, value in declared.items() if value is not None}
        object.__setattr__(self, "defaults", given)
        object.__setattr__(self, "remembers_first", self.wants_context and asks_since(self.declared))

    @property
    def declared(self) -> Callable[..., Any]:
        """The function below `@app.task`."""
        return self.function if self.batch is None else self.batch.function

    @property
    def changes(self) -> tuple[str, ...]:
        """The names that it asks `ctx.since` for. Read from its source, when a worker starts."""
        return changes_in(self.declared) if self.wants_context else ()

    def may_have(self, field: str) -> bool:
        """Whether its payloads may have a member of this name."""
        return self.arguments.takes_others or field in self.arguments.names

    def schema(self) -> dict[str, Any]:
        """JSON schemas of the arguments and the result."""
        return {"arguments": self.arguments.schema(), "result": self.result.schema()}

    def declaration(self) -> dict[str, Any]:
        """What a worker registers for the type: for clients without the application's code."""
        declared = {
            "type": self.type,
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "timeout": self.timeout,
            "deadline": self.deadline,
            "lease": self.lease,
            # Those that act with the rights of the database cannot be declared.
            "executor": self.executor if self.executor in ("python", "process", "command", "ray") else None,
            "schema": self._schema_to_register(),
        }
        return {name: value for name, value in declared.items() if value is not None}

    def _schema_to_register(self) -> dict[str, Any] | None:
        """None if it is too large, or if pydantic has no JSON schema for a type."""
        try:
            schema = self.schema()
        except PydanticUserError:
            return None
        return schema if len(json.dumps(schema)) <= MAX_SCHEMA_CHARACTERS else None


def _check_name(function: str, field: str, given: object) -> None:
    """Refuse what `enqueue` would refuse."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise InvalidHandler(
            f"{function}: {field} {given!r} is malformed",
            hint='Segments are separated by "." or ":", are not empty and have no white space:'
            " billing.invoice_charge.v1",
        )
    size = len(given.encode("utf-8", "replace"))
    if size > MAX_NAME_BYTES:
        raise InvalidHandler(
            f"{function}: {field} is {size} bytes long, and at most {MAX_NAME_BYTES} are allowed"
        )


def build_handler(task_type: str, function: Callable[..., Any], **options: Any) -> Handler:
    """Refuses an invalid handler at decoration, not when its first task fails."""
    name = name_of(function)
    for given in options:
        if given not in (known := (*DEFAULT_OPTIONS, *_BATCH_OPTIONS)):
            raise InvalidHandler(f"{name}: unknown option {given!r}{did_you_mean(given, known)}")
    batch_options = {given: options.pop(given) for given in _BATCH_OPTIONS if given in options}
    chosen: HandlerOptions = {**DEFAULT_OPTIONS, **options}  # type: ignore[typeddict-item] # checked above
    retry, executor = chosen["retry"], chosen["executor"]
    if not task_type or not isinstance(task_type, str):
        raise InvalidHandler(f"{name} needs a type such as 'billing.invoice_charge.v1', not {task_type!r}")
    _check_name(name, "type", task_type)
    if chosen["queue"] is not None:
        _check_name(name, "queue", chosen["queue"])
    if not isinstance(retry, RetryPolicy):
        raise InvalidHandler(
            f"{name}: retry takes a policy such as Exponential() or NoRetry(), not {retry!r}"
        )
    if executor not in EXECUTORS:
        raise InvalidHandler(f"{name}: executor {executor!r} is not one of {', '.join(EXECUTORS)}")
    batch = _batch(name, function, chosen, **batch_options) if batch_options else None
    signature = read_signature(function) if batch is None else read_batch_signature(function)
    if batch is not None:
        [parameter] = signature.fields
        function = batch.for_one(task_type, parameter, is_async=signature.is_async)
    return Handler(
        type=task_type,
        function=function,
        is_async=signature.is_async,
        wants_context=signature.context is not None,
        retry=retry,
        timeout=_seconds(name, "timeout", chosen["timeout"]),
        deadline=_deadline(name, executor, chosen["deadline"]),
        lease=_seconds(name, "lease", chosen["lease"]),
        executor=executor,
        max_attempts=chosen["max_attempts"],
        queue=chosen["queue"],
        priority=chosen["priority"],
        resources=_resources(name, executor, chosen["memory"], chosen["resources"]),
        fresh=_fresh(name, executor, chosen["fresh"]),
        ray=_ray(name, executor, chosen["ray"]),
        reuse=_reuse(name, chosen["deterministic"], chosen["reuse"]),
        arguments=ArgumentsCodec(task_type, name, signature),
        result=ResultCodec(task_type, name, signature.result),
        batch=batch,
    )


def _batch(
    name: str,
    function: Callable[..., Any],
    chosen: HandlerOptions,
    batch: Any = None,
    batch_wait: Any = DEFAULT_BATCH_WAIT_SECONDS,
) -> BatchHandler:
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MAX_BATCH:
        raise InvalidHandler(f"{name}: batch takes a number of tasks from 1 to {MAX_BATCH}, not {batch!r}")
    if isinstance(batch_wait, bool) or not isinstance(batch_wait, int | float):
        raise InvalidHandler(f"{name}: batch_wait takes seconds, not {batch_wait!r}")
    if not 0 <= batch_wait <= MAX_BATCH_WAIT_SECONDS:
        raise InvalidHandler(
            f"{name}: batch_wait takes 0 to {MAX_BATCH_WAIT_SECONDS:g} seconds, not {batch_wait!r}"
        )
    if chosen["executor"] != "python":
        raise InvalidHandler(f"{name}: batch needs the executor python, not {chosen['executor']}")
    _, result = read_result(function)
    return BatchHandler(function, batch, float(batch_wait), returns_nothing=result is None)


def _resources(name: str, executor: str, memory: int | str | None, resources: Resources | None) -> Resources:
    if memory is None and resources is None:
        return NO_RESOURCE_LIMITS
    if executor not in ("process", "command"):
        raise InvalidHandler(
            f"{name}: memory and resources need a child process, and the executor {executor} has none",
            hint='Add executor="process".',
        )
    if resources is not None and not isinstance(resources, Resources):
        raise InvalidHandler(f"{name}: resources takes Resources(…), not {resources!r}")
    if memory is None:
        return resources or NO_RESOURCE_LIMITS
    return replace(resources or NO_RESOURCE_LIMITS, memory=Resources(memory=memory).memory)


def _fresh(name: str, executor: str, fresh: bool) -> bool:
    if fresh and executor != "process":
        raise InvalidHandler(
            f"{name}: fresh asks for a new child process for each task, not for the executor {executor}",
            hint='Add executor="process"; a command has a new process anyway.',
        )
    return bool(fresh)


def _ray(name: str, executor: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is None:
        return {}
    if executor != "ray":
        raise InvalidHandler(
            f"{name}: ray says what a run needs of a Ray cluster, and the executor {executor} uses none",
            hint='Add executor="ray".',
        )
    if not isinstance(given, Mapping):
        raise InvalidHandler(f'{name}: ray takes options such as {{"num_gpus": 1}}, not {given!r}')
    for option in given:
        if option not in RAY_OPTIONS:
            raise InvalidHandler(
                f"{name}: ray has no option {option!r}{did_you_mean(str(option), RAY_OPTIONS)}"
            )
    return dict(given)


def _reuse(name: str, deterministic: bool, reuse: Reuse | None) -> Reuse | None:
    if reuse not in (None, *REUSES):
        raise InvalidHandler(f"{name}: reuse {reuse!r} is not one of {', '.join(REUSES)}")
    if reuse is not None and not deterministic:
        raise InvalidHandler(
            f"{name}: only the result of a deterministic task can be reused", hint="Add deterministic=True."
        )
    return (reuse or "succeeded") if deterministic else None


def _deadline(name: str, executor: str, given: float | timedelta | None) -> float | None:
    if given is not None and executor in IN_DATABASE:
        raise InvalidHandler(f"{name}: a task of the executor {executor} has no deadline")
    return _seconds(name, "deadline", given.total_seconds() if isinstance(given, timedelta) else given)


def _seconds(name: str, option: str, given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
        raise InvalidHandler(f"{name}: {option} takes seconds above 0, not {given!r}")
    return float(given)
