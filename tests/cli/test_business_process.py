"""holdfast process: a new one keeps every rule, and what breaks one is found."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from support.clock import Clock
from support.comms import CHANNELS
from support.database import Database

Holdfast = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(db: Database, project: Path) -> Holdfast:
    del project

    def call(*words: str, code: int = 0) -> str:
        answer = CliRunner().invoke(app, ["process", *words, "--database-url", db.dsn])
        assert answer.exit_code == code, answer.output
        return answer.output

    return call


@pytest.fixture
def shipping(run: Holdfast) -> Holdfast:
    run("new", "shipping")
    return run


def _findings(run: Holdfast, code: int = 1) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(run("check", "shipping", "--json", code=code))["findings"]
    return found


def test_a_new_process_keeps_every_rule(shipping: Holdfast) -> None:
    assert shipping("check", "shipping") == "shipping: every rule holds\n"


def test_ours_keep_every_rule_too(run: Holdfast) -> None:
    assert run("check") == "comms.send_email, comms.send_sms: every rule holds\n"


BREAKS = {
    "a grant": (
        "revoke execute on function shipping.record_shipping_failure from holdfast_worker",
        "shipping.record_shipping_failure(jsonb)",
        "grant execute",
    ),
    "a unique key": (
        "alter table shipping.shipping_task_failed drop constraint shipping_task_failed_pkey",
        "shipping.shipping_task_failed",
        "add unique (shipping_task_id, attempt)",
    ),
    "a pinned path": (
        "alter function shipping.shipping_supervisor(jsonb) reset search_path",
        "shipping.shipping_supervisor(jsonb)",
        "set search_path = pg_catalog, pg_temp",
    ),
    "the trigger": (
        "drop trigger append_only on shipping.shipping_task_scheduled",
        "shipping.shipping_task_scheduled",
        "create trigger append_only",
    ),
    "the trigger's being always on": (
        "alter table shipping.shipping_task_scheduled enable trigger append_only",
        "shipping.shipping_task_scheduled",
        "enable always",
    ),
    "the one end": (
        "drop index shipping.one_end_per_shipping",
        "shipping.shipping_task_supervised",
        "where next_task_id is null",
    ),
    "the definer's rights": (
        "alter function shipping.get_shipping_payload(jsonb) security invoker",
        "shipping.get_shipping_payload(jsonb)",
        "security definer",
    ),
    "that PUBLIC may not": (
        "grant execute on function shipping.kickoff_shipping_task to public",
        "shipping.kickoff_shipping_task(jsonb,timestamp with time zone,integer)",
        "from public",
    ),
    "that nobody touches tables": (
        "grant select on shipping.shipping_task to holdfast_worker",
        "shipping.shipping_task",
        "revoke all on shipping.shipping_task from holdfast_worker",
    ),
    "the authority of the owner": (
        "revoke holdfast_process from shipping_owner",
        "shipping.shipping_supervisor(jsonb)",
        "grant holdfast_process to shipping_owner",
    ),
    "the schema": ("revoke usage on schema shipping from holdfast_worker", "shipping", "grant usage"),
    "a fact function": (
        "drop function shipping.count_shipping_task_failures",
        "shipping.count_shipping_task_failures",
        "create the function",
    ),
    "the envelope": (
        """create or replace function shipping.record_shipping_success(payload jsonb) returns jsonb
           language sql security definer set search_path = pg_catalog, pg_temp as $$ select '[]'::jsonb $$""",
        "shipping.record_shipping_success",
        "it answered []",
    ),
}


def test_what_is_taken_away_is_found_with_what_to_do(shipping: Holdfast, db: Database) -> None:
    for what, (broken, named, fix) in BREAKS.items():
        copy = psycopg.connect(db.dsn)
        copy.execute(broken.encode())
        copy.commit()
        found = _findings(shipping)
        assert any(one["object"] == named and fix in one["fix"] for one in found), (what, found)
        copy.close()
        shipping_again(db)


def shipping_again(db: Database) -> None:
    """Put back what the last case has broken."""
    admin = db.connect()
    admin.execute("drop schema shipping cascade")
    admin.execute("grant holdfast_process to shipping_owner")
    for path in sorted(Path("shipping").glob("[0-9]_*.sql")):
        admin.execute(path.read_text().encode())


def test_the_generated_tests_pass_untouched(project: Path, run: Holdfast) -> None:
    run("new", "parcels", "--files-only")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "parcels"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_a_plan_says_what_would_happen_and_changes_nothing(shipping: Holdfast, db: Database) -> None:
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}')")

    assert "attempt 1 of 2" in shipping("plan", "shipping", "1")
    assert conn.execute("select count(*) from shipping.shipping_task_supervised").fetchone() == (0,)


def test_one_process_is_drawn_in_order(shipping: Holdfast, db: Database) -> None:
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}')")
    conn.execute("""select shipping.shipping_supervisor('{"shipping_task_id": 1}')""")

    steps = json.loads(shipping("show", "shipping", "1", "--json"))
    assert [step["what"] for step in steps] == ["kicked off", "run 1: attempt", "attempt 1 scheduled"]
    assert "run 1: attempt" in shipping("show", "shipping", "1")


def test_a_send_is_drawn_and_planned(run: Holdfast, db: Database) -> None:
    db.connect().execute(
        "select comms.kickoff_send_email_task(comms.create_email_message('ada@example.org', 'Hi', 'text'))"
    )

    assert "kicked off" in run("show", "comms.send_email", "1")
    assert "attempt 1 of 10" in run("plan", "comms.send_email", "1")


def test_a_send_for_later_says_what_comes_next_and_when(run: Holdfast, db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    for channel in CHANNELS:
        send = channel.kick_off(conn, scheduled_at=clock.after(86400))
        *_, last = json.loads(run("show", f"comms.send_{channel.name}", str(send), "--json"))
        assert (last["what"], last["at"]) == ("next: run 1 of the supervisor", "2030-02-01T12:00:00+00:00")
        assert last["reason"].startswith("it is to be sent at 2030-02-01")
        assert channel.status(conn, send)["next_run_at"] == clock.after(86400)


def test_a_send_that_backs_off_says_when_its_next_attempt_is(run: Holdfast, db: Database) -> None:
    conn = db.connect()
    Clock(conn)
    for channel in CHANNELS:
        send = channel.kick_off(conn)
        channel.supervise(conn, send)
        channel.fail(conn, send, retry_after=60)
        channel.supervise(conn, send)
        steps = json.loads(run("show", f"comms.send_{channel.name}", str(send), "--json"))
        assert [(step["what"], step["at"]) for step in steps[-2:]] == [
            ("next: attempt 2", "2030-01-31T12:01:00+00:00"),
            ("next: run 3 of the supervisor", "2030-01-31T12:01:10+00:00"),
        ]
        channel.succeed(conn, send)
        channel.supervise(conn, send)
        assert "next" not in run("show", f"comms.send_{channel.name}", str(send))


def test_what_is_not_there_is_said(run: Holdfast) -> None:
    assert "there is no process nowhere" in _told(run, "check", "nowhere", code=4)
    assert "several processes" in _told(run, "show", "comms", "1", code=2)
    assert "there is no send_email_task 7" in _told(run, "show", "comms.send_email", "7", code=4)
    assert "there is no send_email_task 7" in _told(run, "plan", "comms.send_email", "7", code=4)


def _told(run: Holdfast, *words: str, code: int) -> str:
    return str(run(*words, code=code))


@pytest.mark.parametrize("name", ["Shipping", "1st", "pg_x", "comms", "class", "a-b", "x", "drop table"])
def test_a_name_that_cannot_be_one_is_refused(run: Holdfast, name: str) -> None:
    assert "cannot be the name of a process" in run("new", name, "--files-only", code=2)


def test_files_that_are_there_are_not_overwritten(run: Holdfast, project: Path) -> None:
    run("new", "parcels", "--files-only")
    (project / "parcels" / "README.md").write_text("mine")

    assert "is there already" in run("new", "parcels", "--files-only", code=2)
    assert (project / "parcels" / "README.md").read_text() == "mine"
