"""The preview of the arguments of a step."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, model_serializer

from holdfast._serialization.preview import MAX_PREVIEW_BYTES, preview


@dataclass
class Item:
    sku: str
    count: int


class Card(BaseModel):
    number: SecretStr


class Broken(BaseModel):
    @model_serializer
    def write(self) -> dict[str, Any]:
        raise RuntimeError


class Till:
    def charge(self, order_id: int) -> None: ...


def charge(order_id: object, *others: object, currency: str = "EUR") -> None: ...


def _shown(*args: object) -> Any:
    written = preview(charge, args)
    return None if written is None else json.loads(written)


def test_arguments_are_named_as_the_function_names_them() -> None:
    assert _shown() is None
    assert _shown(42) == {"order_id": 42}
    assert _shown(42, "a", "b") == {"order_id": 42, "*args": ["a", "b"]}
    assert json.loads(str(preview(Till().charge, (7,)))) == {"order_id": 7}
    assert json.loads(str(preview(partial(charge, 1, currency="USD"), ()))) == {
        "order_id": 1,
        "currency": "USD",
    }
    assert json.loads(str(preview(len, ("abc",)))) == {"*args": ["abc"]}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Item("a-1", 2), {"sku": "a-1", "count": 2}),
        (Card(number=SecretStr("4111")), {"number": "**********"}),
        ({"b": [b"\x00", None, float("nan")], 1: (True,)}, {"b": ["AA==", None, "NaN"], "1": [True]}),
        (object(), "(builtins.object)"),
        (Broken(), f"({__name__}.Broken)"),
        ([Broken(), 1], [f"({__name__}.Broken)", 1]),
        ("a\0\ud800", "a\ufffd\ufffd"),
        (10**400, "(builtins.int)"),
    ],
)
def test_a_value_is_shown_as_it_would_be_written_or_else_by_its_type(value: object, shown: object) -> None:
    assert _shown(value) == {"order_id": shown}


def test_what_can_be_read_only_once_is_not_read() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    given = numbers()
    assert _shown(given, [given]) == {"order_id": "(builtins.generator)", "*args": [["(builtins.generator)"]]}
    assert list(given) == [1]


@pytest.mark.parametrize("large", ["ä" * 10**6, list(range(10**6)), {str(n): '"' for n in range(10**5)}])
def test_what_is_large_is_cut_and_says_so(large: object) -> None:
    written = str(preview(charge, (large,)))

    assert len(written.encode()) <= MAX_PREVIEW_BYTES
    shown = json.loads(written)
    assert shown["holdfast"] == "cut"
    assert len(shown["begins"]) > 200
    assert json.dumps({"order_id": large}, ensure_ascii=False, separators=(",", ":")).startswith(
        shown["begins"]
    )


def test_a_value_that_contains_itself_does_not_fail() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert preview(charge, (loop,)) is not None
