"""Statements that are declared by their signature call what the database has."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, get_origin
from uuid import UUID

import pytest

import holdfast._engine
from holdfast._engine import Statement
from holdfast._engine.statement import _cast_of
from support.engine import Connection

SAMPLES: dict[str, Any] = {
    "text": "a",
    "text[]": ["a"],
    "text::jsonb": {},
    "integer": 1,
    "integer[]": [1],
    "bigint": 1,
    "boolean": True,
    "bytea": b"a",
    "uuid": UUID(int=1),
    "uuid[]": [UUID(int=1)],
    "interval": timedelta(1),
    "timestamptz": datetime(2030, 1, 31, tzinfo=UTC),
}


def declared_functions() -> Iterator[Callable[..., Statement[Any]]]:
    """All but those of fronts: this database is none."""
    for module in pkgutil.iter_modules(holdfast._engine.__path__, "holdfast._engine."):
        for function in vars(import_module(module.name)).values():
            is_own = getattr(function, "__module__", "") == module.name != "holdfast._engine.shards"
            answer = getattr(function, "__annotations__", {}).get("return")
            if is_own and hasattr(function, "__wrapped__") and get_origin(answer) is Statement:
                yield function


FUNCTIONS = list(declared_functions())


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_database_has_the_function_with_these_arguments_and_columns(
    tx: Connection, function: Callable[..., Statement[Any]]
) -> None:
    parameters = inspect.signature(function).parameters
    statement = function(**{name: SAMPLES[_cast_of(each.annotation)] for name, each in parameters.items()})
    assert all(f"{name.rstrip('_')} => $" in statement.sql for name in parameters)
    tx.execute(f"prepare declared as {statement.sql}".encode())
    tx.execute("deallocate declared")


def test_there_are_declared_functions() -> None:
    assert len(FUNCTIONS) > 60
