"""Which changes a handler asks `ctx.since` for, as far as its code tells before it runs."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any

from holdfast.errors import InvalidStep

MAX_CHANGE = 100
"""Characters of a name."""


def changes_in(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names that it passes to `since`, and those of the functions to which it passes its context.

    A name is text, a constant of a module or a class, or put together of these. Asked when a worker starts:
    then the modules are complete. None are found where the source is not available.
    """
    found: dict[str, None] = {}
    plain = _plain(function)
    if isinstance(plain, FunctionType):
        context = next((name for name in plain.__code__.co_varnames[:2] if name != "self"), "")
        _Reader(found, set()).read(plain, (context,))
    return tuple(found)


def asks_since(function: Callable[..., Any]) -> bool:
    """Whether its own code uses an attribute `since`: then it may ask before its first step."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return isinstance(code, CodeType) and _names(code, "since")


def first_seen_of(change: object, announced: Mapping[str, float]) -> float:
    """When a worker with this change first started. It announces the names that it finds in the code."""
    if not isinstance(change, str) or not 1 <= len(change) <= MAX_CHANGE:
        raise InvalidStep(f"ctx.since takes text of 1 to {MAX_CHANGE} characters, not {change!r:.100}")
    if change not in announced:
        raise InvalidStep(
            f"ctx.since({change!r}): no worker has found this name in the code, so it has no beginning",
            hint="Pass text, or a constant of a module or class, in the handler or a function that gets ctx.",
        )
    return announced[change]


class _Reader:
    """Reads a handler and, each once, the functions that it hands its context to."""

    def __init__(self, found: dict[str, None], seen: set[CodeType]) -> None:
        self._found = found
        self._seen = seen

    def read(self, function: FunctionType, contexts: tuple[str, ...]) -> None:
        """`contexts` are its variables that may hold the context."""
        if function.__code__ in self._seen:
            return
        self._seen.add(function.__code__)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._read_call(function, node, contexts)

    def _read_call(self, function: FunctionType, call: ast.Call, contexts: tuple[str, ...]) -> None:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "since":
            given = [*call.args, *(one.value for one in call.keywords if one.arg == "name")]
            name = _value(function, given[0]) if given else None
            if isinstance(name, str) and 1 <= len(name) <= MAX_CHANGE:
                self._found[str.__str__(name)] = None
            return
        places = [n for n, one in enumerate(call.args) if isinstance(one, ast.Name) and one.id in contexts]
        keywords = [
            one.arg
            for one in call.keywords
            if one.arg and isinstance(one.value, ast.Name) and one.value.id in contexts
        ]
        if not places and not keywords:
            return
        called = _plain(_value(function, call.func))
        if isinstance(called, FunctionType):
            given_names = called.__code__.co_varnames
            self.read(called, (*(given_names[n] for n in places if n < len(given_names)), *keywords))


def _value(function: FunctionType, node: ast.expr) -> Any:  # noqa: PLR0911 - a table
    """What the expression is in every run; None if it is not known before."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id not in function.__code__.co_varnames:
            return _variable(function, node.id)
        case ast.Attribute():
            owner = _value(function, node.value)
            return getattr(owner, node.attr, None) if isinstance(owner, ModuleType | type | Enum) else None
        case ast.BinOp(op=ast.Add()):
            return _joined([_value(function, node.left), _value(function, node.right)])
        case ast.JoinedStr():
            return _joined([_value(function, part) for part in node.values])
        case ast.FormattedValue(conversion=-1, format_spec=None):
            return _value(function, node.value)
    return None


def _joined(parts: list[Any]) -> str | None:
    return "".join(parts) if all(type(part) is str for part in parts) else None


def _variable(function: FunctionType, name: str) -> Any:
    free = function.__code__.co_freevars
    if name not in free:
        return function.__globals__.get(name)
    try:
        return (function.__closure__ or ())[free.index(name)].cell_contents
    except ValueError:  # not bound yet
        return None


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function) or inspect.isclass(function):
        return None
    function = inspect.unwrap(getattr(function, "__func__", function))
    return function if inspect.isroutine(function) else type(function).__call__


def _names(code: CodeType, name: str) -> bool:
    return name in code.co_names or any(
        _names(inner, name) for inner in code.co_consts if isinstance(inner, CodeType)
    )
