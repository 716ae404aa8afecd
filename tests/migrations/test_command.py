import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast._install.schema import SCHEMA_VERSION, script
from support.database import Database


def holdfast_migrate(*arguments: str, dsn: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("holdfast")), "migrate", *arguments]
    environment = os.environ | {"DATABASE_URL": dsn}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.full
def test_the_command_installs_and_then_has_nothing_to_do(blank: Database) -> None:
    check = holdfast_migrate("--check", dsn=blank.dsn)
    assert (check.returncode, check.stdout) == (
        1,
        f"pending: install version {SCHEMA_VERSION} of the schema\n",
    )

    first = holdfast_migrate(dsn=blank.dsn)
    assert (first.returncode, first.stdout) == (0, f"installed version {SCHEMA_VERSION} of the schema\n")
    assert first.stderr == "creating tables\nreplacing functions and views\n"

    second = holdfast_migrate(dsn=blank.dsn)
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout == f"nothing to do: the schema is at version {SCHEMA_VERSION}\n"
    assert holdfast_migrate("--check", dsn=blank.dsn).returncode == 0


@pytest.mark.full
def test_the_command_speaks_json(blank: Database) -> None:
    done = holdfast_migrate("--json", dsn=blank.dsn)
    assert json.loads(done.stdout) == {
        "action": "install",
        "from_version": 0,
        "to_version": SCHEMA_VERSION,
        "single_login": False,
        "added": [],
        "missing": [],
    }
    forced = holdfast_migrate("--json", "--force", dsn=blank.dsn)
    assert json.loads(forced.stdout)["action"] == "replay"


def test_the_command_prints_the_script_without_a_database() -> None:
    assert holdfast_migrate("--sql", dsn="postgresql://nowhere.invalid/").stdout == script()


def test_a_refusal_is_a_message_and_exit_code_3(blank: Database) -> None:
    blank.connect().execute("create schema queues; create table queues.mine ()")
    refused = holdfast_migrate(dsn=blank.dsn)
    assert refused.returncode == 3
    assert refused.stderr.startswith(
        "holdfast: The schemas queues, internal and comms are for Holdfast alone"
    )
