"""The names that a handler asks `ctx.since` for, as a worker finds them before it runs."""

import functools
import types
from enum import StrEnum
from typing import Any

from holdfast import App, Context, SyncContext
from holdfast._workflows.changes import changes_in

RELEASE = "2026-11"


class Change(StrEnum):
    WEIGH = "2026-11 weigh"


class Names:
    class Inner:
        PACK = "2026-11 pack"


def helper(n: int, ctx: Context | SyncContext) -> bool:
    return ctx.since("of a helper") or other(n, context=ctx)


def other(n: int, *, context: Context | SyncContext) -> bool:
    return context.since("of another") and helper(n, context)


def unrelated(n: int) -> Any:
    return n.since("not a change")  # type: ignore[attr-defined]


def handler(ctx: SyncContext, n: int) -> None:
    local = "computed"
    ctx.since("text")
    ctx.since(name=LATE)
    ctx.since(Names.Inner.PACK)
    ctx.since(Change.WEIGH)
    ctx.since(f"{RELEASE} survey")
    ctx.since(RELEASE + " label")
    ctx.since(f"change {n}")
    ctx.since(local)
    ctx.since(str(n))
    helper(n, ctx)
    unrelated(n)


LATE = "defined below its handler"


def test_names_are_text_and_constants_of_modules_and_classes() -> None:
    found = changes_in(handler)
    assert set(found) == {
        "text",
        "defined below its handler",
        "2026-11 pack",
        "2026-11 weigh",
        "2026-11 survey",
        "2026-11 label",
        "of a helper",
        "of another",
    }
    assert all(type(name) is str for name in found)


def test_they_are_found_below_decorators_and_partials() -> None:
    changed = "of a closure"

    def inner(ctx: SyncContext, n: int) -> bool:
        return ctx.since(changed)

    @functools.wraps(inner)
    def wrapped(*args: Any) -> bool:
        return inner(*args)

    assert changes_in(wrapped) == ("of a closure",)
    assert changes_in(functools.partial(inner, n=1)) == ("of a closure",)


def test_none_are_found_without_a_source() -> None:
    without = types.FunctionType(handler.__code__.replace(co_filename="missing.py"), {"__name__": "missing"})
    assert changes_in(without) == ()
    assert changes_in(len) == ()


def test_a_handler_without_a_context_is_not_read() -> None:
    app = App()

    @app.task("work.plain")
    def plain(n: int) -> Any:
        return unrelated(n)

    assert plain.handler.changes == ()
