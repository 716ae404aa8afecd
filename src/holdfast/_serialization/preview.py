"""A preview of the arguments of a step: what a person needs to see with what it was called, and no more."""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic_core import to_json

from holdfast._serialization.text import storable

MAX_PREVIEW_BYTES = 2048
_MAX_LEVELS = 16
_MAX_BITS = 1000
"""Of a number: JavaScript and the database read no larger ones."""
_MAX_OTHER_BYTES = 64 * 1024
"""Of one value that only its own serializer can write."""
_CERTAINLY_SHORT = MAX_PREVIEW_BYTES // 6
"""Characters: each takes at most 4 bytes, and PostgreSQL writes a space after some."""
_SCALARS = frozenset({int, float, bool, type(None)})
_CUT = f"the arguments have more than {MAX_PREVIEW_BYTES} bytes, and this is how they begin"


def preview(function: Callable[..., Any], args: Sequence[Any], given: int = 0) -> str | None:
    """The arguments as JSON text, by the names of the parameters, of which the first are `given` by others.

    It calls nothing of the application but the serializers of its models, and never raises.
    """
    try:
        named = _named(function, args, given)
        return _written(named) if named else None
    except Exception as error:  # noqa: BLE001 - the step must not fail because of its preview
        return json.dumps({"holdfast": "not shown", "reason": f"the arguments raised {type(error).__name__}"})


def _named(function: Any, args: Sequence[Any], given: int) -> dict[str, Any]:
    others: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        args, others = (*function.args, *args), {**function.keywords, **others}
        function = function.func
    method = getattr(function, "__func__", None)
    code = getattr(function if method is None else method, "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[: code.co_argcount]
    first = given + (method is not None)
    named: dict[str, Any] = dict(zip(names[first:], args, strict=False))
    if len(named) < len(args):
        named["*args"] = args[len(named) :]
    return named | others


def _written(named: dict[str, Any]) -> str:
    plain = _Plain()
    written = to_json(plain.of(named, 0), by_alias=True, inf_nan_mode="strings", bytes_mode="base64").decode()
    if not plain.is_cut and _fits(written):
        return written
    begins = written
    while True:
        shown = json.dumps({"holdfast": "cut", "reason": _CUT, "begins": begins}, ensure_ascii=False)
        too_many = len(shown.encode()) - MAX_PREVIEW_BYTES
        if too_many <= 0:
            return shown
        begins = begins[: -max(1, too_many // 4)]


def _fits(written: str) -> bool:
    if len(written) <= _CERTAINLY_SHORT:
        return True
    return len(written.encode()) + written.count(",") + written.count(":") <= MAX_PREVIEW_BYTES


class _Plain:
    """Copies values until there is enough for a preview, so that large ones cost no more than that.

    What can be read only once, such as a generator, is not read.
    """

    def __init__(self) -> None:
        self._left = MAX_PREVIEW_BYTES
        self.is_cut = False

    def of(self, value: Any, level: int) -> Any:
        self._left -= 2
        kind = value.__class__
        if kind in (str, bytes):
            return self._text(value)
        if kind in _SCALARS and (kind is not int or value.bit_length() < _MAX_BITS):
            return value
        return _type_of(value) if level >= _MAX_LEVELS else self._parts(value, level)

    def _parts(self, value: Any, level: int) -> Any:
        if isinstance(value, dict):
            return {self._key(key): self.of(one, level + 1) for key, one in self._some(value.items())}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.of(one, level + 1) for one in self._some(value)]
        if dataclasses.is_dataclass(value) and not hasattr(value, "__pydantic_serializer__"):
            fields = dataclasses.fields(value)
            return {f.name: self.of(getattr(value, f.name, None), level + 1) for f in fields}
        return self._other(value, level)

    def _some(self, values: Iterable[Any]) -> Iterable[Any]:
        for one in values:
            if self._left <= 0:
                self.is_cut = True
                return
            yield one

    def _text(self, value: str | bytes) -> str | bytes:
        if len(value) > self._left:
            self.is_cut = True
            value = value[: max(self._left, 0)]
        self._left -= len(value)
        return storable(value) if isinstance(value, str) else value

    def _key(self, key: Any) -> str:
        return str(self.of(key, _MAX_LEVELS - 1))

    def _other(self, value: Any, level: int) -> Any:
        """Of another type: as a result would be written, if that is possible."""
        if value.__class__ is int or hasattr(value, "__next__"):
            return _type_of(value)
        try:
            written = to_json(
                value, by_alias=True, inf_nan_mode="strings", bytes_mode="base64", fallback=_type_of
            )
            if len(written) > _MAX_OTHER_BYTES:
                return f"{_type_of(value)} of {len(written)} bytes"
            return self.of(json.loads(written), level + 1)
        except Exception:  # noqa: BLE001 - a serializer of the application may raise anything
            return _type_of(value)


def _type_of(value: Any) -> str:
    return storable(f"({type(value).__module__}.{type(value).__qualname__})")
