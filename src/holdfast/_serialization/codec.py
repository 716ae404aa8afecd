"""Codecs: arguments and results to JSON and back. They are built once per handler."""

from collections.abc import Callable, Mapping
from typing import Any, NotRequired, Required

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaSerializer, from_json, to_jsonable_python
from pydantic_core.core_schema import CoreConfig
from typing_extensions import TypedDict  # typing's own lacks what pydantic needs before Python 3.12

from holdfast._serialization.signature import Field, Signature
from holdfast._serialization.text import RawJson, has_escaped_nul, storable_json, storable_value
from holdfast.errors import (
    InvalidArgument,
    InvalidHandler,
    PayloadError,
    ResultError,
    UnsupportedValue,
    did_you_mean,
)

_SHOWN = 80
_typed_dict: Any = TypedDict  # to type checkers it takes literals only

# Bytes have no form in JSON: base64 is read back as it was written.
_BOTH_WAYS = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_ARGUMENTS = ConfigDict(val_json_bytes="base64", populate_by_name=True)
_WRITTEN = CoreConfig(ser_json_bytes="base64", ser_json_inf_nan="strings")
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any, config=_BOTH_WAYS)
# Writes NaN and infinite numbers as they are, which is not JSON.
_NUMBERS = SchemaSerializer(
    _ANYTHING.core_schema, CoreConfig(ser_json_bytes="base64", ser_json_inf_nan="constants")
)


class ArgumentsCodec:
    """The arguments of one handler."""

    def __init__(self, task_type: str, name: str, signature: Signature) -> None:
        self.type = task_type
        self.names = tuple(signature.fields)
        self.fields = signature.fields
        self.takes_others = signature.takes_others
        self.context = signature.context
        self.adapter = _arguments_adapter(name, signature)
        self._known = frozenset(self.names)
        self._validate_json: Callable[[str], dict[str, Any]] = self.adapter.validator.validate_json
        self._validate: Callable[[Any], dict[str, Any]] = self.adapter.validator.validate_python
        # The serializer of the adapter does not pass the configuration of a TypedDict to its fields.
        self._to_json = SchemaSerializer(self.adapter.core_schema, _WRITTEN).to_json
        self.empty = not self.names and not self.takes_others

    def decode(self, payload: str) -> dict[str, Any]:
        if self.empty:
            return {}
        try:
            arguments = self._validate_json(payload)
        except ValidationError as error:
            raise PayloadError(f"the payload of {self.type} does not fit: {explain(error)}") from None
        except Exception as error:  # a validator of the application may raise anything
            raise PayloadError(f"the payload of {self.type} cannot be read: {error}") from error
        if self.takes_others and self.context:
            arguments.pop(self.context, None)
        return arguments

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        given = self._bind(args, kwargs)
        if self.empty:
            return "{}"
        try:
            arguments = self._validate(given)
        except ValidationError as error:
            raise InvalidArgument(f"{self.type}: {explain(error)}") from None
        try:
            written = self._write(arguments)
        except Exception as error:
            raise self._blamed(arguments, error) from error
        if has_escaped_nul(written):
            raise self._blamed(arguments, None)
        return written

    def schema(self) -> dict[str, Any]:
        schema = self.adapter.json_schema(mode="validation")
        for name, field in self.fields.items():
            if not field.required and name in schema.get("properties", {}):
                _add_default(schema["properties"][name], field.default)
        return schema

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        if not args and (self.takes_others or kwargs.keys() <= self._known):
            return kwargs
        if len(args) > len(self.names):
            raise InvalidArgument(f"{self.type} takes {len(self.names)} arguments, not {len(args)}")
        given = dict(zip(self.names, args, strict=False))
        for name in kwargs:
            if name in given:
                raise InvalidArgument(f"{self.type}: argument {name!r} is given twice")
            if name not in self._known and not self.takes_others:
                known = did_you_mean(name, self.names) or "; it takes no arguments"
                raise InvalidArgument(f"{self.type}: unknown argument {name!r}{known}")
        given.update(kwargs)
        return given

    def _write(self, arguments: dict[str, Any]) -> str:
        return self._to_json(arguments, by_alias=True, warnings=False).decode()

    def _blamed(self, arguments: dict[str, Any], error: Exception | None) -> InvalidArgument:
        """An error that names the first argument that cannot be written as JSON."""
        for name, value in arguments.items():
            try:
                written = self._write({name: value})
            except Exception as problem:  # noqa: BLE001 - any error is about this argument
                return UnsupportedValue(f"{self.type}: {name} cannot be written as JSON: {_brief(problem)}")
            if has_escaped_nul(written):
                return UnsupportedValue(f"{self.type}: {name} holds NUL, which PostgreSQL cannot store")
        return UnsupportedValue(f"{self.type}: the arguments cannot be written as JSON: {_brief(error)}")


class ResultCodec:
    """The result of one handler."""

    def __init__(self, task_type: str, name: str, annotation: Any) -> None:
        self.type = task_type
        self.adapter = _adapter(name, "what it returns", annotation)
        # Without an annotation, any value is valid; with None, there is nothing to read.
        self.typed = annotation not in (Any, None)
        self._is_nothing = annotation is None
        self.annotation = annotation
        # NaN is written as text, from which a float is read again. Without an annotation, it would stay text.
        serializer = self.adapter.serializer
        self.to_json = (
            SchemaSerializer(self.adapter.core_schema, _WRITTEN).to_json if self.typed else serializer.to_json
        )
        self._many: TypeAdapter[list[Any]] | None = None
        # What is written of a value of the annotated type can be read again, without reading it.
        self._is_plain = annotation is Any or (self.typed and is_plain(self.adapter.core_schema))
        # A value of another type raises, and is looked at closer. Without an annotation, every type is right.
        self._warnings: Any = "error" if self.typed else False
        self._takes_none = not self.typed or self.adapter.validator.isinstance_python(None)

    def encode(self, value: Any) -> str:
        """Raises ResultError if who reads it would get that: it does not fit the annotation."""
        if value is None and self._takes_none:
            return "null"
        if self._is_plain and value is not None:
            try:
                return storable_json(self.to_json(value, by_alias=True, warnings=self._warnings).decode())
            except Exception:  # noqa: BLE001 - it is written in another way, or the error is raised again
                return self._encode_and_read(value)[0]
        return self._encode_and_read(value)[0]

    def encode_both_ways(self, value: Any) -> tuple[str, Any]:
        """For what the handler goes on with: also as it is read. NaN, which would become null, is refused."""
        if value is None and self._is_nothing:
            return "null", None
        if not self._is_plain:
            return self._encode_and_read(value)
        written = self.encode_exactly(value)
        return written, self.load(written)

    def encode_exactly(self, value: Any) -> str:
        """The same, without reading it."""
        written = self.encode(value)
        if not self.typed and "null" in written and self._has_no_number(value):
            raise ResultError(
                f"the result of {self.type} has a number that is not finite, and JSON has none",
                hint="Return None or text in its place, or annotate what is returned with float.",
            )
        return written

    def _encode_and_read(self, value: Any) -> tuple[str, Any]:
        try:
            written = self.to_json(value, by_alias=True, warnings=self._warnings).decode()
        except Exception:  # noqa: BLE001 - a serializer of the application may raise anything
            written = self._write_otherwise(value)
        written = storable_json(written)
        return written, self._read_back(value, written)

    def _write_otherwise(self, value: Any) -> str:
        """What is not of the annotated type, or cannot be written at once. It is kept if it can be read."""
        try:
            return self.to_json(value, by_alias=True, warnings=False).decode()
        except Exception as error:  # noqa: BLE001 - as above
            return self._encode_plain(value, error)

    def _read_back(self, value: Any, written: str) -> Any:
        try:
            return self.read(written)
        except ResultError as error:
            raise ResultError(
                f"{self.type} returned a value of type {type(value).__name__}, and is annotated with "
                f"{_named(self.annotation)}: {error.message}",
                hint="Return what the annotation says, or correct it.",
            ) from error

    def read(self, written: str) -> Any:
        """Load it, and raise ResultError also if nothing should have been returned."""
        if self._is_nothing and written != "null":
            raise ResultError(f"the result of {self.type} is not None")
        return self.load(written)

    @staticmethod
    def _has_no_number(value: Any) -> bool:
        """Whether it contains NaN or an infinite number."""
        try:
            return bool(_NUMBERS.to_json(value) != _ANYTHING.serializer.to_json(value))
        except Exception:  # noqa: BLE001 - it was written in another way, by which these are not null
            return False

    def load(self, written: str | None) -> Any:
        if written is None:
            return None
        try:
            return self.adapter.validator.validate_json(written) if self.typed else from_json(written)
        except ValidationError as error:
            raise ResultError(f"the result of {self.type} does not fit: {explain(error)}") from None
        except Exception as error:  # a validator of the application may raise anything
            raise ResultError(f"the result of {self.type} cannot be read: {error}") from error

    def load_many(self, written: str) -> list[Any]:
        """A JSON array of results, in a fraction of the time of `load` for each."""
        if not self.typed:
            return list(from_json(written))
        try:
            if self._many is None:
                self._many = _adapter(self.type, "what it returns", list[self.annotation])  # type: ignore[name-defined]
            return list(self._many.validator.validate_json(written))
        except ValidationError as error:
            raise ResultError(f"a result of {self.type} does not fit: {explain(error)}") from None

    def schema(self) -> dict[str, Any]:
        return self.adapter.json_schema(mode="serialization")

    def _encode_plain(self, value: Any, error: Exception) -> str:
        """The slow way, for text with lone surrogates, which the fast serializer refuses."""
        try:
            plain = self.adapter.serializer.to_python(value, by_alias=True, warnings=False)
            return _ANYTHING.serializer.to_json(storable_value(plain), by_alias=True).decode()
        except Exception:  # noqa: BLE001 - the first error is the one that says why
            reason = _brief(error)
            raise ResultError(f"the result of {self.type} cannot be written as JSON: {reason}") from error


def encode_signal(payload: Any) -> RawJson:
    """The payload of a signal, which may be anything that pydantic can write."""
    try:
        return RawJson(_SIGNAL.encode_exactly(payload))
    except ResultError as error:
        raise InvalidArgument(f"the payload of the signal cannot be written: {error.message}") from error


_PLAIN_KINDS = frozenset({"any", "none", "bool", "int", "float", "str"})


def is_plain(schema: Any) -> bool:
    """Whether a type is built of JSON's own types alone, without constraints, aliases or serializers."""
    kind, more = schema["type"], schema.keys() - {"type", "metadata"}
    if kind in _PLAIN_KINDS:
        return not more
    match kind:
        case "list" if more <= {"items_schema"}:
            return all(is_plain(schema[name]) for name in more)
        case "dict" if more <= {"keys_schema", "values_schema"}:
            keys = schema.get("keys_schema", {"type": "any"})
            return keys["type"] in ("any", "str") and all(is_plain(schema[name]) for name in more)
        case "nullable" if more == {"schema"}:
            return is_plain(schema["schema"])
        case "union" if more == {"choices"}:
            return all(not isinstance(one, tuple) and is_plain(one) for one in schema["choices"])
    return False


def explain(error: ValidationError) -> str:
    """Every invalid field, with the reason and the given value."""
    return "; ".join(
        f"{_path(problem['loc'])}: {problem['msg']}{_given(problem)}"
        for problem in error.errors(include_url=False, include_context=False)
    )


def _named(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _path(location: tuple[int | str, ...]) -> str:
    written = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return written.removeprefix(".") or "payload"


def _given(problem: Any) -> str:
    if problem["type"] in {"missing", "json_invalid"}:
        return ""
    shown = repr(problem["input"])
    return f" (given {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'})"


def _brief(error: Exception | None) -> str:
    return str(error).removeprefix("Error serializing to JSON: ") or type(error).__name__


def _arguments_adapter(name: str, signature: Signature) -> TypeAdapter[Any]:
    members = {key: _member(field) for key, field in signature.fields.items()}
    payload = _typed_dict(name.rpartition(".")[2], members)
    extra = ConfigDict(extra="allow" if signature.takes_others else "ignore")
    payload.__pydantic_config__ = _ARGUMENTS | extra
    try:
        return TypeAdapter(payload)
    except Exception:
        for key, field in signature.fields.items():
            _adapter(name, f"parameter {key!r}", field.annotation)  # raises for the invalid one
        raise


def _member(field: Field) -> Any:
    # The function itself applies its defaults, which JSON may not be able to represent.
    return Required[field.annotation] if field.required else NotRequired[field.annotation]


def _adapter(name: str, what: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        try:
            return TypeAdapter(annotation, config=_BOTH_WAYS)
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            return TypeAdapter(annotation)  # a model has its own configuration
    except Exception as error:
        raise InvalidHandler(
            f"{name}: {annotation!r}, the type of {what}, has no form in JSON ({str(error).splitlines()[0]})",
            hint="Use what pydantic knows: plain types, dataclasses, models, datetime, Decimal, UUID, enums.",
        ) from error


def _add_default(schema: dict[str, Any], default: Any) -> None:
    try:
        schema["default"] = to_jsonable_python(default)
    except ValueError:
        return


_SIGNAL = ResultCodec("a signal", "signal", Any)
