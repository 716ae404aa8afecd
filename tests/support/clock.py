"""The engine's clock, set and advanced by a test instead of waited for."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from support.database import shards_of

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


@dataclass
class Clock:
    """Stands still at noon until it is advanced; for the transaction or database of this connection."""

    conn: psycopg.Connection[Any]
    now: datetime = NOON

    def __post_init__(self) -> None:
        self.set(self.now)

    def set(self, now: datetime) -> datetime:
        self.now = now
        for shard in shards_of(self.conn):
            shard.execute("update queues.test_clock set stands_at = %s", [now])
        return now

    def advance(self, seconds: float) -> datetime:
        return self.set(self.now + timedelta(seconds=seconds))

    def after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)
