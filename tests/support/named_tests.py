"""The tests of a file, by name, without running or importing it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def named_tests(path: Path) -> frozenset[str]:
    """As pytest writes them after the file: `test_x`, and `TestY::test_x` for methods."""
    return frozenset(_names(ast.parse(path.read_text()).body))


def _names(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, Function) and node.name.startswith("test"):
            yield within + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _names(node.body, f"{within}{node.name}::")
