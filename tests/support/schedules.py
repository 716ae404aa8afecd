"""Schedules in SQL: added, looked at and fired as a leader does it."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from support.engine import Connection, Row, answer, call, rows

NAME = "nightly"


def at(hour: int, minute: int = 0, day: int = 31) -> datetime:
    """A time of January 2030; the clock of the tests stands at noon of the 31st."""
    return datetime(2030, 1, day, hour, minute, tzinfo=UTC)


def add(conn: Connection, name: str | None = NAME, **arguments: Any) -> str:
    """Hourly, unless told otherwise."""
    given = {"name": name, "type": "report.make", **arguments}
    if "cron" not in given and "every" not in given:
        given["cron"] = "0 * * * *"
    return cast("str", answer(conn, "queues.add_schedule", given))


def declare(conn: Connection, *schedules: Row, application: str = "shop") -> dict[str, str]:
    found = call(conn, "queues.declare_schedules", {"application": application, "schedules": list(schedules)})
    return {row["name"]: row["verdict"] for row in found}


def element(name: str = NAME, **more: Any) -> Row:
    """What an application declares."""
    given: Row = {"name": name, "task": {"type": "report.make"}, **more}
    return given if "every" in given else {"cron": "0 * * * *", **given}


def due(conn: Connection, **arguments: Any) -> list[Row]:
    return call(conn, "queues.due_schedules", arguments)


def plan(conn: Connection, next_at: datetime | str, name: str = NAME, **arguments: Any) -> bool:
    """As if it had been added before that time: only later times can be planned."""
    if isinstance(next_at, datetime):
        earlier = next_at - timedelta(minutes=1)
        conn.execute(
            "update queues.schedule set plan_after = least(plan_after, %s) where name = %s", [earlier, name]
        )
    given = {"name": name, **row_of(conn, name), "next_at": next_at, **arguments}
    return cast("bool", answer(conn, "queues.plan_schedule", given))


def fire(
    conn: Connection, *times: datetime, next_at: datetime | str | None = None, name: str = NAME, **more: Any
) -> list[tuple[datetime, str]]:
    """What was decided on each time."""
    following = times[-1] + timedelta(hours=1) if next_at is None else next_at
    given = {"name": name, **row_of(conn, name), "nominal_times": list(times), "next_at": following}
    found = call(conn, "queues.fire_schedule", given | more)
    return [(row["nominal_at"], row["decision"]) for row in found]


def decide(conn: Connection, *decisions: Row) -> list[Row]:
    """As a leader does it: a batch of decisions on what is due."""
    return call(conn, "queues.decide_schedules", {"decisions": list(decisions)})


def schedule(conn: Connection, name: str = NAME) -> Row:
    (row,) = rows(conn, "select * from queues.schedule_status where name = %s", [name])
    return row


def row_of(conn: Connection, name: str = NAME) -> Row:
    """What a worker says of the schedule that it decides on."""
    found = rows(conn, "select namespace, version from queues.schedule where name = %s", [name])
    return found[0] if found else {"namespace": "", "version": 0}


def version(conn: Connection, name: str = NAME) -> int:
    return int(row_of(conn, name)["version"])


def firings(conn: Connection, name: str = NAME) -> dict[datetime, str]:
    found = rows(
        conn,
        "select nominal_at, decision from queues.schedule_firing where schedule = %s order by nominal_at",
        [name],
    )
    return {row["nominal_at"]: row["decision"] for row in found}


def tasks(conn: Connection, name: str = NAME) -> list[Row]:
    """The tasks of a schedule, by the time that each is for."""
    return rows(
        conn,
        """select * from queues.task_status where metadata ->> 'schedule' = %s
           order by (metadata ->> 'nominal_at')::timestamptz""",
        [name],
    )


def nominal_times(conn: Connection, name: str = NAME) -> list[datetime]:
    return [datetime.fromisoformat(task["metadata"]["nominal_at"]) for task in tasks(conn, name)]


def events(conn: Connection, name: str = NAME) -> list[str]:
    found = rows(conn, "select event_type from queues.schedule_event where schedule = %s", [name])
    return [row["event_type"] for row in found]


def run(conn: Connection, name: str = NAME, **arguments: Any) -> UUID:
    return cast("UUID", answer(conn, "queues.run_schedule", {"name": name, **arguments}))
