"""Leaders that all act at once, and are killed in the middle of it: one task per nominal time."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from time import sleep

import pytest

from acceptance.ground import Ground
from acceptance.hasty_leader import HastyLeader
from acceptance.trial import FULL, chance, tell, trial
from holdfast._engine import Engine
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import NewSchedule, declare_schedules
from holdfast._telemetry.logs import worker_log
from holdfast._worker.scheduling import FireSchedules
from support import engine
from support.engine import Connection

SECOND = timedelta(seconds=1)
SCHEDULES = 10
LEADERS = 3
KILLS = 100 if FULL else 8


@contextmanager
def leaders(url: str) -> Iterator[list[HastyLeader]]:
    running: list[HastyLeader] = []
    try:
        for _ in range(LEADERS):
            running.append(HastyLeader(url))  # noqa: PERF401 - each has to be ended, also if the next cannot start
        for one in running:
            one.wait_until_it_leads()
        yield running
    finally:
        for one in running:
            one.kill()


def names() -> list[str]:
    return [f"s{n}" for n in range(SCHEDULES)]


def times(conn: Connection, name: str) -> list[datetime]:
    """Of all tasks of the schedule, in order."""
    found = engine.rows(
        conn,
        """select (metadata ->> 'nominal_at')::timestamptz as nominal_at from queues.task
           where metadata ->> 'schedule' = %s order by 1""",
        [name],
    )
    return [row["nominal_at"] for row in found]


@trial("P10")
@pytest.mark.timeout(900 if FULL else 120)
def test_one_task_per_nominal_time_while_leaders_are_killed(ground: Ground) -> None:
    conn, url = ground.conn, ground.database.dsn_as("holdfast_worker")
    victims = chance("leaders")
    schedules = [
        NewSchedule(
            name=name, task=NewTask("acceptance.work"), every=SECOND, catch_up="all", catch_up_limit=1000
        )
        for name in names()
    ]
    Engine(conn).run(declare_schedules("acceptance", schedules))
    with leaders(url) as running:
        for _ in range(KILLS):
            sleep(victims.uniform(0.1, 0.4))
            running.pop(victims.randrange(LEADERS)).kill()
            running.append(HastyLeader(url))
            running[-1].wait_until_it_leads()
    FireSchedules(worker_log("last")).run(Engine(conn).run)
    total = 0
    for name in names():
        found = times(conn, name)
        assert found == [found[0] + n * SECOND for n in range(len(found))], name
        (row,) = engine.rows(
            conn, "select created_at, next_at from queues.schedule_status where name = %s", [name]
        )
        assert found[0] - row["created_at"] <= SECOND
        assert found[-1] == row["next_at"] - SECOND
        total += len(found)
    tell(f"{SCHEDULES} schedules, {LEADERS} leaders at once, {KILLS} killed: {total} times, one task each")
    assert total > SCHEDULES * KILLS * 0.1
    decided = engine.value(conn, "select count(*) from queues.schedule_firing where decision = 'fired'")
    assert decided == total
