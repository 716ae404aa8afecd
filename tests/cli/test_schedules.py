from pathlib import Path
from typing import Any

import pytest

from holdfast._engine import Engine, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import NewSchedule, declare_schedules
from support.commands import Holdfast, answer, run
from support.database import Database

HOURLY = ("add", "nightly", "report.make", "--cron", "0 * * * *")


@pytest.fixture
def schedules(holdfast: Holdfast) -> Any:
    return lambda *arguments: holdfast("schedules", *arguments)


def test_a_schedule_is_added_listed_and_shown(schedules: Any) -> None:
    added = schedules(
        *("add", "nightly", "report.make", '{"n": 1}', "--cron", "30 2 * * mon-fri", "--tz", "Europe/Berlin"),
        *("--catch-up", "all", "--catch-up-limit", "3", "--jitter", "5m", "--overlap", "skip"),
        *("--queue", "slow", "--priority", "2", "--max-attempts", "7", "--timeout", "1m"),
    )
    assert added.stdout == "Schedule nightly added.\n"

    (found,) = answer(schedules("list", "--json"))["schedules"]
    assert (found["cron"], found["tz"], found["catch_up"]) == ("30 2 * * mon-fri", "Europe/Berlin", "all")
    assert (found["catch_up_limit"], found["jitter"], found["overlap"]) == (3, 300, "skip")
    assert found["task"] == {
        "type": "report.make",
        "payload": {"n": 1},
        "queue": "slow",
        "priority": 2,
        "max_attempts": 7,
        "timeout": 60,
    }
    listed = schedules("list").stdout
    assert "nightly" in listed
    assert "30 2 * * mon-fri" in listed
    assert "not planned yet" in listed
    assert "added" in schedules("show", "nightly").stdout
    assert answer(schedules("show", "nightly", "--json"))["events"][0]["event_type"] == "added"


def test_an_interval_is_added(schedules: Any) -> None:
    schedules("add", "often", "report.make", "--every", "90s", "--anchor", "2030-01-01T00:00Z")

    (found,) = answer(schedules("list", "--json"))["schedules"]
    assert (found["every"], found["anchor"][:4], found["cron"]) == (90, "2030", None)
    assert "every 0:01:30" in schedules("list").stdout


def test_adding_it_again_says_so(schedules: Any) -> None:
    schedules(*HOURLY)

    assert schedules(*HOURLY).stdout == "Schedule nightly already exists.\n"
    refused = schedules("add", "nightly", "report.make", "--cron", "5 * * * *")
    assert (refused.exit_code, "nightly" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ((), "cron"),
        (("--cron", "0 * * * *", "--every", "5m"), "every"),
        (("--cron", "0 0 30 2 *"), "cron"),
        (("--cron", "0 * * * *", "--tz", "Mars/North"), "tz"),
        (("--every", "5m", "--tz", "Europe/Berlin"), "tz"),
        (("--cron", "0 * * * *", "--anchor", "2030-01-01T00:00Z"), "anchor"),
        (("--every", "0s"), "every"),
        (("--cron", "0 * * * *", "--catch-up", "some"), "catch-up"),
        (("--cron", "0 * * * *", "--catch-up-limit", "0"), "catch_up_limit"),
    ],
)
def test_what_could_not_be_kept_is_refused(empty_db: Database, options: tuple[str, ...], part: str) -> None:
    refused = run("schedules", "add", "nightly", "report.make", *options, url=empty_db.dsn)
    assert (refused.exit_code, part in refused.stderr) == (2, True), refused.stderr


def test_a_schedule_is_paused_and_resumed(schedules: Any) -> None:
    schedules(*HOURLY)

    assert schedules("pause", "nightly", "--reason", "holidays").stdout == "Schedule nightly paused.\n"
    assert schedules("pause", "nightly").stdout == "Schedule nightly was already paused.\n"
    assert "holidays" in schedules("list").stdout
    told = answer(schedules("resume", "nightly", "--json"))
    assert told == {"schedule": "nightly", "paused": False, "changed": True}


def test_a_schedule_is_run_by_hand(schedules: Any, engine: Engine) -> None:
    schedules(*HOURLY)
    task_id = schedules("run", "nightly", "--reason", "now").stdout.strip()

    (task,) = engine.run(tasks.list_tasks())
    assert (str(task.task_id), task.type) == (task_id, "report.make")
    assert answer(schedules("run", "nightly", "--json"))["schedule"] == "nightly"


def test_a_schedule_is_removed(schedules: Any) -> None:
    schedules(*HOURLY)

    assert schedules("remove", "nightly").stdout == "Schedule nightly removed.\n"
    assert "No schedules" in schedules("list").stderr


SHOP = """
from holdfast import App

app = App(name="shop")

@app.schedule("0 * * * *", name="nightly")
@app.task("report.make")
def make() -> None: ...
"""


def test_the_schedules_of_an_application_are_applied_by_a_client(
    db: Database, elsewhere: Path, holdfast: Holdfast
) -> None:
    (elsewhere / "hourly_shop.py").write_text(SHOP)
    client = db.dsn_as("holdfast_client")

    applied = run("schedules", "apply", "hourly_shop:app", "--json", url=client)
    assert answer(applied) == {"schedules": [{"name": "nightly", "verdict": "added"}]}
    assert "unchanged" in run("schedules", "apply", "hourly_shop:app", url=client).stdout
    (found,) = answer(holdfast("schedules", "list", "--json"))["schedules"]
    assert (found["namespace"], found["declared_by"]) == ("holdfast_client_login", "shop")
    worker = run("schedules", "apply", "hourly_shop:app", url=db.dsn_as("holdfast_worker"))
    assert worker.exit_code == 7


def test_applying_a_name_that_is_taken_fails(db: Database, elsewhere: Path, holdfast: Holdfast) -> None:
    (elsewhere / "hourly_shop.py").write_text(SHOP)
    holdfast("schedules", *HOURLY, "--queue", "other")

    taken = holdfast("schedules", "apply", "hourly_shop:app")
    assert (taken.exit_code, "already in use" in taken.stderr) == (1, True)


@pytest.mark.parametrize("command", ["show", "pause", "resume", "run", "remove"])
def test_an_ambiguous_name_needs_a_namespace(db: Database, holdfast: Holdfast, command: str) -> None:
    holdfast("schedules", *HOURLY)
    run("schedules", *HOURLY, url=db.dsn_as("holdfast_client"))

    unclear = holdfast("schedules", command, "nightly")
    assert (unclear.exit_code, "exists in 2 namespaces" in unclear.stderr) == (2, True)
    assert "--namespace" in unclear.stderr
    named = holdfast("schedules", command, "nightly", "--namespace", "holdfast_client_login")
    assert named.exit_code == 0


@pytest.mark.parametrize("command", ["show", "pause", "resume", "remove", "run"])
def test_an_unknown_schedule_is_told_so(empty_db: Database, command: str) -> None:
    unknown = run("schedules", command, "nonesuch", url=empty_db.dsn)
    assert (unknown.exit_code, "nonesuch" in unknown.stderr) == (4, True)


def test_a_schedule_that_left_the_code_is_shown_as_orphaned(schedules: Any, engine: Engine) -> None:
    one = NewSchedule(name="old", task=NewTask("report.make"), cron="0 * * * *")
    engine.run(declare_schedules("shop", [one]))
    engine.run(declare_schedules("shop", []))

    assert "orphaned" in schedules("list").stdout
