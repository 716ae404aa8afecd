"""Which changes a handler asks `ctx.since` for, read from its source."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def changes_in(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names that it passes to `since` as text. None are found where the source is not available."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    found = [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "since"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]
    return tuple(dict.fromkeys(found))
