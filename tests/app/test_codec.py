"""Arguments and results on their way through JSON."""

import enum
import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, computed_field

from holdfast import Cancel, Fail, Snooze
from holdfast._serialization.codec import ResultCodec
from holdfast._worker.handler import Handler, build_handler
from holdfast.errors import InvalidArgument, PayloadError, ResultError, UnsupportedValue


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    y: float


class Line(BaseModel):
    id: int
    price: Decimal
    at: datetime
    points: list[Point] = []


class Opaque:
    """Nothing that JSON has a form for."""


class Aliased(BaseModel):
    from_: str = Field(alias="from")


NOON = datetime(2030, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
LINE = Line(id=1, price=Decimal("9.50"), at=NOON, points=[Point(1, 2.5)])

TYPED: list[tuple[Any, Any]] = [
    (int, 2**60),
    (Decimal, Decimal("9.50")),
    (datetime, NOON),
    (date, date(2030, 1, 31)),
    (timedelta, timedelta(days=1, milliseconds=5)),
    (UUID, UUID("019a8f6e-0000-7000-8000-000000000000")),
    (Colour, Colour.BLUE),
    (Literal["a", "b"], "b"),
    (Point, Point(3, 4.5)),
    (Line, LINE),
    (list[Line], [LINE, LINE]),
    (Line | None, None),
    (Line | None, LINE),
    (dict[str, list[Point]], {"a": [Point(1, 2.0)]}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (bytes, b"\x00\xff"),
    (Aliased, Aliased.model_validate({"from": "here"})),
    (Annotated[int, Field(gt=0)], 3),
    (Any, {"deep": [1, None, "ä\u2028"]}),
]


def handler_of(annotation: Any, result: Any = None) -> Handler:
    def handler(value: Any) -> Any:
        return value

    handler.__annotations__ = {"value": annotation, "return": result or annotation}
    return build_handler("codec.typed", handler)


@pytest.mark.parametrize(("annotation", "value"), TYPED)
def test_an_argument_arrives_as_it_was_given(annotation: Any, value: Any) -> None:
    handler = handler_of(annotation)
    assert handler.arguments.decode(handler.arguments.check((), {"value": value})) == {"value": value}
    assert handler.arguments.decode(handler.arguments.check((value,), {})) == {"value": value}


@pytest.mark.parametrize(("annotation", "value"), TYPED)
def test_a_result_comes_back_as_it_was_returned(annotation: Any, value: Any) -> None:
    handler = handler_of(annotation)
    assert handler.result.load(handler.result.encode(value)) == value


def test_a_default_is_left_to_the_function() -> None:
    nothing = object()

    def handler(a: int, b: Any = nothing) -> None: ...

    built = build_handler("codec.default", handler)
    assert built.arguments.check((1,), {}) == '{"a":1}'
    assert built.arguments.decode('{"a":1}') == {"a": 1}


def test_fields_that_the_handler_does_not_know_are_ignored() -> None:
    assert handler_of(int).arguments.decode('{"value": 1, "later": true}') == {"value": 1}


def test_a_handler_that_takes_all_fields_gets_them_as_they_came() -> None:
    def handler(ctx: Any, n: int, **others: Any) -> None: ...

    handler.__annotations__.pop("ctx")
    built = build_handler("codec.others", handler)
    assert built.arguments.decode('{"n": "1", "when": "2030-01-31", "ctx": 5}') == {
        "n": 1,
        "when": "2030-01-31",
    }
    assert json.loads(built.arguments.check((), {"n": 1, "extra": [1]})) == {"n": 1, "extra": [1]}


def test_a_handler_without_arguments_does_not_read_its_payload() -> None:
    built = build_handler("codec.none", lambda: None)
    assert built.arguments.decode("[not JSON") == {}
    assert built.arguments.check((), {}) == "{}"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('{"value": {"id": "x"}}', r"value\.id: Input should be a valid integer.*\(given 'x'\)"),
        ("{}", "value: Field required"),
        ("[1]", r"payload: Input should be an object \(given \[1\]\)"),
        ('{"value": ', "payload: Invalid JSON"),
        (
            '{"value": {"id": 1, "price": 1, "at": 0, "points": [{"x": 1}]}}',
            r"value\.points\[0\]\.y: Field required",
        ),
        ("[" * 5000, "payload"),
    ],
)
def test_a_payload_that_does_not_fit_names_the_field(payload: str, reason: str) -> None:
    with pytest.raises(PayloadError, match=rf"codec\.typed does not fit: .*{reason}"):
        handler_of(Line).arguments.decode(payload)


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, "codec.two: a: Field required; b: Field required"),
        ((1,), {"b": "x"}, r"codec.two: b: Input should be a valid integer.*\(given 'x'\)"),
        ((1, 2, 3), {}, "codec.two takes 2 arguments, not 3"),
        ((1,), {"a": 2}, "codec.two: argument 'a' is given twice"),
        ((1, 2), {"c": 3}, "codec.two: unknown argument 'c'; expected one of a, b"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
) -> None:
    def two(a: int, b: int) -> None: ...

    with pytest.raises(InvalidArgument, match=reason):
        build_handler("codec.two", two).arguments.check(args, kwargs)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0b", "value holds NUL"),
        ({"deep": ["\0"]}, "value holds NUL"),
        ("\ud800", "value cannot be written as JSON: .*surrogates"),
        (object(), "value cannot be written as JSON: Unable to serialize unknown type"),
    ],
)
def test_an_argument_that_postgres_cannot_store_is_refused_by_name(value: Any, reason: str) -> None:
    with pytest.raises(UnsupportedValue, match=f"codec.typed: {reason}"):
        handler_of(Any).arguments.check((value,), {})


def test_a_backslash_before_u0000_is_not_a_nul() -> None:
    handler = handler_of(str)
    assert handler.arguments.decode(handler.arguments.check((r"\u0000",), {})) == {"value": r"\u0000"}
    assert handler.result.load(handler.result.encode("\\\\u0000 \0")) == "\\\\u0000 \ufffd"


def test_a_number_that_json_lacks_arrives_as_an_argument() -> None:
    handler = handler_of(float)
    assert handler.arguments.decode(handler.arguments.check((math.inf,), {})) == {"value": math.inf}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (float("nan"), "null"),
        ({"a": [math.inf, 1.5]}, '{"a":[null,1.5]}'),
        ("a\0b", '"a\\ufffdb"'),
        ("\ud800x", '"\ufffdx"'),
        ({"\udfff": ["\0", float("nan")]}, '{"\ufffd":["\ufffd",null]}'),
        (b"\xff", '"_w=="'),
    ],
)
def test_a_result_is_made_storable(value: Any, written: str) -> None:
    assert handler_of(Any).result.encode(value) == written


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(st.characters()), st.lists, max_leaves=8)
)
def test_whatever_text_a_result_holds_postgres_can_store_it(value: Any) -> None:
    written = handler_of(Any).result.encode(value)
    written.encode()
    assert "\0" not in json.dumps(json.loads(written), ensure_ascii=False)


def test_a_result_that_json_has_no_form_for_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (object(), loop, {object(): 1}, [Opaque]):
        with pytest.raises(ResultError, match=r"the result of codec\.typed cannot be written as JSON"):
            handler_of(Any).result.encode(value)


def test_a_dict_in_place_of_the_announced_model_is_read_as_that_model() -> None:
    handler = handler_of(Point)
    assert handler.result.load(handler.result.encode({"x": 1, "y": 2})) == Point(1, 2.0)


def test_outcomes_are_no_part_of_the_results_type() -> None:
    assert handler_of(int, Point | Snooze | Cancel | None).result.load('{"x":1,"y":2}') == Point(1, 2.0)
    assert handler_of(int, Fail).result.load("null") is None


def test_no_result_reads_as_none() -> None:
    assert handler_of(int).result.load(None) is None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "many"),
        (int, None),
        (Line, {"id": 1}),
        (list[int], ["a"]),
        (dict[str, int], {"a": Opaque}),
        (str, 7),
    ],
)
def test_a_result_of_another_type_than_annotated_is_refused_if_it_could_not_be_read(
    annotation: Any, value: Any
) -> None:
    codec = ResultCodec("work.count", "count", annotation)
    with pytest.raises(ResultError, match=r"work.count .*"):
        codec.encode(value)


class Positive(BaseModel):
    n: PositiveInt


class Named(BaseModel):
    name: str = Field(serialization_alias="NAME")


class Sum(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.a


@dataclass
class Bounded:
    n: Annotated[int, Field(gt=0)]


UNREADABLE: list[tuple[Any, Any]] = [
    (Literal["a"], "b"),
    (Annotated[int, Field(gt=0)], -1),
    (list[Annotated[str, Field(min_length=2)]], ["a"]),
    (dict[str, PositiveInt], {"a": 0}),
    (Bounded, Bounded(0)),
    (Positive, Positive.model_construct(n=-1)),
    (Positive, Positive.model_construct()),  # type: ignore[call-arg]
    (Named, Named(name="a")),
    (Sum, Sum(a=1)),
    (Decimal, Decimal("NaN")),
    (None, "text"),
    (Cancel | None, 7),
]


@pytest.mark.parametrize(("annotation", "value"), UNREADABLE)
def test_a_result_that_cannot_be_read_back_as_annotated_is_refused(annotation: Any, value: Any) -> None:
    codec = handler_of(int, annotation).result if annotation else ResultCodec("codec.typed", "typed", None)
    for encode in (codec.encode, codec.encode_both_ways):
        with pytest.raises(ResultError, match=r"codec\.typed returned a value of type .*"):
            encode(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 7),
        (str, "a"),
        (list[dict[str, int | None]], [{"a": 1}]),
        (float, 1.5),
        (dict[str, Any], {"a": []}),
    ],
)
def test_a_result_of_plain_types_is_not_read_to_check_it(
    annotation: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = ResultCodec("work.count", "count", annotation)
    monkeypatch.setattr(codec, "load", None)
    assert json.loads(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (list[int], (1, 2), [1, 2]),
        (float, 1, 1.0),
        (int | None, None, None),
        (Point, {"x": 1, "y": 2.0}, Point(1, 2.0)),
        (Colour, "red", Colour.RED),
        (int, True, 1),
        (Any, Decimal(1), "1"),
    ],
)
def test_a_result_of_another_type_than_annotated_is_kept_if_it_can_be_read(
    annotation: Any, value: Any, read: Any
) -> None:
    codec = ResultCodec("work.count", "count", annotation)
    assert codec.load(codec.encode(value)) == read
