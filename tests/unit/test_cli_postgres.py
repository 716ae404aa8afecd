import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast import __version__
from support.server import disposable_home


@pytest.fixture
def home() -> Iterator[Path]:
    with disposable_home() as path:
        yield path


def holdfast(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("holdfast")), *arguments]
    environment = os.environ | {"HOLDFAST_HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.full
def test_the_server_is_started_shown_and_stopped(home: Path) -> None:
    started = holdfast("postgres", "start", "--json", home=home)
    assert json.loads(started.stdout)["running"] is True

    shown = holdfast("postgres", "status", "--json", home=home)
    assert (shown.returncode, shown.stdout) == (0, started.stdout)

    assert holdfast("postgres", "stop", home=home).stdout == "PostgreSQL stopped\n"
    assert json.loads(holdfast("postgres", "stop", "--json", home=home).stdout) == {"stopped": False}


def test_status_exits_with_3_when_it_is_not_running(home: Path) -> None:
    shown = holdfast("postgres", "status", home=home)
    assert shown.returncode == 3
    assert "is not running" in shown.stdout


def test_status_creates_nothing(home: Path) -> None:
    holdfast("postgres", "status", home=home)
    assert list(home.iterdir()) == []


@pytest.mark.full
def test_url_starts_the_server_and_prints_only_its_address(home: Path) -> None:
    printed = holdfast("postgres", "url", home=home)
    assert printed.stderr == ""
    assert json.loads(holdfast("postgres", "url", "--json", home=home).stdout) == {
        "url": printed.stdout.strip()
    }
    with psycopg.connect(printed.stdout.strip()) as connection:
        assert connection.info.dbname == "holdfast"


def test_an_error_is_one_line_and_not_a_traceback(home: Path) -> None:
    (home / "file").touch()
    refused = holdfast("postgres", "start", home=home / "file")
    assert refused.returncode == 5
    assert refused.stderr == (
        f"holdfast: {home}/file cannot be used (File exists): set HOLDFAST_HOME to a directory of your own\n"
    )


def test_the_version_is_printed(home: Path) -> None:
    assert holdfast("--version", home=home).stdout == f"holdfast {__version__}\n"


def test_help_lists_the_commands_when_none_is_given(home: Path) -> None:
    assert "postgres" in holdfast(home=home).stdout
