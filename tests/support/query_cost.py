"""What a call costs inside the server: pages touched, and tables read from end to end."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors

from support.engine import Connection

_COUNTS = """
select relname, seq_scan, seq_tup_read from pg_stat_xact_user_tables where schemaname in ('queues', 'comms')
"""


@dataclass
class Effort:
    pages: int
    answered: int
    read_whole: dict[str, int]  # and how many rows they had
    plans: list[dict[str, Any]] = field(default_factory=list)


class Meter:
    """Measures calls on one connection, so that the plans are those that this connection has cached."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._plans: list[dict[str, Any]] = []
        self.sees_plans = self._ask_for_plans()

    def measure(self, statement: str) -> Effort:
        """In the caller's transaction."""
        before = self._scans()
        self._plans.clear()
        found = self.conn.execute(
            f"explain (analyze, buffers, timing off, format json) {statement}".encode()
        ).fetchone()
        assert found
        plan = found[0][0]["Plan"]
        scans = {
            table: rows - before[table][1]
            for table, (count, rows) in self._scans().items()
            if count > before[table][0]
        }
        pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return Effort(pages, plan["Actual Rows"], scans, list(self._plans))

    def _scans(self) -> dict[str, tuple[int, int]]:
        return {table: (scans, rows) for table, scans, rows in self.conn.execute(_COUNTS).fetchall()}

    def _ask_for_plans(self) -> bool:
        """The plans of statements inside functions, where the server has auto_explain."""
        try:
            self.conn.execute("load 'auto_explain'")
        except errors.UndefinedFile:
            return False
        for name, value in {
            "auto_explain.log_min_duration": "0",
            "auto_explain.log_nested_statements": "on",
            "auto_explain.log_format": "json",
            "client_min_messages": "log",
        }.items():
            self.conn.execute("select set_config(%s, %s, false)", [name, value])
        self.conn.add_notice_handler(self._note)
        return True

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        _, _, plan = (notice.message_primary or "").partition("plan:\n")
        if plan:
            self._plans.append(json.loads(plan))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)
