"""A call of a run: its function with its codec, its name and number, and what is kept of it."""

import functools
import inspect
from collections.abc import Callable, Collection
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import timedelta
from types import FunctionType
from typing import Any

from holdfast._serialization.codec import ResultCodec
from holdfast._serialization.failure import error_of
from holdfast._serialization.signature import read_result
from holdfast._serialization.text import require_storable
from holdfast._workflows.drivers import Driver
from holdfast._workflows.facts import StepKind
from holdfast._workflows.failures import timed_out
from holdfast._workflows.memory import Memory, RunState, StepMemo
from holdfast._workflows.operations import Plain, Work
from holdfast.errors import InvalidStep
from holdfast.retry import RetryPolicy

_inside: ContextVar[str | None] = ContextVar("holdfast_step", default=None)
"""The step whose function is running, also in asyncio tasks and threads that it starts."""
_known: dict[Any, "StepFunction"] = {}
MAX_KNOWN = 10_000
DEFAULT_TIMEOUT = 30 * 86400.0
LONGEST_WAIT = 90 * 365 * 86400.0
MAX_NAME_BYTES = 300


@dataclass(frozen=True, slots=True)
class StepFunction:
    name: str
    is_async: bool
    codec: ResultCodec


def describe_function(function: Callable[..., Any]) -> StepFunction:
    """Read once per function: building a codec takes longer than a step."""
    plain = function if function.__class__ is FunctionType else _plain(function)
    code = getattr(plain, "__code__", None)
    # A function that is defined in the handler is a new object each time, with the same code.
    identity = plain if code is None else (code, getattr(plain, "__annotations__", {}).get("return"))
    try:
        found = _known.get(identity)
    except TypeError:  # an annotation that is not hashable
        return _described(function, plain)
    if found is None:
        found = _described(function, plain)
        if len(_known) < MAX_KNOWN:
            _known[identity] = found
    return found


def _described(function: Callable[..., Any], plain: Any) -> StepFunction:
    name = getattr(plain, "__name__", None)
    if not isinstance(name, str) or not callable(plain):
        if inspect.iscoroutine(plain):
            plain.close()  # or Python would warn, besides this error
        raise InvalidStep(
            f"a step needs a function, not {function!r}",
            hint="Write ctx.step(charge, order_id), without calling charge yourself.",
        )
    if name == "<lambda>":
        raise InvalidStep(
            "a lambda has no name by which a resumed run could find its step",
            hint="Use def, or functools.partial.",
        )
    is_async, annotation = read_result(function)
    return StepFunction(name, is_async, ResultCodec(f"step {name}", name, annotation))


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__func__", function)


@functools.lru_cache(maxsize=1000)
def codec_of(what: str, annotation: Any) -> ResultCodec:
    """The codec for a type that the handler names, such as that of a signal."""
    return ResultCodec(what, what, annotation)


class Inside:
    """While the function of a step runs, no other step begins: a resumed run would not count it."""

    __slots__ = ("_before", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._before: Token[str | None] | None = None

    def __enter__(self) -> None:
        self._before = _inside.set(self._name)

    def __exit__(self, *given: object) -> None:
        if self._before is not None:
            _inside.reset(self._before)


def check_not_inside(name: str) -> None:
    outer = _inside.get()
    if outer is not None:
        raise InvalidStep(
            f"{name} is called inside the step {outer}, whose function a resumed run does not call again",
            hint="Call it in the handler itself, before or after that step.",
        )


class Step:
    """One call of `ctx.step`, and its tries so far in this attempt."""

    __slots__ = (
        "arguments",
        "function",
        "lazy",
        "name",
        "number",
        "policy",
        "retries",
        "timeout",
        "tries",
    )

    def __init__(
        self,
        function: StepFunction,
        name: str,
        number: int,
        *,
        retries: int,
        retry: RetryPolicy,
        timeout: float | None,
        lazy: bool,
    ) -> None:
        self.function = function
        self.name = name
        self.number = number
        self.retries = retries
        self.policy = retry
        self.timeout = timeout
        self.lazy = lazy
        self.tries = 0
        self.arguments: str | None = None
        """As JSON, of those with which it is called now."""


class StepNames:
    """Gives each step its name when it is called, not when it is awaited.

    The name is that of the function, then `[key]`, then `#2` for the second call of the same name. Two
    asyncio tasks must not use one name at the same time: their order could differ in the next attempt.
    """

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._user: dict[str, Any] = {}

    @property
    def given(self) -> Collection[str]:
        return self._count.keys()

    def give(self, base: str, key: object = None, user: Any = None, root: Any = None) -> str:
        """`user` is the asyncio task that calls, `root` the one of the handler."""
        name = base if key is None else f"{base}[{key}]"
        if 4 * len(name) > MAX_NAME_BYTES and len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            raise InvalidStep(
                f"the name of a step is longer than {MAX_NAME_BYTES} bytes: {name[:60]}…",
                hint="Choose a shorter key, such as an id.",
            )
        require_storable("the name of a step", name)
        before = self._user.get(name)
        if before is not None and before is not user and user is not root and not _is_done(before):
            raise InvalidStep(
                f"two asyncio tasks call the step {name!r} at the same time, and their order may change",
                hint="Give each call its own key: ctx.step(function, …, key=item.id).",
            )
        self._user[name] = user
        number = self._count[name] = self._count.get(name, 0) + 1
        return name if number == 1 else self._numbered(name, number)

    def _numbered(self, name: str, number: int) -> str:
        """The application may use a name such as `sleep#2` itself: skip it, and let it count as used."""
        while (numbered := f"{name}#{number}") in self._count:
            number += 1
        self._count[name] = number
        self._count[numbered] = 1
        return numbered


def _is_done(task: Any) -> bool:
    done: Callable[[], bool] | None = getattr(task, "done", None)
    return done is None or done()


def seconds_of(what: str, given: object) -> float:
    """A duration in seconds or as a timedelta."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_WAIT:
        raise InvalidStep(f"{what} takes seconds or a timedelta of at most 90 years, not {given!r}")
    return float(seconds)


def timeout_of(given: float | timedelta | None) -> float:
    return DEFAULT_TIMEOUT if given is None else seconds_of("timeout", given)


class RunLog:
    """Gives each call its name and number, loads the memory, and keeps the memos."""

    def __init__(self, state: RunState, driver: Driver) -> None:
        self.state = state
        self.driver = driver
        self.names = StepNames()
        self.numbers = 0

    def begin(self, base: str, key: object = None) -> tuple[str, int]:
        """Give a call its name and its number."""
        if self.state.suspended is not None or self.state.is_over:
            raise self.driver.ends_with
        self.driver.calls.check()
        check_not_inside(base)
        name = self.names.give(base, key, *self.driver.user())
        self.numbers += 1
        return name, self.numbers

    def checked(self, function: StepFunction) -> StepFunction:
        if function.is_async and not self.driver.is_async:
            raise InvalidStep(
                f"{function.name} is async, and the handler of {self.state.task.type} is not",
                hint="Make the handler async, or the function plain.",
            )
        return function

    def load(self) -> Work[Memory]:
        if self.state.memory is None:
            yield Plain.READ
        return self.state.loaded

    def check_room(self, memory: Memory, name: str, number: int) -> None:
        self.state.check()
        memory.check_room(name, number)

    def keep(self, name: str, number: int, kind: StepKind, result: str | None = None, **more: Any) -> None:
        self.state.keep(StepMemo(name, number, kind, result=result, **more))

    def timed_out(self, name: str, number: int, kind: StepKind, since: float) -> TimeoutError:
        what = "no signal came in time" if kind == "signal" else "the tasks did not end in time"
        self.keep(name, number, kind, error=error_of("timeout", what), took=self.took(since))
        return timed_out(name, kind)

    def took(self, since: float) -> float:
        """How long the run waited, in this and in earlier attempts, since a time of the database."""
        return max(0.0, self.state.now() - since)
