"""Holdfast through its SQL contract, called as any worker in any language would call it."""

import json
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

# What a worker needs to run a task, and what it needs besides to carry a claim cursor.
COLUMNS = (
    "task_id::text, token, type, executor, payload, attempt, max_attempts, lease_until, timeout, metadata"
)
CURSOR_COLUMNS = f"{COLUMNS}, run_at, lane_id"
CLAIM = "select {} from queues.claim('w1', %s, array['bench'], after => %s)"
FINISH = "select * from queues.finish('w1', %s)"
ENQUEUE_MANY = "select * from queues.enqueue_many(%s)"
ENQUEUE = "select queues.enqueue('bench.noop', %s)"
HOT_TABLES = ("task", "ready", "lease", "outcome")


class Contract:
    name = "holdfast"

    def __init__(self, connection: Connection, *, cursor: bool = False, worker: bool = False) -> None:
        """With the session of our worker: commits wait for the disk only where the engine says so."""
        self.connection = connection
        if worker:
            connection.execute("set synchronous_commit = off")
        self.cursor = cursor
        self.after: dict[str, dict[str, str]] = {}
        self.claim_statement = CLAIM.format(CURSOR_COLUMNS if cursor else COLUMNS)

    def enqueue_many(self, payload: dict[str, Any], count: int) -> None:
        tasks = json.dumps([{"type": "bench.noop", "payload": payload}] * count)
        self.connection.execute(ENQUEUE_MANY, (tasks,)).fetchall()

    def enqueue(self, payload: dict[str, Any]) -> None:
        self.connection.execute(ENQUEUE, (json.dumps(payload),))

    def claim(self, size: int) -> list[tuple[Any, ...]]:
        after = json.dumps(self.after) if self.after else None
        rows = self.connection.execute(self.claim_statement, (size, after)).fetchall()
        if self.cursor and rows:
            last = rows[-1]
            self.after = {str(last[11]): {"run_at": last[10].isoformat(), "task_id": last[0]}}
        return rows

    def finish(self, claimed: list[tuple[Any, ...]]) -> None:
        # Written as our worker writes it: by hand, because of their number.
        results = ",".join(
            f'{{"task_id":"{row[0]}","token":{row[1]},"status":"succeeded"}}' for row in claimed
        )
        self.connection.execute(FINISH, (f"[{results}]",)).fetchall()

    def settle(self) -> None:
        """Leave no clean-up of the filling to the measured part."""
        for table in HOT_TABLES:
            self.connection.execute(f"vacuum analyze queues.{table}")
