"""Tests of one server, borrowed for a front: the same functions, with the fixtures of tests/shards."""

import re
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "shards.md"
_TEST = re.compile(r"^\| `([a-z_/]+::test_\w+)` \| (.+) \|$", re.MULTILINE)


def borrow(module: str) -> dict[str, Any]:
    """The tests and fixtures of a module, such as app/test_enqueue, and the fixtures of commands.

    Those that the page about shards lists must fail: a difference that has gone has to leave the page.
    """
    found = _fixtures(_loaded("cli/conftest")) if module.startswith("cli/") else {}
    found.pop("empty_db", None)
    loaded = _loaded(module)
    found |= _fixtures(loaded)
    for name, value in vars(loaded).items():
        if name.startswith("test_") and isinstance(value, FunctionType):
            found[name] = _expected(value, listed_differences().get(f"{module}::{name}"))
    return found


@cache
def listed_differences() -> dict[str, str]:
    """What the page about shards lists: each test that a front does not pass, and what differs."""
    return dict(_TEST.findall(PAGE.read_text()))


def _fixtures(module: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if type(value).__name__ == "FixtureFunctionDefinition" or hasattr(value, "_pytestfixturefunction")
    }


def _loaded(module: str) -> Any:
    """By its path: the directory of the tests of HTTP has the name of a standard module."""
    name = f"borrowed_{module.replace('/', '_')}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, TESTS / f"{module}.py")
        assert spec
        assert spec.loader
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _expected(test: FunctionType, difference: str | None) -> Any:
    if difference is None:
        return test
    # A copy: the mark must not reach the test of one server.
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__dict__.update(test.__dict__)
    copy.__kwdefaults__ = test.__kwdefaults__
    copy.__annotations__ = test.__annotations__
    copy.__dict__["pytestmark"] = list(getattr(test, "pytestmark", []))
    return pytest.mark.xfail(reason=difference, strict=True)(copy)
