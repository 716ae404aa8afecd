"""Commands: manage.py holdfast, and holdfast itself in a Django project."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from holdfast._engine import Engine, tasks
from support.database import Database

SHOP = Path(__file__).parents[3] / "examples" / "django_shop"
HOLDFAST = str(Path(sys.executable).parent / "holdfast")


class Project:
    """The example project, used through its commands."""

    def __init__(self, url: str, directory: Path = SHOP) -> None:
        self.url = url
        self._directory = directory

    def manage(self, *arguments: str, code: int = 0, **variables: str) -> str:
        return self.run(sys.executable, "manage.py", *arguments, code=code, **variables)

    def run(self, *command: str, code: int = 0, **variables: str) -> str:
        ran = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment | {"NO_COLOR": "1", "COLUMNS": "200"} | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    @contextmanager
    def worker(self, **variables: str) -> Iterator[IO[str]]:
        """The log of a worker that runs until the block ends, and then ends in order."""
        with subprocess.Popen(
            [sys.executable, "-u", "manage.py", "holdfast", "worker"],
            cwd=self._directory,
            env=self._environment | {"WORKER_LOG_TASKS": "always"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as worker:
            assert worker.stdout
            try:
                yield worker.stdout
            finally:
                worker.terminate()
                rest = worker.communicate()[0]
            assert worker.returncode == 0, rest

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "DATABASE_URL": self.url}


@pytest.fixture
def shop(db: Database) -> Project:
    return Project(db.dsn)


def test_the_application_of_the_project_is_the_default(django: Any) -> None:
    from holdfast.contrib.django.management.commands.holdfast import with_application

    def completed(*arguments: str) -> list[str]:
        return with_application(list(arguments), "shop.tasks:app")

    assert completed("worker") == ["worker", "shop.tasks:app"]
    assert completed("worker", "--queues", "service:web") == [
        *("worker", "shop.tasks:app", "--queues", "service:web")
    ]
    assert completed("schedules", "apply", "--json") == ["schedules", "apply", "shop.tasks:app", "--json"]
    for unchanged in (
        ["worker", "other:app"],
        ["worker", "--queues", "a", "other:app"],
        ["list"],
        ["list", "--json"],
        ["nonsense"],
        ["--version"],
        [],
    ):
        assert completed(*unchanged) == unchanged


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_new_user_follows_the_example_with_manage_py_only(db: Database) -> None:
    with db.connect() as connection:
        connection.execute("create database fresh_shop")
    shop = Project(db.server.url("fresh_shop"))
    try:
        assert "manage.py migrate" in shop.manage("check", "--database", "default")
        assert "Applying holdfast.0001_initial... OK" in shop.manage("migrate")
        assert "no issues" in shop.manage("check", "--database", "default")
        assert "No changes detected" in shop.manage("makemigrations", "--check")
        assert re.search(r"Ran 3 tests.*OK", shop.manage("test"), re.DOTALL)
        _sign_up_and_work(shop)
    finally:
        with db.connect() as connection:
            connection.execute("drop database fresh_shop with (force)")


def _sign_up_and_work(shop: Project) -> None:
    sign_up = "Client().post('/sign-up', {'email': 'ada@example.com'})"
    create = f"from django.test import Client; print({sign_up}.json())"
    task_id = str(re.search(r"'task': '([^']*)'", shop.manage("shell", "-c", create))[1])  # type: ignore[index]
    assert "pending" in shop.manage("holdfast", "show", task_id)
    lines = []
    with shop.worker() as log:
        for line in log:
            lines.append(line)
            if "task_ended" in line:
                break
    assert "Subject: Welcome!\n" in lines
    assert "To: ada@example.com\n" in lines
    assert "shop.remove_old_customers" in shop.manage("holdfast", "schedules", "list")
    assert "succeeded" in shop.manage("holdfast", "list")


PROCESS_TASK = """

@app.task("shop.count", executor="process")
def count() -> int:
    return int(Customer.objects.count())
"""


@pytest.mark.full
def test_a_child_process_sets_up_django(db: Database, tmp_path: Path) -> None:
    shutil.copytree(SHOP, tmp_path / "shop")
    with (tmp_path / "shop" / "shop" / "tasks.py").open("a") as tasks_py:
        tasks_py.write(PROCESS_TASK)
    shop = Project(db.dsn, tmp_path / "shop")
    shop.manage("migrate")
    shop.manage("holdfast", "enqueue", "shop.count")
    with shop.worker(HOLDFAST_PROCESS_ENV="DATABASE_URL") as log:
        line = next(line for line in log if "task_ended" in line)
    assert '"status": "succeeded"' in line


def test_commands_use_the_database_of_the_project(shop: Project, db: Database) -> None:
    printed = shop.manage("holdfast", "enqueue", "mail.welcome", '{"customer_id": 1}')
    [task] = Engine(db.connect()).run(tasks.list_tasks())
    assert str(task.task_id) in printed


@pytest.mark.full
def test_holdfast_sets_up_django_if_its_settings_are_named(shop: Project) -> None:
    ran = shop.run(HOLDFAST, "tasks", "shop.tasks:app", DJANGO_SETTINGS_MODULE="shop.settings")
    assert "mail.welcome" in ran


@pytest.mark.full
def test_holdfast_says_what_to_set_if_django_is_not_set_up(shop: Project) -> None:
    ran = shop.run(HOLDFAST, "worker", "shop.tasks:app", code=2)
    assert "shop.tasks uses Django, which is not set up" in ran
    assert "Set DJANGO_SETTINGS_MODULE" in ran
    ran = shop.run(HOLDFAST, "worker", "shop.tasks:app", code=2, DJANGO_SETTINGS_MODULE="wrong.settings")
    assert "DJANGO_SETTINGS_MODULE='wrong.settings' cannot be used: there is no module 'wrong'" in ran


def test_a_database_that_cannot_be_used_is_reported_in_one_line(
    django: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from django.core.management import execute_from_command_line

    monkeypatch.setattr(django, "vendor", "sqlite")
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "holdfast", "list"])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "DATABASES['default'] is sqlite. Set its ENGINE to django.db.backends.postgresql" in line


def test_a_release_is_installed_by_every_migrate(django: Any, db: Database) -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    db.connect().execute("update queues.unit set digest = 'older'")
    call_command("migrate", verbosity=0)
    left = "select count(*) from queues.unit where digest = 'older'"
    assert db.connect().execute(left).fetchone() == (0,)


def test_a_flush_after_a_test_installs_nothing(django: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    installed: list[str] = []
    monkeypatch.setattr(
        "holdfast.contrib.django.schema.install_schema", lambda alias, **_: installed.append(alias)
    )
    call_command("flush", interactive=False, verbosity=0)
    assert installed == []
    call_command("migrate", verbosity=0)
    assert installed == ["default"]


def test_the_schema_can_be_left_to_an_administrator(django: Any, db: Database) -> None:
    from django.core.management import call_command
    from django.test import override_settings

    db.connect().execute("drop schema queues, internal, comms cascade")
    with override_settings(HOLDFAST={"MIGRATE": False}):
        call_command("migrate", verbosity=0)
    assert db.connect().execute("select to_regnamespace('queues')").fetchone() == (None,)


def test_a_schema_that_cannot_be_installed_is_reported_with_what_to_do(django: Any, db: Database) -> None:
    from django.core.management import CommandError, call_command

    db.connect().execute(
        "drop schema queues, internal, comms cascade; create schema queues; create table queues.mine ()"
    )
    with pytest.raises(CommandError, match=r"(?s)could not be installed in the database 'default'.*MIGRATE"):
        call_command("migrate", verbosity=0)
