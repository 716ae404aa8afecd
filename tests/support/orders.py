"""Two sessions in one thread, whose transactions are played in every order."""

from collections.abc import Callable, Iterator
from itertools import combinations

from support.database import Database
from support.engine import Connection

Step = Callable[[], object]


class Session:
    """A connection whose calls fail instead of waiting for a lock."""

    def __init__(self, db: Database) -> None:
        self.conn = db.connect(autocommit=False)
        self.conn.execute("set lock_timeout = '100ms'")
        self.conn.commit()

    def run(self, act: Callable[[Connection], object], *, commits: bool = True) -> list[Step]:
        """The two steps of a transaction: the call, and its end."""
        return [lambda: act(self.conn), self.conn.commit if commits else self.conn.rollback]


def merged(one: list[Step], other: list[Step]) -> Iterator[list[Step]]:
    """Every order of both that keeps the order of each."""
    size = len(one) + len(other)
    for places in combinations(range(size), len(one)):
        first, second = iter(one), iter(other)
        yield [next(first) if place in places else next(second) for place in range(size)]
