"""Text that PostgreSQL can store and that terminals and pages can show."""

import json

import pytest

from holdfast._serialization.text import (
    has_escaped_nul,
    is_nested_deeper,
    require_storable,
    storable,
    storable_json,
    storable_value,
    visible,
)
from holdfast.errors import UnsupportedValue


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain ☃ 😀", "plain ☃ 😀"),
        ("nul \0", "nul \ufffd"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ("\udcff", "\ufffd"),
        ("both halves \ud83d\ude00", "both halves 😀"),
    ],
)
def test_what_cannot_be_stored_is_replaced(text: str, stored: str) -> None:
    assert storable(text) == stored
    assert storable_value({text: [text, (text, 1)]}) == {stored: [stored, [stored, 1]]}
    assert json.loads(storable_json(json.dumps(text, ensure_ascii=False))) == stored


def test_both_ends_of_a_long_text_are_kept() -> None:
    text = storable("a" * 500 + "b" * 500, 100)
    assert text.startswith("a" * 50 + "\n")
    assert text.endswith("\n" + "b" * 50)
    assert "900 characters left out" in text


@pytest.mark.parametrize(
    ("written", "found"),
    [(r'"\u0000"', True), (r'"\\u0000"', False), (r'"\\\u0000"', True), ('"0000"', False)],
)
def test_an_escaped_nul_is_told_from_an_escaped_backslash(written: str, found: bool) -> None:
    assert has_escaped_nul(written) is found
    assert json.loads(storable_json(written)) == json.loads(written).replace("\0", "\ufffd")


@pytest.mark.parametrize("value", ["nul \0", "half \ud83d"])
def test_a_caller_is_refused_what_cannot_be_stored(value: str) -> None:
    with pytest.raises(UnsupportedValue, match=r"^reason holds "):
        require_storable("reason", value)
    assert require_storable("reason", "é☃😀") == "é☃😀"


@pytest.mark.parametrize(
    ("written", "deeper"),
    [
        ("[" * 70 + "]" * 70, False),
        ("[" * 71 + "]" * 71, True),
        ('{"a":' * 71 + "1" + "}" * 71, True),
        ('["' + "[" * 100 + '"]', False),
        (r'["\"' + "[" * 100 + '"]', False),
        ("[" + "[]," * 100 + "[]]", False),
    ],
)
def test_the_depth_of_a_document_is_that_of_its_brackets_outside_of_strings(
    written: str, deeper: bool
) -> None:
    assert is_nested_deeper(written, 70) is deeper


def test_what_controls_a_terminal_or_turns_a_line_around_is_escaped() -> None:
    assert visible("a\tb\n\x1b[31m \x9b \u202e \u200f é") == "a\tb\n\\x1b[31m \\x9b \\u202e \\u200f é"
