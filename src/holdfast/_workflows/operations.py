"""Operations: what the calls of a run ask of their driver. They say what is to happen, and not how."""

from collections.abc import Callable, Generator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

from holdfast._engine.steps import StartingStep
from holdfast._workflows.memory import Wait

T = TypeVar("T")


class Plain(Enum):
    """Operations that need no details."""

    READ = auto()
    """Read what the run remembers. Raises why the run cannot go on."""
    FLUSH = auto()
    """Wait until everything that is kept is on disk. Raises why the run cannot go on."""
    END = auto()
    """Leave the calls that the handler has not awaited, and wait until what was sent is on disk."""
    ONLY_WAITS = auto()
    """From here on, the handler may end without the result of this call."""


class Call(NamedTuple):
    """Call the function of a step, and return what it returns."""

    function: Callable[..., Any]
    args: Sequence[Any]
    is_async: bool
    timeout: float | None = None
    may_block: bool = True
    """Whether a plain function may block: an event loop then calls it in a thread."""


class Pause(NamedTuple):
    """Wait, which may suspend the run. It may end early: what was awaited has come, or it is time to look."""

    wait: Wait
    looks: bool = False
    """Whether something else than the time may end it."""


class Delay(NamedTuple):
    """Wait in memory until a time of the database, with everything on disk."""

    until: float


class Start(NamedTuple):
    """Start children. Returns a verdict of `start_children`, the ids, and the error if it was refused."""

    step: StartingStep
    tasks: str
    payloads: list[str] | None


class Begin(NamedTuple):
    """Open a transaction, and return it with its connection. It ends with one of the next two."""


class Commit(NamedTuple):
    """Record a step in its transaction and commit. Returns the verdict."""

    transaction: Any
    written: str


class Rollback(NamedTuple):
    transaction: Any


Operation = Plain | Call | Pause | Delay | Start | Begin | Commit | Rollback
Work = Generator[Operation, Any, T]
"""One call of a run: it yields operations, is sent their results, and returns its own."""
