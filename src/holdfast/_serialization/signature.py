"""The signature of a handler: the fields of its payload, its context, and the type of its result."""

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Never, NoReturn, Union, get_args, get_origin, get_type_hints

from holdfast.errors import InvalidHandler
from holdfast.outcome import OUTCOMES

_EMPTY = inspect.Parameter.empty
_LISTS = (list, Sequence, Collection, Iterable)
_CONTEXTS = ("Context", "SyncContext")
"""Of async and of plain handlers. Their annotation may be text that starts with the name of a module."""
_MODULES = ("", "holdfast.", "context.", "holdfast.context.")


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of a handler, and so one member of its payload."""

    annotation: Any
    default: Any = _EMPTY

    @property
    def required(self) -> bool:
        return self.default is _EMPTY


@dataclass(frozen=True, slots=True)
class Signature:
    fields: Mapping[str, Field]
    takes_others: bool
    context: str | None
    result: Any
    is_async: bool


def read_signature(function: Callable[..., Any]) -> Signature:
    """Refuses a function that cannot be called with the members of a JSON object."""
    name = name_of(function)
    parameters = _parameters(function, name)
    is_async = _is_async(function, name)
    context = _context_of(parameters[0], name, is_async=is_async) if parameters else None
    fields, takes_others = _fields(name, function, parameters[1:] if context else parameters)
    returns = getattr(_plain(function), "__annotations__", {}).get("return", Any)
    result = _resolved(name, function, "what it returns", returns)
    return Signature(fields, takes_others, context, _without_outcomes(result), is_async)


def read_batch_signature(function: Callable[..., Any]) -> Signature:
    """The signature of one task, for a function that takes a list with an item for each task."""
    name = name_of(function)
    many = read_signature(function)
    if many.context is not None:
        raise InvalidHandler(f"{name}: a handler of batches takes no context, because it runs several tasks")
    if many.takes_others or len(many.fields) != 1:
        raise InvalidHandler(f"{name}: a handler of batches takes one parameter, a list of items")
    [(parameter, field)] = many.fields.items()
    if not field.required:
        raise InvalidHandler(f"{name}: parameter {parameter!r} of a handler of batches has no default")
    item = Field(_item_of(name, f"parameter {parameter!r}", field.annotation))
    result = many.result if many.result is None else _item_of(name, "what it returns", many.result)
    kept = [
        kind for kind in _union_of(result) if not (inspect.isclass(kind) and issubclass(kind, BaseException))
    ]
    return replace(many, fields={parameter: item}, result=_without_outcomes(_union(kept)))


def _item_of(name: str, what: str, annotation: Any) -> Any:
    """The type of the items of a list."""
    if annotation is Any or annotation in _LISTS:
        return Any
    if get_origin(annotation) in _LISTS:
        return get_args(annotation)[0]
    raise InvalidHandler(
        f"{name}: {what} of a handler of batches is a list, not {annotation!r}",
        hint="Write list[int], for example.",
    )


def _union_of(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return get_args(annotation) if is_union else (annotation,)


def _union(kinds: list[Any]) -> Any:
    return Union[tuple(kinds)] if kinds else None  # noqa: UP007 - built from a list


def read_result(function: Callable[..., Any]) -> tuple[bool, Any]:
    """Whether a function is async, and the type of what it returns. Its parameters may be of any kind."""
    name = name_of(function)
    returns = getattr(_plain(function), "__annotations__", {}).get("return", Any)
    return _is_async(function, name), _without_outcomes(_resolved(name, function, "what it returns", returns))


def name_of(function: Callable[..., Any]) -> str:
    return getattr(_plain(function), "__qualname__", None) or type(function).__qualname__


def _plain(function: Any) -> Any:
    """The function that has the annotations: below partials, or behind a callable object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return inspect.unwrap(function)
    return inspect.unwrap(type(function).__call__)


def _parameters(function: object, name: str) -> list[inspect.Parameter]:
    if not callable(function) or inspect.isclass(function):
        raise InvalidHandler(f"{function!r} is not a function")
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, NameError) as error:
        raise InvalidHandler(f"the signature of {name} cannot be read: {error}") from None


def _fields(
    name: str, function: Callable[..., Any], parameters: list[inspect.Parameter]
) -> tuple[dict[str, Field], bool]:
    fields: dict[str, Field] = {}
    takes_others = False
    for parameter in parameters:
        _check_kind(name, parameter)
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_others = True
            continue
        annotation = Any if parameter.annotation is _EMPTY else parameter.annotation
        resolved = _resolved(name, function, f"parameter {parameter.name!r}", annotation)
        fields[parameter.name] = Field(resolved, parameter.default)
    return fields, takes_others


def _check_kind(name: str, parameter: inspect.Parameter) -> None:
    if _kind_of_context(parameter) is not None:
        raise InvalidHandler(f"{name}: its context {parameter.name!r} has to be the first parameter")
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise InvalidHandler(f"{name} takes *{parameter.name}: a payload has names, so list the parameters")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise InvalidHandler(f"{name} takes {parameter.name!r} by position only: a payload has names")


def _context_of(parameter: inspect.Parameter, function: str, *, is_async: bool) -> str | None:
    """The name of the context parameter, which is annotated with the context of such a function or not."""
    kind = _kind_of_context(parameter)
    if kind is not None and kind != (wanted := _CONTEXTS[0] if is_async else _CONTEXTS[1]):
        what = "async" if is_async else "plain"
        raise InvalidHandler(
            f"{function}: {parameter.name} is a {kind}, and the handler is {what}",
            hint=f"Write {parameter.name}: {wanted}. Only the methods of Context are awaited.",
        )
    is_named = parameter.annotation is _EMPTY and parameter.name == "ctx"
    return parameter.name if is_named or kind is not None else None


def _kind_of_context(parameter: inspect.Parameter) -> str | None:
    """The name of the context that it is annotated with; maybe as text, imported for type checkers only."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        module, dot, kind = annotation.strip("'\" ").rpartition(".")
        return kind if kind in _CONTEXTS and module + dot in _MODULES else None
    is_own = getattr(annotation, "__module__", "").partition(".")[0] == "holdfast"
    kind = getattr(annotation, "__name__", "")
    return kind if is_own and kind in _CONTEXTS else None


def _resolved(name: str, function: Callable[..., Any], what: str, annotation: Any) -> Any:
    """The type of an annotation, which may be written as text."""
    plain = _plain(function)
    names = getattr(plain, "__globals__", {}), _closure(plain)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        hints = get_type_hints(holder, *names, include_extras=True)
    except NameError as error:
        raise InvalidHandler(
            f"{name}: {error}, in the annotation {annotation!r} of {what}",
            hint="Import or define it at the top of the module; not below TYPE_CHECKING, nor in a function.",
        ) from None
    except Exception as error:  # an annotation may be any expression
        raise InvalidHandler(f"{name}: {annotation!r} of {what} cannot be read: {error}") from error
    return hints["it"]


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def _without_outcomes(annotation: Any) -> Any:
    """The type of the result without outcomes: Receipt for `Receipt | Snooze`."""
    if annotation in (*OUTCOMES, None, type(None)):
        return None
    if annotation in (NoReturn, Never):
        return Any
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    kept = tuple(kind for kind in get_args(annotation) if kind not in OUTCOMES)
    return Union[kept] if kept else None  # noqa: UP007 - built from a tuple


def _is_async(function: Callable[..., Any], name: str) -> bool:
    plain = _plain(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidHandler(f"{name} is a generator: a handler returns its result")
    return any(map(inspect.iscoroutinefunction, (function, plain, getattr(function, "func", None))))
