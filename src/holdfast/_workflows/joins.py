"""Children of a run: what a step asks to start, when it is over, and what it returns."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

from pydantic_core import from_json, to_json

from holdfast._engine.enqueue import NewTask, batch_json
from holdfast._engine.steps import StartingStep
from holdfast._serialization.codec import ResultCodec
from holdfast._serialization.text import load_json
from holdfast._workflows.children import ChildFact, Children
from holdfast._workflows.facts import StepFact
from holdfast._workflows.memory import Wait, to_datetime
from holdfast._workflows.step import codec_of
from holdfast.errors import InvalidStep, StepResultMismatch, TaskCancelled, TaskFailed

OnCancel = Literal["cancel", "leave"]
JoinKind = Literal["children", "first"]
MAX_IN_A_RACE = 100


class ChildHandler(Protocol):
    """What runs a child."""

    @property
    def type(self) -> str: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def result(self) -> ResultCodec: ...


class ChildTask(Protocol):
    """A task of the application, as `@app.task` or `using` returns it."""

    @property
    def handler(self) -> ChildHandler: ...
    def build(self, *args: Any, **kwargs: Any) -> NewTask: ...
    def handle(self, task_id: UUID | str) -> Any: ...


class Join:
    """One call of `ctx.map` or `ctx.first`: children that are started once, and awaited."""

    def __init__(
        self,
        kind: JoinKind,
        results: Sequence[ResultCodec | None],
        build: Callable[[], Sequence[NewTask]],
        *,
        count: int,
        keys: Sequence[str] | None = None,
        on_cancel: OnCancel,
        return_exceptions: bool = False,
    ) -> None:
        """`results` read what the children return; one is enough if all are of one type."""
        if on_cancel not in ("cancel", "leave"):
            raise InvalidStep(f"on_cancel is 'cancel' or 'leave', not {on_cancel!r}")
        self.kind = kind
        self.build = build
        self.count = count
        self.keys = keys
        self._results = results
        self._on_cancel = on_cancel
        self._return_exceptions = return_exceptions

    def step(self, name: str, number: int) -> StartingStep:
        return StartingStep(name, number, awaited=True, leave=self._on_cancel == "leave", keys=self.keys)

    def is_over(self, children: Children) -> bool:
        if self.kind == "first" and len(children.others) < children.count:
            return True
        return children.open == 0

    def wait(self, name: str, until: float, children: Children) -> Wait:
        if self.kind == "children":
            return Wait(name, until, policy="all")
        others = children.others.values()
        return Wait(name, until, on_tasks=tuple((c.number, c.task_id) for c in others if c.is_open))

    def memo(self, children: Children) -> str:
        """What is remembered of its end: which children failed, or which one was first."""
        if self.kind == "first":
            succeeded = (n for n in range(1, children.count + 1) if n not in children.others)
            return json.dumps({"count": children.count, "first": next(succeeded, None)})
        return json.dumps({"count": children.count, "failed": sorted(children.others)})

    def value(self, name: str, fact: StepFact, children: Children) -> Any:
        """What `ctx.map` or `ctx.first` returns, or raise what it raises."""
        end = load_json(fact.result)
        if self.kind == "first":
            return self._value_of_first(name, end["first"], children)
        return self._value_of_all(
            name, self._in_order(name, self._ends(name, end["failed"], children), children)
        )

    def given_value(self, name: str, given: Any) -> Any:
        """What it returns if its tasks end like this: a result or an exception for each, or for the first."""
        if self.kind == "first":
            return given
        codec = self._results[0]
        if not isinstance(given, Sequence) or len(given) != self.count or codec is None:
            raise InvalidStep(f"{name} has {self.count} tasks: give a result or an exception for each")
        ends = [
            _Failed(one) if isinstance(one, Exception) else codec.load(to_json(one).decode()) for one in given
        ]
        return self._value_of_all(name, ends)

    def _value_of_all(self, name: str, ends: list[Any]) -> list[Any]:
        errors = [one.error for one in ends if isinstance(one, _Failed)]
        if not errors:
            return ends
        if not self._return_exceptions:
            message = f"{len(errors)} of {len(ends)} tasks of {name} did not succeed; the first: {errors[0]}"
            raise ExceptionGroup(message, errors)
        return [one.error if isinstance(one, _Failed) else one for one in ends]

    def _value_of_first(self, name: str, winner: int | None, children: Children) -> Any:
        if winner is None:
            errors = [_failure(child) for child in children.others.values()]
            message = f"none of the {len(errors)} tasks of {name} succeeded; the first: {errors[0]}"
            raise ExceptionGroup(message, errors)
        place = sum(1 for n in range(1, winner) if n not in children.others)
        result = from_json(children.results(name))[place]
        codec = self._results[winner - 1]
        return result if codec is None else codec.load(json.dumps(result))

    def _ends(self, name: str, failed: Sequence[int], children: Children) -> list[Any]:
        """A result or a failure for each child, in the order in which they were started."""
        lost = next((c for n, c in children.others.items() if n not in set(failed)), None)
        if lost is not None:  # removed by hand
            raise StepResultMismatch(
                f"the result of task {lost.task_id} of {name} is gone: it is {lost.status}"
            )
        codec = self._results[0]
        written = children.results(name)
        results = iter(from_json(written) if codec is None else codec.load_many(written))
        now_succeeded = set(failed) - children.others.keys()  # retried since
        ends: list[Any] = []
        for number in range(1, children.count + 1):
            child = children.others.get(number)
            if child is None:
                result = next(results)
                ends.append(_Failed(_retried_since(name, number)) if number in now_succeeded else result)
            else:
                ends.append(_Failed(_failure(child)))
        return ends

    def _in_order(self, name: str, ends: list[Any], children: Children) -> list[Any]:
        """In the order of the items of this attempt: by key, or else as they were started."""
        hint = "Take the items from a step, so that a resumed run has the same ones."
        if self.keys is not None and children.keys is not None:
            by_key = dict(zip(children.keys, ends, strict=True))
            missing = next((key for key in self.keys if key not in by_key), None)
            if missing is not None:
                message = f"{name} has started no task for the key {missing!r}: its items have changed since"
                raise StepResultMismatch(message, hint=hint)
            return [by_key[key] for key in self.keys]
        if len(ends) != self.count:
            message = f"{name} has started {len(ends)} tasks, and has {self.count} items now"
            raise StepResultMismatch(message, hint=hint)
        return ends


class _Failed(NamedTuple):
    error: Exception


def plan_map(
    task: ChildTask,
    items: Iterable[Any],
    key: Callable[[Any], object] | None,
    *,
    on_cancel: OnCancel,
    return_exceptions: bool,
) -> Join:
    name_of_child(task)  # refuses what is no task
    given = list(items)
    keys = None if key is None else [str(key(item)) for item in given]
    if keys is not None and len(set(keys)) < len(keys):
        twice = next(one for n, one in enumerate(keys) if one in keys[:n])
        raise InvalidStep(f"two items of ctx.map have the key {twice!r}", hint="Keys have to differ.")

    def build() -> list[NewTask]:
        """Only when the children are started: a run that resumes does not need them."""
        return [_item(task, item) for item in given]

    return Join(
        "children",
        [task.handler.result],
        build,
        count=len(given),
        keys=keys,
        on_cancel=on_cancel,
        return_exceptions=return_exceptions,
    )


def _item(task: ChildTask, item: Any) -> NewTask:
    if not isinstance(item, NewTask):
        return task.build(item)
    if item.type != task.handler.type:
        raise InvalidStep(f"ctx.map of {task.handler.type} got a task of type {item.type}")
    return item


def plan_first(tasks: Sequence[Any], *, on_cancel: OnCancel) -> Join:
    if not 1 <= len(tasks) <= MAX_IN_A_RACE:
        raise InvalidStep(f"ctx.first takes 1 to {MAX_IN_A_RACE} tasks, not {len(tasks)}")
    odd = next((given for given in tasks if not isinstance(given, NewTask)), None)
    if odd is not None:
        raise InvalidStep(f"ctx.first takes tasks, such as charge.build(7), not {odd!r}")
    results = [getattr(given, "result", None) for given in tasks]
    return Join("first", results, lambda: tasks, count=len(tasks), on_cancel=on_cancel)


def results_before(children: Children, kinds: Sequence[Any]) -> list[Any]:
    """What `ctx.after` returns: a result or an error for each task before this one, in order."""
    if children.open:
        raise StepResultMismatch("a task before this one has not ended: it was retried since this one began")
    if len(kinds) > 1 and len(kinds) != children.count:
        raise InvalidStep(f"ctx.after got {len(kinds)} types for {children.count} tasks before this one")
    codecs = [_result_codec(kind) for kind in kinds or (Any,)]
    results = iter(from_json(children.results("")))
    found: list[Any] = []
    for number in range(1, children.count + 1):
        failed = children.others.get(number)
        codec = codecs[0] if len(codecs) == 1 else codecs[number - 1]
        found.append(_failure(failed) if failed is not None else codec.load(json.dumps(next(results))))
    return found


def _result_codec(kind: Any) -> ResultCodec:
    handler = getattr(kind, "handler", None)
    return codec_of("a task before this one", kind) if handler is None else handler.result


def name_of_child(task: ChildTask) -> str:
    """The name of its step: that of the function."""
    handler = getattr(task, "handler", None)
    if handler is None:
        raise InvalidStep(
            f"children are tasks, and {task!r} is none",
            hint="Decorate the function with @app.task, or call it with ctx.step.",
        )
    return str(getattr(handler.function, "__name__", handler.type))


def started_id(fact: StepFact) -> str:
    """The child of `ctx.start`."""
    return str(load_json(fact.result)["task_ids"][0])


def check_added(tasks: Sequence[Any]) -> None:
    odd = next((given for given in tasks if not hasattr(given, "handle")), None)
    if odd is not None:
        raise InvalidStep(f"ctx.batch.add takes tasks, such as resize.build(7), not {odd!r}")


def added_handles(name: str, tasks: Sequence[Any], fact: StepFact) -> list[Any]:
    """The tasks of `ctx.batch.add` in a resumed run."""
    task_ids = load_json(fact.result)["task_ids"]
    if len(task_ids) != len(tasks):
        message = f"{name} has added {len(task_ids)} tasks, and has {len(tasks)} now"
        raise StepResultMismatch(
            message, hint="Take the tasks from a step, so that a resumed run has the same."
        )
    return [task.handle(task_id) for task, task_id in zip(tasks, task_ids, strict=True)]


def tasks_json(tasks: Sequence[NewTask], now: float) -> tuple[str, list[str] | None]:
    """The tasks and payloads for `start_children`. A delay counts from now, by the clock of the database."""
    if any("delay" in task.options for task in tasks):
        options: dict[int, dict[str, Any]] = {}
        tasks = [_without_delay(task, now, options) for task in tasks]
    return batch_json(tasks)


def _without_delay(task: NewTask, now: float, known: dict[int, dict[str, Any]]) -> NewTask:
    options = known.get(id(task.options))
    if options is None:
        given = task.options
        options = {name: value for name, value in given.items() if name != "delay"}
        if "delay" in given:
            options["run_at"] = to_datetime(now) + given["delay"]
        known[id(given)] = options
    return NewTask.with_checked(task.type, task.payload, options, None)


def _retried_since(name: str, number: int) -> Exception:
    return RuntimeError(
        f"task {number} of {name} had not succeeded when the run joined it; it was retried since"
    )


def _failure(child: ChildFact) -> Exception:
    because = f": {child.reason}" if child.reason else ""
    kind = TaskCancelled if child.status == "cancelled" else TaskFailed
    message = f"task {child.task_id} is {child.status}{because}"
    return kind(message, task_id=UUID(child.task_id), status=child.status)
