"""The engine's clock, which a test sets and advances instead of waiting."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from holdfast.engine import Engine, health
from holdfast.serialization.text import with_zone


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
        return self._change("stands_at = %s, shifted_by = '0'", with_zone("moment", moment))

    def freeze(self) -> datetime:
        """Stop the clock now."""
        return self._change("stands_at = queues.clock(), shifted_by = '0'")

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> datetime:
        """Move the clock forward. It stays stopped or running."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta(0):
            raise ValueError(f"the clock cannot be advanced by {span}; to move it back, use set()")
        return self._change("shifted_by = shifted_by + %s", span)

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Stop the clock within the block. Afterwards it runs again if it ran before."""
        with self._engine.connection.cursor() as cursor:
            cursor.execute("select stands_at is null, shifted_by from queues.test_clock")
            [(ticking, shift)] = cursor.fetchall()
        start = self.freeze()
        try:
            yield
        finally:
            if ticking:
                self._change("stands_at = null, shifted_by = %s", shift + (self.now() - start))

    def _change(self, assignments: str, *values: object) -> datetime:
        # The only table that Python names. It exists only in databases of tests.
        statement = f"update queues.test_clock set {assignments}"  # noqa: S608 - our own text
        self._engine.connection.execute(statement.encode(), values)
        return self.now()
