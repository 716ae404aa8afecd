"""A database as a busy year leaves it, written directly into the tables: a million tasks take about a minute.

Of the tasks, 90 of 100 have ended; the others wait, most of them for later, run, or are deleted. There are
5,000 types in 40 queues, concurrency keys and limits, errors in many groups, suspended runs with steps and
children, a large batch, business processes, messages, events with their deliveries, schedules, and 200
workers. The activity of the types is there for as long as it is kept. The SQL is in large_database.sql.
"""

import re
from pathlib import Path
from typing import Any

import psycopg

TASKS = 1_000_000
TYPES = 5_000
QUEUES = 40
WORKERS = 200

Connection = psycopg.Connection[Any]

_SOURCE = Path(__file__).with_suffix(".sql").read_text()
_PARTS = dict(re.findall(r"^-- part: (\w+)\n(.*?)(?=^-- part: |\Z)", _SOURCE, re.MULTILINE | re.DOTALL))


def load_surroundings(connection: Connection) -> None:
    """What does not depend on the number of tasks: workers, types, activity, schedules, subscriptions."""
    _run(connection, "fleet", "activity", "samples")


def load_tasks(connection: Connection, first: int = 1, last: int = TASKS) -> None:
    """The tasks with these numbers, and what belongs to them. May be called again with others."""
    connection.execute("set session_replication_role = replica")  # without the checks of foreign keys
    parts = ("plan", "lanes", "tasks", "history", "processes", "events")
    _run(connection, *parts, first=first, last=last)
    connection.execute("drop table public.plan")
    connection.execute("set session_replication_role = default")


def finish_loading(connection: Connection) -> None:
    """The statistics and visibility maps that autovacuum would have made meanwhile."""
    connection.execute("vacuum (analyze)")


def load(connection: Connection, tasks: int = TASKS) -> None:
    """Unless it is loaded already. Leases and heartbeats are good for a day."""
    if _value(connection, "select exists (select from queues.task)"):
        return
    load_surroundings(connection)
    load_tasks(connection, 1, tasks)
    finish_loading(connection)


def _run(connection: Connection, *parts: str, **numbers: int) -> None:
    given = {"types": TYPES, "queues": QUEUES, "workers": WORKERS} | numbers
    for part in parts:
        text = re.sub(r"\{(\w+)\}", lambda name: str(given.get(name[1], name[0])), _PARTS[part])
        for statement in text.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode())


def _value(connection: Connection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None
