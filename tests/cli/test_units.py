"""Commands in a database without the optional units: what needs one says which, and how to add it."""

import json
from functools import partial

import pytest

from holdfast._install.schema import SCHEMA_VERSION
from support.commands import Holdfast, run
from support.database import Database


@pytest.fixture
def holdfast(core_db: Database) -> Holdfast:
    return partial(run, url=core_db.dsn)


@pytest.mark.parametrize(
    ("command", "unit"),
    [
        ("events list", "events"),
        ("events tail --no-follow", "events"),
        ("events test audit", "events"),
        ("mailbox list", "messages"),
        ("process list", "messages"),
        ("tokens create ada --scope read", "web"),
        ("tokens list", "web"),
    ],
)
def test_a_command_that_needs_a_missing_unit_names_it_and_how_to_add_it(
    holdfast: Holdfast, command: str, unit: str
) -> None:
    result = holdfast(*command.split())
    assert result.exit_code == 6, result.output
    assert result.stderr.startswith(f"holdfast: this database has no {unit}")
    assert f"Run holdfast migrate --with {unit}." in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "queues",
        "workers",
        "schedules list",
        "limits list",
        "retention list",
        "namespaces list",
        "errors",
        "prune",
    ],
)
def test_the_other_commands_work_without_any_unit(holdfast: Holdfast, command: str) -> None:
    result = holdfast(*command.split())
    assert result.exit_code == 0, result.output


def test_a_task_is_shown_without_the_deliveries_of_its_events(holdfast: Holdfast) -> None:
    task_id = holdfast("enqueue", "demo.echo").stdout.strip()
    shown = holdfast("show", task_id, "--json")
    assert json.loads(shown.stdout)["deliveries"] == []


def test_health_shows_the_installed_units_and_judges_no_missing_one(holdfast: Holdfast) -> None:
    told = json.loads(holdfast("health", "--json").stdout)
    assert told["units"] == ["core"]
    judged = {line["check_name"] for line in told["lines"]}
    assert judged & {"outbox", "dead_events", "orphaned_process", "failing_supervisor"} == set()
    assert holdfast("health", "--all").stdout.endswith("\nInstalled: core\n")
    assert "Installed" not in holdfast("health").stdout


def test_migrate_keeps_the_choice_and_adds_what_is_asked_for(holdfast: Holdfast) -> None:
    same = holdfast("migrate")
    assert same.stdout == (
        f"nothing to do: the schema is at version {SCHEMA_VERSION}, without messages, events and web\n"
    )
    found = holdfast("migrate", "--check", "--with", "events,web")
    assert (found.exit_code, found.stdout) == (
        1,
        f"pending: add events and web to version {SCHEMA_VERSION} of the schema, without messages\n",
    )
    added = holdfast("migrate", "--with", "events", "--with", "web", "--json")
    assert json.loads(added.stdout)["added"] == ["events", "web"]
    assert json.loads(added.stdout)["missing"] == ["messages"]
    assert holdfast("events", "list").exit_code == 0


def test_migrate_refuses_to_remove_a_unit(db: Database) -> None:
    refused = run("migrate", "--without", "messages", url=db.dsn)
    assert refused.exit_code == 3
    assert "This database has messages, and Holdfast removes no unit" in refused.stderr


def test_a_setting_leaves_units_out_of_a_new_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WITHOUT", "messages, web")
    printed = run("migrate", "--sql", url="postgresql://nowhere.invalid/").stdout
    assert "create table comms." not in printed
    assert "create table queues.access_token " not in printed
    wanted = run("migrate", "--sql", "--with", "web", url="postgresql://nowhere.invalid/").stdout
    assert "create table queues.access_token " in wanted
