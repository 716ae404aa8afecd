"""What may be a task is decided where it is decorated, not when the first one fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import App, NoRetry
from holdfast._worker.handler import build_handler
from holdfast.errors import InvalidHandler
from holdfast.options import client_options

if TYPE_CHECKING:
    from decimal import Decimal

    from holdfast import Context


class Opaque:
    """Nothing that JSON has a form for."""


async def with_context(ctx: Context, n: int) -> int:
    return n


def with_named_context(ctx, n: int) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return n


def without_context(context: str, n: int) -> int:
    return n


class Instance:
    async def __call__(self, n: int) -> int:
        return n


@pytest.mark.parametrize(
    ("function", "is_async", "wants_context", "fields"),
    [
        (with_context, True, True, {"n"}),
        (with_named_context, False, True, {"n"}),
        (without_context, False, False, {"context", "n"}),
        (Instance(), True, False, {"n"}),
        (functools.partial(with_context), True, True, {"n"}),
        (lambda: None, False, False, set()),
    ],
)
def test_a_signature_says_how_its_function_is_called(
    function: Callable[..., Any], is_async: bool, wants_context: bool, fields: set[str]
) -> None:
    handler = build_handler("decoration.read", function)
    assert (handler.is_async, handler.wants_context) == (is_async, wants_context)
    assert handler.schema()["arguments"].get("properties", {}).keys() == fields


def _refused() -> dict[str, Callable[..., Any]]:
    def missing(x: Decimal) -> None: ...
    def opaque(a: int, x: Opaque) -> None: ...
    def opaque_result() -> Opaque: ...  # type: ignore[empty-body]
    def late(n: int, ctx: Context) -> None: ...
    def positional(n: int, /) -> None: ...
    def several(*rest: int) -> None: ...
    def generator() -> Any:
        yield 1

    def broken(x: int | 3) -> None: ...  # type: ignore[valid-type]

    return {
        "name 'Decimal' is not defined, in the annotation 'Decimal' of parameter 'x'": missing,
        "the type of parameter 'x', has no form in JSON": opaque,
        "the type of what it returns, has no form in JSON": opaque_result,
        "its context 'ctx' has to be the first parameter": late,
        "takes 'n' by position only": positional,
        r"takes \*rest": several,
        "is a generator": generator,
        "of parameter 'x' cannot be read": broken,
        "is not a function": Opaque,
    }


@pytest.mark.parametrize(("reason", "function"), _refused().items())
def test_a_function_that_no_payload_can_call_is_refused(reason: str, function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidHandler, match=reason):
        build_handler("decoration.refused", function)


@pytest.mark.parametrize("name", sorted(client_options()))
def test_a_parameter_may_have_the_name_of_an_option(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def handler({name}): ...", scope)  # noqa: S102 - the name is the subject
    task = App().task("decoration.same_name")(scope["handler"])
    built = task.using(key="k").build(**{name: "x"})
    assert (built.payload, built.options["idempotency_key"]) == (f'{{"{name}":"x"}}', "k")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"retry": 3}, "retry takes a policy"),
        ({"executor": "cloud"}, "executor 'cloud' is not one of python, process"),
        ({"timeout": 0}, "timeout takes seconds or a timedelta above 0"),
        ({"lease": "1m"}, "lease takes seconds or a timedelta above 0"),
        ({"priority": 101}, "priority takes a whole number from -100 to 100"),
        ({"max_attempts": True}, "max_attempts takes a whole number from 1 to 1000"),
        ({"memory": "1G"}, "memory and resources need a child process"),
        ({"ray": {"num_gpus": 1}}, "the option ray requires executor"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidHandler, match=reason):
        App().task("decoration.option", **options)(without_context)


def test_durations_are_seconds_or_a_timedelta() -> None:
    handler = build_handler(
        "decoration.durations", without_context, timeout=timedelta(minutes=1), lease=9, deadline=timedelta(1)
    )
    assert (handler.timeout, handler.lease, handler.deadline) == (60.0, 9.0, 86_400.0)


@pytest.mark.parametrize(
    "name", ["My Task!", "a..b", ".a", "a.", "a\u200bb", "a\n", "x" * 201, "é" * 101, "\0"]
)
def test_a_type_or_a_queue_that_enqueue_would_refuse_is_refused(name: str) -> None:
    app = App()
    with pytest.raises(InvalidHandler, match=r"malformed|at most 200"):
        app.task(name)(lambda: None)
    with pytest.raises(InvalidHandler, match="queue"):
        app.task("work.add", queue=name)(lambda: None)
    assert not app.tasks


def test_a_type_has_one_handler() -> None:
    app = App()
    app.task("decoration.once")(without_context)
    with pytest.raises(
        InvalidHandler, match=r"decoration\.once already has a handler: <function without_context"
    ):
        app.task("decoration.once")(with_context)


def test_a_decorator_without_a_type_is_refused() -> None:
    with pytest.raises(InvalidHandler, match=r"write @app\.task"):
        App().task(without_context)  # type: ignore[call-overload]


def test_a_task_is_still_the_function_that_it_was() -> None:
    app = App()

    @app.task("decoration.double", retry=NoRetry())
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert double(4) == 8
    assert (list(inspect.signature(double).parameters), double.__doc__) == (["n"], "Twice as much.")
    assert double.type == "decoration.double"
    assert app.tasks["decoration.double"] is double
    assert app.handlers["decoration.double"].retry == NoRetry()


def test_a_closure_may_be_a_handler() -> None:
    names = list[int]

    def handler(given: names) -> Any:
        return names(given)

    assert build_handler("decoration.closure", handler).arguments.decode('{"given": ["1"]}') == {"given": [1]}


def test_the_schema_of_an_app_has_limits_arguments_and_results() -> None:
    app = App()

    @app.task("decoration.describe", queue="q", priority=2, max_attempts=7, timeout=5, lease=60)
    def describe(n: int, names: list[str] = []) -> dict[str, int]:  # noqa: B006 - never changed
        """Counts."""
        return dict.fromkeys(names, n)

    [(task_type, described)] = app.schema().items()
    assert task_type == "decoration.describe"
    assert described["arguments"]["required"] == ["n"]
    assert described["arguments"]["properties"]["names"]["default"] == []
    assert described["result"] == {"additionalProperties": {"type": "integer"}, "type": "object"}
    limits = {name: described[name] for name in ("queue", "priority", "max_attempts", "timeout", "lease")}
    assert limits == {"queue": "q", "priority": 2, "max_attempts": 7, "timeout": 5.0, "lease": 60.0}
    assert described["description"] == "Counts."


def test_an_unknown_option_is_refused_with_the_closest_name() -> None:
    app = App()
    options: Any = {"max_attempt": 5}
    with pytest.raises(InvalidHandler, match=r"unknown option 'max_attempt'.*max_attempts"):
        app.task("decoration.unknown", **options)(lambda: None)

    task = app.task("decoration.known")(lambda: None)
    times: Any = {"evry": 5}
    with pytest.raises(InvalidHandler, match=r"unknown option 'evry'.*every"):
        app.schedule(**times)(task)
