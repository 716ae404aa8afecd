"""Calls that have to be awaited or entered in a handler: an attempt that forgets one fails."""

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, TracebackType
from typing import Any, NoReturn, Protocol, TypeVar

from holdfast._telemetry.current_job import current_job
from holdfast.errors import InvalidStep

F = TypeVar("F", bound=Callable[..., Any])

CANCEL_SECONDS = 1.0
"""How long the end of an attempt waits for what it has cancelled."""
_OF_HOLDFAST = ("holdfast.context", "holdfast.handle", "holdfast.task", "holdfast._workflows.")


class CallSite:
    """What was called, and the line that called it."""

    __slots__ = ("_code", "_line", "_said")

    def __init__(self, method: str, about: Any = None) -> None:
        """`about` names the call: text, a function or a number."""
        self._said = method, about
        self._code, self._line = _caller()

    def __repr__(self) -> str:
        method, about = self._said
        named = "" if about is None else getattr(about, "__name__", None) or repr(about)
        return f"{method}({named})"

    def __str__(self) -> str:
        return repr(self) if self._code is None else f"{self!r} at {self._code.co_filename}:{self._line}"

    def rename(self, method: str, about: Any) -> None:
        self._said = method, about


class Calls:
    """The calls of one attempt: which have not begun, and which never will."""

    __slots__ = ("_dropped", "_is_over", "_left", "_open")

    def __init__(self) -> None:
        self._open: dict[CallSite, type[Call]] = {}
        self._dropped: tuple[CallSite, type[Call]] | None = None
        self._left: InvalidStep | None = None
        self._is_over = False

    def add(self, call: "Call") -> None:
        self._open[call.site] = call.__class__

    def begin(self, site: CallSite) -> None:
        """What comes after a call that was dropped must not happen, nor what comes after the attempt."""
        self.discard(site)
        self.check()
        if self._is_over:
            raise asyncio.CancelledError

    def discard(self, site: CallSite) -> None:
        self._open.pop(site, None)

    def drop(self, site: CallSite) -> None:
        """Nobody can await it any more."""
        kind = self._open.pop(site, None)
        if kind is not None and self._dropped is None:
            self._dropped = site, kind

    def leave(self, site: CallSite, problem: str) -> None:
        """It began, and the handler has ended without its result."""
        hint = "Await the task, or cancel it and await that, before the handler ends."
        self._left = self._left or InvalidStep(f"{site} {problem}", hint=hint)

    def check(self) -> None:
        """Raise the error about a call that was dropped."""
        if self._dropped is not None:
            site, kind = self._dropped
            raise kind.forgotten(site)

    def close(self) -> None:
        """The attempt is over: no call begins any more."""
        self._is_over = True

    def forgotten(self) -> InvalidStep | None:
        """The error about the first call that nobody awaited. Asked when the handler has ended."""
        self.close()
        kept = (one for one in self._open.items() if not one[1].may_outlive)
        site, kind = self._dropped or next(kept, (None, Call))
        return self._left if site is None else kind.forgotten(site)


class BegunCalls:
    """The calls of a coroutine that do something now: it has to await their end before it ends itself."""

    def __init__(self, calls: Calls, root: "asyncio.Task[Any] | None") -> None:
        """`root` is the asyncio task of the handler."""
        self._calls = calls
        self._root = root
        self._at_work: dict[CallSite, asyncio.Task[Any] | None] = {}
        self._failed: list[tuple[CallSite, asyncio.Task[Any]]] = []

    def begin(self, site: CallSite, task: "asyncio.Task[Any] | None") -> None:
        self._at_work[site] = task

    def end(self, site: CallSite, error: BaseException | None) -> None:
        task = self._at_work.pop(site, None)
        if task is not None and task is not self._root and isinstance(error, Exception):
            unseen = [one for one in self._failed if not one[1].done() or _is_unseen(one[1])]
            self._failed = [*unseen, (site, task)]

    async def leave(self) -> None:
        """The handler has not awaited these: they end with it, and the next attempt makes them."""
        for site, task in self._failed:
            if _is_unseen(task):
                task.exception()  # or asyncio would report it again
                self._calls.leave(site, "failed in an asyncio task that was never awaited")
        for site in self._at_work:
            self._calls.leave(site, "had not ended when the handler returned")
        tasks = {task for task in self._at_work.values() if task is not None and task is not self._root}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)


def _is_unseen(task: "asyncio.Task[Any]") -> bool:
    """Whether it has failed and nobody has looked: asyncio would report it when it is forgotten."""
    return task.done() and bool(getattr(task, "_log_traceback", False))


def check_all_awaited(calls: Calls | None) -> None:
    """Raise the error about what a handler forgot. Most attempts have no calls."""
    forgotten = None if calls is None else calls.forgotten()
    if forgotten is not None:
        raise forgotten


class HasCalls(Protocol):
    """An attempt."""

    calls: Calls | None


def calls_of(attempt: HasCalls) -> Calls:
    if attempt.calls is None:
        attempt.calls = Calls()
    return attempt.calls


class Call:
    """One call that has to begin before its handler has returned."""

    __slots__ = ("_calls", "site")

    verb = "awaited"
    advice = "Write await before it."
    may_outlive = False
    """Whether something else may await it when the handler has ended."""

    def __init__(self, calls: Calls, site: CallSite) -> None:
        self._calls = calls
        self.site = site
        calls.add(self)

    def __del__(self) -> None:
        self._calls.drop(self.site)

    def began(self) -> None:
        self._calls.begin(self.site)

    @classmethod
    def forgotten(cls, site: CallSite) -> InvalidStep:
        return InvalidStep(f"{site} was never {cls.verb}", hint=cls.advice)

    def __repr__(self) -> str:
        return repr(self.site)


class EnteredCall(Call):
    """`ctx.transaction()` or `ctx.step_transaction(name)`, whose block has to be entered."""

    __slots__ = ()

    verb = "entered"
    advice = "Enter it with async with … as db, or with in a plain function."


class AwaitedCall(Call, Coroutine[Any, Any, Any]):
    """A coroutine to asyncio, which may make a task of it. Its use as a value is refused at once.

    A coroutine of Python is true, so a forgotten `await` before `ctx.wait` would approve.
    """

    __slots__ = ("_args", "_coroutine", "_function")

    def __init__(
        self,
        calls: Calls,
        site: CallSite,
        function: Callable[..., Coroutine[Any, Any, Any]],
        *args: Any,
    ) -> None:
        """The function is called when it is awaited: Python would warn of a coroutine that never is."""
        self._function = function
        self._args = args
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        super().__init__(calls, site)

    def then(self, method: str, about: Any, change: Callable[[Any], Any]) -> "AwaitedCall":
        """The same call under another name, whose result is changed."""
        self._function, self._args = _then, (self._function, self._args, change)
        self.site.rename(method, about)
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
        raise self.forgotten(self.site)

    __bool__ = __iter__ = __len__ = __int__ = __float__ = __str__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __contains__ = __getitem__ = _refuse
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cr_"):  # asyncio shows where a task is
            return getattr(self._coroutine, name)
        raise AttributeError(f"{self!r} was never awaited, so it has no {name!r}")


class LooseCall(AwaitedCall):
    """Of what is no part of a run: it may also be awaited after the end of the handler."""

    __slots__ = ()

    may_outlive = True

    def began(self) -> None:
        self._calls.discard(self.site)


def missed_in_handlers(said: str) -> Callable[[F], F]:
    """An async method: a handler that calls it and drops what it returns fails."""

    def decorated(method: F) -> F:
        @functools.wraps(method)
        def called(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            attempt: Any = current_job.get()
            if attempt is None:
                coroutine: Coroutine[Any, Any, Any] = method(*args, **kwargs)
                return coroutine
            return LooseCall(calls_of(attempt), CallSite(said), functools.partial(method, *args, **kwargs))

        return called  # type: ignore[return-value] # with the signature of the method

    return decorated


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
