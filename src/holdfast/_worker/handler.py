"""Handlers: the function that runs the tasks of a type, with its options and its codecs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import wraps
from typing import Any

from pydantic.errors import PydanticUserError

from holdfast._engine.enqueue import Reuse
from holdfast._serialization.codec import ArgumentsCodec, ResultCodec
from holdfast._serialization.signature import (
    name_of,
    read_batch_signature,
    read_result,
    read_signature,
)
from holdfast._worker.handler_options import (
    DEFAULT_BATCH_WAIT_SECONDS,
    Place,
    check_handler_options,
    check_name,
)
from holdfast._workflows.changes import asks_since, changes_in
from holdfast.errors import InvalidHandler, ResultError
from holdfast.options import IN_DATABASE
from holdfast.resources import NO_RESOURCE_LIMITS, Resources
from holdfast.retry import RetryPolicy

MAX_SCHEMA_CHARACTERS = 30_000
"""Of a JSON schema that is registered: the database takes 64 KiB."""


DECLARED = ("queue", "priority", "max_attempts", "timeout", "deadline", "lease")
"""The options that a worker registers for the type, besides its executor."""


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

    def described(self) -> dict[str, Any]:
        """The options and the schemas, for people."""
        return {
            "description": self.function.__doc__,
            **{name: getattr(self, name) for name in DECLARED},
            "retry": repr(self.retry),
            "executor": self.executor,
            "resources": self.resources.as_message(),
            "fresh": self.fresh,
            "reuse": self.reuse,
            **self.schema(),
        }

    def declaration(self) -> dict[str, Any]:
        """What a worker registers for the type: for clients without the application's code."""
        declared = {
            "type": self.type,
            **{name: getattr(self, name) for name in DECLARED},
            # Those that act with the rights of the database cannot be declared.
            "executor": None if self.executor in IN_DATABASE else self.executor,
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


def build_handler(task_type: str, function: Callable[..., Any], **options: Any) -> Handler:
    """Refuses an invalid handler at decoration, not when its first task fails."""
    name = name_of(function)
    if not task_type or not isinstance(task_type, str):
        raise InvalidHandler(f"{name} needs a type such as 'billing.invoice_charge.v1', not {task_type!r}")
    chosen = check_handler_options(name, options)
    check_name(Place(name, chosen["executor"]), "type", task_type)
    batch = None if chosen["batch"] is None else _batch(function, chosen["batch"], chosen["batch_wait"])
    signature = read_signature(function) if batch is None else read_batch_signature(function)
    if batch is not None:
        [parameter] = signature.fields
        function = batch.for_one(task_type, parameter, is_async=signature.is_async)
    return Handler(
        type=task_type,
        function=function,
        is_async=signature.is_async,
        wants_context=signature.context is not None,
        resources=_resources(chosen["memory"], chosen["resources"]),
        ray=chosen["ray"] or {},
        reuse=(chosen["reuse"] or "succeeded") if chosen["deterministic"] else None,
        arguments=ArgumentsCodec(task_type, name, signature),
        result=ResultCodec(task_type, name, signature.result),
        batch=batch,
        retry=chosen["retry"],
        executor=chosen["executor"],
        fresh=chosen["fresh"],
        **{option: chosen[option] for option in DECLARED},
    )


def _batch(function: Callable[..., Any], size: int, wait: float | None) -> BatchHandler:
    _, result = read_result(function)
    seconds = DEFAULT_BATCH_WAIT_SECONDS if wait is None else wait
    return BatchHandler(function, size, seconds, returns_nothing=result is None)


def _resources(memory: int | None, resources: Resources | None) -> Resources:
    given = resources or NO_RESOURCE_LIMITS
    return given if memory is None else replace(given, memory=memory)
