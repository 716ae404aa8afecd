"""The engine's clock, which a test sets and advances instead of waiting."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from holdfast._engine import Engine, Statement, clock, health
from holdfast._serialization.text import with_zone


class Clock:
    """The clock of the engine in one database, for all its connections. It runs until it is set."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __repr__(self) -> str:
        return f"<Clock at {self.now().isoformat()}>"

    def now(self) -> datetime:
        return self._engine.run(health.clock())

    def set(self, moment: datetime) -> datetime:
        """Set the clock, and stop it there."""
        return self._change(clock.stop_clock(with_zone("moment", moment)))

    def freeze(self) -> datetime:
        """Stop the clock now."""
        return self._change(clock.stop_clock())

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move the clock forward. It stays stopped or running."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta(0):
            raise ValueError(f"the clock cannot be advanced by {span}; to move it back, use set()")
        return self._change(clock.advance_clock(span))

    def reset(self) -> datetime:
        """Let the clock run again, at the time of the server."""
        return self._change(clock.start_clock(timedelta(0)))

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Stop the clock within the block. Afterwards it runs again if it ran before."""
        before = self._engine.run(clock.clock_setting())
        start = self.freeze()
        try:
            yield
        finally:
            if before.stands_at is None:
                self._change(clock.start_clock(before.shifted_by + (self.now() - start)))

    def _change(self, statement: Statement[None]) -> datetime:
        self._engine.run(statement)
        return self.now()
