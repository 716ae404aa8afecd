"""What a method of `ctx` returns in a coroutine: to be awaited, and missed if it never is."""

import sys
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, TracebackType
from typing import Any, NoReturn

from holdfast.errors import InvalidStep

_OF_HOLDFAST = ("holdfast.context", "holdfast.workflows.")


class Calls:
    """The calls of one run that have not begun: each has to, before its handler has returned."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Call] = {}

    def add(self, call: "Call") -> None:
        self._open[id(call)] = call

    def discard(self, call: "Call") -> None:
        self._open.pop(id(call), None)

    def forgotten(self) -> InvalidStep | None:
        """The error about the first call that never began."""
        first = next(iter(self._open.values()), None)
        return None if first is None else first.forgotten()


class Call:
    """One call of a method of `ctx`, and the line that made it."""

    __slots__ = ("_calls", "_code", "_line", "_said")

    verb = "awaited"
    advice = "Write await before it."

    def __init__(self, calls: Calls, said: tuple[str, Any]) -> None:
        """`said` is the method, and what names the call: text, a function or a number."""
        self._calls = calls
        self._said = said
        self._code, self._line = _caller()
        calls.add(self)

    def began(self) -> None:
        self._calls.discard(self)

    def forgotten(self) -> InvalidStep:
        place = "" if self._code is None else f" at {self._code.co_filename}:{self._line}"
        return InvalidStep(f"{self!r}{place} was never {self.verb}", hint=self.advice)

    def __repr__(self) -> str:
        method, about = self._said
        named = "" if about is None else getattr(about, "__name__", None) or repr(about)
        return f"ctx.{method}({named})"


class EnteredCall(Call):
    """`ctx.transaction(name)`, whose block has to be entered."""

    __slots__ = ()

    verb = "entered"
    advice = "Write it as async with ctx.transaction(…) as db, or with in a plain function."


class AwaitedCall(Call, Coroutine[Any, Any, Any]):
    """A coroutine to asyncio, which may make a task of it. Its use as a value is refused at once.

    A coroutine of Python is true, so a forgotten `await` before `ctx.wait` would approve.
    """

    __slots__ = ("_args", "_coroutine", "_function")

    def __init__(
        self,
        calls: Calls,
        said: tuple[str, Any],
        function: Callable[..., Coroutine[Any, Any, Any]],
        *args: Any,
    ) -> None:
        """The function is called when it is awaited: Python would warn of a coroutine that never is."""
        self._function = function
        self._args = args
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        super().__init__(calls, said)

    def then(self, said: tuple[str, Any], change: Callable[[Any], Any]) -> "AwaitedCall":
        """The same call under another name, whose result is changed."""
        self._function, self._args = _then, (self._function, self._args, change)
        self._said = said
        return self

    def __await__(self) -> Generator[Any, None, Any]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(
        self, kind: Any, value: BaseException | object = None, trace: TracebackType | None = None
    ) -> Any:
        if value is None and trace is None:
            return self._begun().throw(kind)
        return self._begun().throw(kind, value, trace)

    def close(self) -> None:
        """What was begun ends here. What never began stays forgotten."""
        if self._coroutine is not None:
            self._coroutine.close()

    def _begun(self) -> Coroutine[Any, Any, Any]:
        if self._coroutine is None:
            self.began()
            self._coroutine = self._function(*self._args)
        return self._coroutine

    def _refuse(self, *given: object) -> NoReturn:
        del given
        raise self.forgotten()

    __bool__ = __iter__ = __len__ = __int__ = __float__ = __str__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __contains__ = __getitem__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cr_"):  # asyncio shows where a task is
            return getattr(self._coroutine, name)
        raise AttributeError(f"{self!r} was never awaited, so it has no {name!r}")


async def _then(
    function: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], change: Callable[[Any], Any]
) -> Any:
    return change(await function(*args))


def _caller() -> tuple[CodeType | None, int]:
    """The first line outside this package."""
    frame = sys._getframe(2)  # noqa: SLF001 - inspect.stack reads the sources
    while frame.f_globals.get("__name__", "").startswith(_OF_HOLDFAST):
        if frame.f_back is None:
            return None, 0
        frame = frame.f_back
    return frame.f_code, frame.f_lineno
