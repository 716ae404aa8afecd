"""holdfast process new and apply: the files of a process, their names, and what they make of the database."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.processes.scaffold import SQL_WORDS
from support.database import Database
from support.process_commands import ProcessCommand, value_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("parcels", []),
        *(
            pytest.param(*other, marks=pytest.mark.full)
            for other in [("process", []), ("decision", ["--decision"]), ("errands", ["--python"])]
        ),
    ],
)
def test_the_generated_tests_pass_untouched(
    project: Path, run: ProcessCommand, name: str, how: list[str]
) -> None:
    run("new", name, "--files-only", *how)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", name],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "7 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("how", [[], ["--decision"], ["--python"]], ids=["attempts", "decision", "python"])
def test_generated_code_uses_only_what_is_documented(
    project: Path, run: ProcessCommand, how: list[str]
) -> None:
    run("new", "parcels", "--files-only", *how)
    for path in (project / "parcels").glob("*.py"):
        text = path.read_text()
        assert set(re.findall(r"from (holdfast\S*) import|import (holdfast\S*)", text)) <= {("holdfast", "")}
        assert "internal." not in text


WRONG = ["Shipping", "1st", "pg_x", "comms", "class", "a-b", "x", "drop table"]
RESERVED = ["order", "user", "group", "check", "case", "json", "time", "email", "psycopg", "pytest"]


@pytest.mark.parametrize("name", WRONG + RESERVED)
def test_a_name_that_cannot_be_one_is_refused_and_nothing_is_left(
    run: ProcessCommand, project: Path, name: str
) -> None:
    assert "cannot be the name of a process" in run("new", name, code=2)
    assert list(project.iterdir()) == []


def test_every_word_that_the_server_reserves_is_refused(db: Database) -> None:
    found = (
        db.connect().execute("select word from pg_get_keywords() where catcode in ('R', 'T', 'C')").fetchall()
    )
    assert {row[0] for row in found} - SQL_WORDS == set()


def test_a_process_that_cannot_be_installed_leaves_nothing(
    run: ProcessCommand, project: Path, db: Database
) -> None:
    conn = db.connect()
    conn.execute("create schema parcels")
    assert "already has a schema parcels" in run("new", "parcels", code=2)
    assert list(project.iterdir()) == []

    conn.execute("drop schema parcels")
    conn.execute("alter function queues.refuse_change() rename to refuse_no_change")
    assert "1_tables.sql" in run("new", "parcels", code=2)
    assert list(project.iterdir()) == []
    assert value_of(conn, "select to_regnamespace('parcels')") == (None,)


def test_changed_files_are_applied_without_losing_anything(
    shipping: ProcessCommand, project: Path, db: Database
) -> None:
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}')")
    assert "Nothing to do." in shipping("apply", "shipping")
    supervisor = project / "shipping" / "4_supervisor.sql"
    supervisor.write_text(supervisor.read_text().replace("'it is for later'", "'not yet'"))
    tables = project / "shipping" / "1_tables.sql"
    tables.write_text(
        tables.read_text() + "alter table shipping.shipping_task add column if not exists weight integer;\n"
    )

    told = shipping("apply", "shipping")
    assert "4_supervisor.sql  changed" in told
    assert "2_facts.sql       unchanged" in told
    assert "keep their columns" in told
    assert value_of(conn, "select shipping_task_id, weight from shipping.shipping_task") == (1, None)
    assert "not yet" in value_of(conn, "select prosrc from pg_proc where proname = 'shipping_supervisor'")[0]
    assert shipping("check", "shipping") == "shipping: all checks passed\n"
    assert json.loads(shipping("apply", "shipping", "--json"))["applied"] is False
    assert json.loads(shipping("apply", "shipping", "--json", "--force"))["applied"] is True


def test_a_file_that_fails_changes_nothing(shipping: ProcessCommand, project: Path, db: Database) -> None:
    handlers = project / "shipping" / "3_handlers.sql"
    handlers.write_text("drop function shipping.get_shipping_payload;\nselect nothing;\n")

    assert "3_handlers.sql line 2: column" in shipping("apply", "shipping", code=2)
    assert shipping("check", "shipping") == "shipping: all checks passed\n"
    assert "no SQL files found" in shipping("apply", "nowhere", code=2)


def test_the_command_of_its_page_runs_it(shipping: ProcessCommand, project: Path, db: Database) -> None:
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{\"n\": 7}')")
    (command,) = re.findall(
        r"^    (holdfast worker .*)$", (project / "shipping" / "README.md").read_text(), re.MULTILINE
    )
    program = str(Path(sys.executable).with_name("holdfast"))
    environment = os.environ | {"DATABASE_URL": db.dsn}
    with subprocess.Popen([program, *command.split()[1:]], cwd=project, env=environment) as worker:
        try:
            deadline = time.monotonic() + 60
            while value_of(conn, "select status from queues.process_status") != ("succeeded",):
                assert worker.poll() is None
                assert time.monotonic() < deadline
                conn.execute("select pg_sleep(0.05)")
        finally:
            worker.terminate()
            worker.wait(30)


@pytest.mark.parametrize(
    ("directory", "command"),
    [
        ("shop/jobs", "holdfast worker shop.jobs.parcels:app --queues parcels"),
        (".", "holdfast worker parcels:app --queues parcels"),
        ("my-jobs", "cd my-jobs && holdfast worker parcels:app --queues parcels"),
    ],
)
def test_the_command_fits_the_directory(
    run: ProcessCommand, project: Path, directory: str, command: str
) -> None:
    run("new", "parcels", "--files-only", "--directory", directory)
    assert f"    {command}\n" in (project / directory / "README.md").read_text()


def test_files_that_are_there_are_not_overwritten(run: ProcessCommand, project: Path) -> None:
    run("new", "parcels", "--files-only")
    (project / "parcels" / "README.md").write_text("mine")

    assert "already exists" in run("new", "parcels", "--files-only", code=2)
    assert (project / "parcels" / "README.md").read_text() == "mine"
