"""holdfast process: a new one keeps every rule, and what breaks one is found."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.processes.scaffold import SQL_WORDS
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
    assert shipping("check", "shipping") == "shipping: all checks passed\n"


def test_ours_keep_every_rule_too(run: Holdfast) -> None:
    assert run("check") == "comms.send_email, comms.send_sms: all checks passed\n"


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
        "from PUBLIC",
    ),
    "that PUBLIC may not, of any function": (
        "grant execute on function shipping.count_shipping_task_runs to public",
        "shipping.count_shipping_task_runs(bigint)",
        "revoke execute on function shipping.count_shipping_task_runs(bigint) from PUBLIC",
    ),
    "the owner of a function": (
        """create function shipping.help() returns text language sql security definer as $$ select 'x' $$;
           grant execute on function shipping.help to holdfast_client""",
        "shipping.help()",
        "owner to the owner of the schema",
    ),
    "the path of any function with its owner's rights": (
        """create function shipping.help() returns text language sql security definer as $$ select 'x' $$;
           alter function shipping.help owner to shipping_owner""",
        "shipping.help()",
        "set search_path",
    ),
    "that an owner is no superuser": (
        """create function shipping.help() returns text language sql security definer
           set search_path = pg_catalog, pg_temp as $$ select 'x' $$""",
        "shipping.help()",
        "must not be a superuser",
    ),
    "that nobody touches columns": (
        "grant update (decision) on shipping.shipping_task_supervised to holdfast_worker",
        "shipping.shipping_task_supervised",
        "revoke update (decision) on shipping.shipping_task_supervised from holdfast_worker",
    ),
    "a trigger without a condition": (
        """drop trigger append_only on shipping.shipping_task_failed;
           create trigger append_only before update or delete or truncate on shipping.shipping_task_failed
             for each statement when (false) execute function queues.refuse_change();
           alter table shipping.shipping_task_failed enable always trigger append_only""",
        "shipping.shipping_task_failed",
        "create trigger append_only",
    ),
    "a trigger on every column": (
        """drop trigger append_only on shipping.shipping_task_failed;
           create trigger append_only before update of message or delete or truncate
             on shipping.shipping_task_failed for each statement execute function queues.refuse_change();
           alter table shipping.shipping_task_failed enable always trigger append_only""",
        "shipping.shipping_task_failed",
        "create trigger append_only",
    ),
    "that a trigger refuses": (
        """create or replace trigger append_only before update or delete or truncate
             on shipping.shipping_task_failed for each statement execute function shipping.swallow()""",
        "shipping.shipping_task_failed",
        "drop trigger append_only",
    ),
    "that no other trigger is there": (
        """create trigger swallow before insert on shipping.shipping_task_failed
             for each row execute function shipping.swallow()""",
        "shipping.shipping_task_failed",
        "drop trigger swallow",
    ),
    "that foreign keys are checked": (
        "alter table shipping.shipping_task_failed disable trigger all",
        "shipping.shipping_task_failed",
        "enable trigger all",
    ),
    "an index that means one end": (
        """drop index shipping.one_end_per_shipping;
           create unique index one_end_per_shipping on shipping.shipping_task_supervised (shipping_task_id)
             where decision = 'succeeded'""",
        "shipping.shipping_task_supervised",
        "where next_task_id is null",
    ),
    "an index over nothing but the root": (
        """drop index shipping.one_end_per_shipping;
           create unique index one_end_per_shipping on shipping.shipping_task_supervised (run)
             where next_task_id is null""",
        "shipping.shipping_task_supervised",
        "where next_task_id is null",
    ),
    "a key that holds at every moment": (
        """alter table shipping.shipping_task_failed drop constraint shipping_task_failed_pkey;
           alter table shipping.shipping_task_failed
             add primary key (shipping_task_id, attempt) deferrable""",
        "shipping.shipping_task_failed",
        "add unique (shipping_task_id, attempt)",
    ),
    "a fact under another name": (
        """create table shipping.delivered (shipping_task_id bigint);
           alter table shipping.delivered owner to shipping_owner""",
        "shipping.delivered",
        "create trigger append_only",
    ),
    "that facts outlive a crash": (
        "create unlogged table shipping.delivered (shipping_task_id bigint)",
        "shipping.delivered",
        "set logged",
    ),
    "that no rule rewrites": (
        "create rule quiet as on update to shipping.shipping_task_failed do instead nothing",
        "shipping.shipping_task_failed",
        "drop the rules",
    ),
    "that nobody touches sequences": (
        "grant usage on sequence shipping.shipping_task_shipping_task_id_seq to holdfast_client",
        "shipping.shipping_task_shipping_task_id_seq",
        "revoke all on sequence",
    ),
    "that views are read only by readers": (
        """create view shipping.everything as select * from shipping.shipping_task;
           grant select on shipping.everything to holdfast_worker""",
        "shipping.everything",
        "revoke select on shipping.everything from holdfast_worker",
    ),
    "that views are barriers": (
        """create view shipping.everything as select * from shipping.shipping_task;
           grant select on shipping.everything to holdfast_reader""",
        "shipping.everything",
        "security_barrier",
    ),
    "that only the owner creates": (
        "grant create on schema shipping to holdfast_client",
        "shipping",
        "revoke create on schema shipping from holdfast_client",
    ),
    "that clients forge no facts": (
        "grant execute on function shipping.record_shipping_success to holdfast_client",
        "shipping.record_shipping_success(jsonb)",
        "from holdfast_client",
    ),
    "that workers call nothing but handlers": (
        "grant execute on function shipping.kickoff_shipping_task to holdfast_worker",
        "shipping.kickoff_shipping_task(jsonb,timestamp with time zone,integer)",
        "from holdfast_worker",
    ),
    "that no right is passed on": (
        "grant execute on function shipping.shipping_history to holdfast_reader with grant option",
        "shipping.shipping_history(bigint)",
        "grant option for",
    ),
    "that it is registered": (
        "delete from queues.process where process = 'shipping'",
        "shipping",
        "queues.register_process",
    ),
    "that each run is noted": (
        """create or replace function shipping.repair_shipping(payload jsonb) returns jsonb language sql
           security definer set search_path = pg_catalog, pg_temp
           as $$ select '{"success": false, "validation_failure_message": "no"}'::jsonb $$""",
        "shipping.repair_shipping(jsonb)",
        "queues.note_supervision",
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
        "it returned []",
    ),
}


@pytest.mark.full
def test_what_is_taken_away_is_found_with_what_to_do(shipping: Holdfast, db: Database) -> None:
    for what, (broken, named, fix) in BREAKS.items():
        with psycopg.connect(db.dsn) as copy:
            if "swallow" in broken:
                copy.execute(SWALLOW)
            copy.execute(broken.encode())
        found = _findings(shipping)
        assert any(one["object"] == named and fix in one["fix"] for one in found), (what, found)
        shipping_again(db)


SWALLOW = """
    create function shipping.swallow() returns trigger language plpgsql as $$ begin return null; end $$;
    alter function shipping.swallow owner to shipping_owner"""


def shipping_again(db: Database) -> None:
    """Put back what the last case has broken."""
    admin = db.connect()
    admin.execute("drop schema shipping cascade")
    admin.execute("delete from queues.process where process = 'shipping'")
    admin.execute("grant holdfast_process to shipping_owner")
    for path in sorted(Path("shipping").glob("[0-9]_*.sql")):
        admin.execute(path.read_text().encode())


@pytest.mark.parametrize(
    ("name", "how"),
    [("parcels", []), ("process", []), ("decision", ["--decision"]), ("errands", ["--python"])],
)
def test_the_generated_tests_pass_untouched(project: Path, run: Holdfast, name: str, how: list[str]) -> None:
    run("new", name, "--files-only", *how)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", name],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "7 passed" in done.stdout, done.stdout + done.stderr


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
    assert [step["what"] for step in steps] == [
        "kicked off",
        "run 1: attempt",
        "attempt 1 scheduled",
        "next: run of the supervisor",
    ]
    assert "run 1: attempt" in shipping("show", "shipping", "1")


def test_what_comes_next_and_what_went_wrong_is_drawn(shipping: Holdfast, db: Database) -> None:
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}', queues.clock() + interval '1 day')")
    (task_id, run_at) = value_of(conn, "select task_id, next_run_at from queues.process_status")
    steps = json.loads(shipping("show", "shipping", "1", "--json"))
    assert [(step["what"], step["at"][:16]) for step in steps[1:]] == [
        ("next: run of the supervisor", run_at.astimezone(UTC).isoformat()[:16])
    ]

    conn.execute("select queues.reschedule(%s, queues.clock())", [task_id])
    claimed = value_of(conn, "select token from queues.claim('w1', 1, array['shipping'])")
    error = {
        "task_id": str(task_id),
        "token": claimed[0],
        "status": "retry",
        "error": {"message": "no such column"},
    }
    conn.execute("select queues.finish('w1', %s::jsonb)", [json.dumps([error])])
    told = shipping("show", "shipping", "1")
    assert "supervisor failed" in told
    assert "no such column" in told

    conn.execute("select queues.cancel(%s)", [task_id])
    assert "its task is cancelled" in shipping("show", "shipping", "1")


def test_one_process_is_ended_by_hand(shipping: Holdfast, db: Database) -> None:
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}')")

    assert shipping("cancel", "shipping", "1", "--reason", "lost interest") == "cancelled\n"
    assert "lost interest" in shipping("show", "shipping", "1")
    assert json.loads(shipping("cancel", "shipping", "1", "--json"))["decision"] == "cancelled"
    assert "there is no shipping_task 2" in shipping("cancel", "shipping", "2", code=4)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("shipping_history(bigint)", ["show", "shipping", "1"]),
        ("cancel_shipping_task(bigint, text)", ["cancel", "shipping", "1"]),
        ("kickoff_shipping_task(jsonb, timestamptz, integer)", ["start", "shipping"]),
    ],
)
def test_a_function_that_its_owner_has_weakened_is_not_called(
    shipping: Holdfast, db: Database, function: str, words: list[str]
) -> None:
    """It would run with the rights of the login that runs the command."""
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}')")
    conn.execute(f"alter function shipping.{function} security invoker".encode())
    told = _told(shipping, *words, code=1)
    assert f"shipping.{function.partition('(')[0]}(" in told
    assert "was dropped or changed since it was registered" in told


def test_a_kickoff_that_refuses_its_input_says_why(shipping: Holdfast, db: Database) -> None:
    db.connect().execute(
        """create or replace function shipping.kickoff_shipping_task(
             input jsonb, scheduled_at timestamptz default null, max_attempts integer default 2)
           returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp
           as $$ begin raise exception 'the address is not known'; end $$"""
    )
    assert "the address is not known" in _told(shipping, "start", "shipping", code=2)


def value_of(conn: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row = conn.execute(query.encode()).fetchone()
    assert row
    return tuple(row)


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


def test_a_send_without_a_supervisor_says_so(run: Holdfast, db: Database) -> None:
    conn = db.connect()
    for channel in CHANNELS:
        send = channel.kick_off(conn)
        conn.execute("select queues.cancel(task_id) from queues.process_status where ended_at is null")
        told = run("show", f"comms.send_{channel.name}", str(send))
        assert "its task is cancelled; the leader will enqueue a new one" in told
        assert "next" not in told


def test_what_is_not_there_is_said(run: Holdfast) -> None:
    assert "there is no process 'nowhere'" in _told(run, "check", "nowhere", code=4)
    assert "several processes" in _told(run, "show", "comms", "1", code=2)
    assert "there is no send_email_task 7" in _told(run, "show", "comms.send_email", "7", code=4)
    assert "there is no send_email_task 7" in _told(run, "plan", "comms.send_email", "7", code=4)


def _told(run: Holdfast, *words: str, code: int) -> str:
    return str(run(*words, code=code))


WRONG = ["Shipping", "1st", "pg_x", "comms", "class", "a-b", "x", "drop table"]
RESERVED = ["order", "user", "group", "check", "case", "json", "time", "email", "psycopg", "pytest"]


@pytest.mark.parametrize("name", WRONG + RESERVED)
def test_a_name_that_cannot_be_one_is_refused_and_nothing_is_left(
    run: Holdfast, project: Path, name: str
) -> None:
    assert "cannot be the name of a process" in run("new", name, code=2)
    assert list(project.iterdir()) == []


def test_every_word_that_the_server_reserves_is_refused(db: Database) -> None:
    found = (
        db.connect().execute("select word from pg_get_keywords() where catcode in ('R', 'T', 'C')").fetchall()
    )
    assert {row[0] for row in found} - SQL_WORDS == set()


def test_a_process_that_cannot_be_installed_leaves_nothing(
    run: Holdfast, project: Path, db: Database
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
    shipping: Holdfast, project: Path, db: Database
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


def test_a_file_that_fails_changes_nothing(shipping: Holdfast, project: Path, db: Database) -> None:
    handlers = project / "shipping" / "3_handlers.sql"
    handlers.write_text("drop function shipping.get_shipping_payload;\nselect nothing;\n")

    assert "3_handlers.sql line 2: column" in shipping("apply", "shipping", code=2)
    assert shipping("check", "shipping") == "shipping: all checks passed\n"
    assert "no SQL files found" in shipping("apply", "nowhere", code=2)


def test_the_command_of_its_page_runs_it(shipping: Holdfast, project: Path, db: Database) -> None:
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
def test_the_command_fits_the_directory(run: Holdfast, project: Path, directory: str, command: str) -> None:
    run("new", "parcels", "--files-only", "--directory", directory)
    assert f"    {command}\n" in (project / directory / "README.md").read_text()


def test_files_that_are_there_are_not_overwritten(run: Holdfast, project: Path) -> None:
    run("new", "parcels", "--files-only")
    (project / "parcels" / "README.md").write_text("mine")

    assert "already exists" in run("new", "parcels", "--files-only", code=2)
    assert (project / "parcels" / "README.md").read_text() == "mine"
