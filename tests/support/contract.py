"""Tests of one server, borrowed for a front: the same functions, with the fixtures of tests/shards."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]


def borrow(module: str, differences: dict[str, str]) -> dict[str, Any]:
    """The tests and fixtures of a module, such as app/test_enqueue.

    Those that a front does not pass are named with the reason, and must fail: a difference that has gone has
    to be taken off the list, and off the page about shards.
    """
    found = vars(_loaded(module))
    unknown = differences.keys() - found.keys()
    assert not unknown, f"{module} has no {', '.join(sorted(unknown))}"
    borrowed: dict[str, Any] = {}
    for name, value in found.items():
        if name.startswith("test_") and isinstance(value, FunctionType):
            borrowed[name] = _expected(value, differences.get(name))
        elif type(value).__name__ in ("FixtureFunctionDefinition", "FixtureFunction") or hasattr(
            value, "_pytestfixturefunction"
        ):
            borrowed[name] = value
    return borrowed


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
