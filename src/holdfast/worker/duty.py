"""What a duty of the leader is."""

from typing import Protocol, TypeVar

from holdfast.engine import Statement

T = TypeVar("T")


class Ask(Protocol):
    """Executes a statement in a transaction of its own, while the term certainly holds.

    Once it no longer does, it raises, and the duty ends there. A statement that is under way when the term
    ends is cancelled by the server.
    """

    def __call__(self, statement: Statement[T], /) -> T: ...


class Duty(Protocol):
    """Safe even if two leaders act at once. What it keeps between runs, the next leader does not have."""

    @property
    def name(self) -> str: ...

    @property
    def interval(self) -> float:
        """Seconds from one run to the next."""

    def run(self, ask: Ask) -> float | None:
        """One step that is soon over, because other duties wait for it.

        Answers in how many seconds the next one shall come; None is the interval, 0 means as soon as the
        others have had their turn.
        """
