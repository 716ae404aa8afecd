"""What a generated process does when something goes wrong: it comes to an end, and says why."""

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from holdfast.testing.sandbox import Sandbox
from support.commands import app
from support.comms import run
from support.database import Database
from support.engine import Connection, Row, claim_one, end, rows, value


@pytest.fixture
def shop(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """The processes `parcels` and `refunds`, of which the second waits for a decision."""
    monkeypatch.chdir(tmp_path)
    for name, how in (("parcels", []), ("refunds", ["--decision"])):
        answer = CliRunner().invoke(app, ["process", "new", name, *how, "--database-url", db.dsn])
        assert answer.exit_code == 0, answer.output
        monkeypatch.syspath_prepend(tmp_path / name)
    with closing(Sandbox(db.dsn)) as sandbox:
        for name in ("parcels", "refunds"):
            sandbox.use(import_module(name).app)
        yield sandbox
    for name in ("parcels", "refunds"):
        del sys.modules[name]


@pytest.fixture
def conn(db: Database) -> Connection:
    return db.connect()


def decisions(conn: Connection, name: str = "parcels") -> list[str]:
    found = rows(conn, f"select decision from {name}.{name}_task_supervised order by run")
    return [row["decision"] for row in found]


def instance(conn: Connection) -> Row:
    (row,) = rows(conn, "select * from queues.process_status")
    return row


def fails(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let this many attempts fail; returns how many there were."""
    made: list[int] = []

    async def work(given: Any) -> Any:
        made.append(len(made) + 1)
        if len(made) <= times:
            raise RuntimeError(f"attempt {len(made)} failed")
        return given

    monkeypatch.setattr(sys.modules["parcels"], "work", work)
    return made


@pytest.mark.full
def test_all_attempts_that_were_promised_are_made_and_further_and_further_apart(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fails(monkeypatch, 99)
    conn.execute("select parcels.kickoff_parcels_task('{}', max_attempts => 20)")
    shop.drain(until=timedelta(hours=5))

    assert len(made) == 20
    assert decisions(conn)[-1] == "failed"
    waits = rows(
        conn,
        """select extract(epoch from s.run_at - f.failed_at)::float as waited,
             extract(epoch from f.retry_at - f.failed_at)::float as asked
           from parcels.parcels_task_failed f
           join parcels.parcels_task_scheduled s
             on s.parcels_task_id = f.parcels_task_id and s.attempt = f.attempt + 1
           order by f.attempt""",
    )
    for n, row in enumerate(waits, start=1):
        longest = min(300, 2**n)
        assert longest <= row["asked"] <= longest * 1.5
        assert row["waited"] == pytest.approx(row["asked"])


@pytest.mark.full
def test_slow_attempts_do_not_use_up_what_was_promised(shop: Sandbox, conn: Connection) -> None:
    """Each is looked at many times before it fails; the next one is made all the same."""
    conn.execute("select parcels.kickoff_parcels_task('{}', max_attempts => 20)")
    payload = {"parcels_task_id": 1}
    for attempt in range(1, 21):
        told = run(conn, "parcels.parcels_supervisor", payload)["payload"]
        assert told["decision"] == "attempt"
        for _ in range(4):
            assert run(conn, "parcels.parcels_supervisor", payload)["payload"]["decision"] == "wait"
        run(
            conn,
            "parcels.record_parcels_failure",
            {"original_payload": {**payload, "attempt": attempt}, "error": {"message": "slow"}},
        )
    assert run(conn, "parcels.parcels_supervisor", payload)["payload"]["decision"] == "failed"


@pytest.mark.full
def test_no_transaction_is_open_while_the_work_is_done(
    shop: Sandbox, conn: Connection, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def work(given: Any) -> Any:
        seen.extend(
            rows(
                conn,
                """select query from pg_stat_activity where datname = current_database()
                   and pid <> pg_backend_pid() and xact_start is not null and state is not null""",
            )
        )
        return given

    monkeypatch.setattr(sys.modules["parcels"], "work", work)
    conn.execute("select parcels.kickoff_parcels_task('{}')")
    shop.drain(until=timedelta(minutes=1))
    assert decisions(conn) == ["attempt", "succeeded"]
    assert seen == []


@pytest.mark.parametrize("how", ["cancelled", "dead_letter"])
def test_an_attempt_that_tells_nothing_is_known_to_the_supervisor_at_once(
    shop: Sandbox, conn: Connection, how: str
) -> None:
    conn.execute("select parcels.kickoff_parcels_task('{}', max_attempts => 1)")
    run(conn, "parcels.parcels_supervisor", {"parcels_task_id": 1})
    attempt = instance(conn)["awaited_task_id"]
    if how == "cancelled":
        conn.execute("select queues.cancel(%s, 'not this one')", [attempt])
    else:
        for _ in range(5):
            conn.execute("update queues.ready set run_at = queues.clock() where task_id = %s", [attempt])
            task = claim_one(conn, type_prefixes=["parcels.attempt"])
            end(conn, task, "retry", error={"message": "out of memory"})
    waiting = value(
        conn,
        "select run_at <= queues.clock() from queues.ready where task_id = %s",
        [instance(conn)["task_id"]],
    )
    assert waiting is True
    shop.drain()
    (failure,) = rows(conn, "select message, permanent from parcels.parcels_task_failed")
    assert f"its task ended as {how}" in failure["message"]
    assert failure["permanent"] is (how == "cancelled")
    assert instance(conn)["status"] == "failed"


@pytest.mark.full
def test_an_attempt_without_a_handler_is_found_by_the_leader(shop: Sandbox, conn: Connection) -> None:
    conn.execute("select parcels.kickoff_parcels_task('{}', max_attempts => 1)")
    run(conn, "parcels.parcels_supervisor", {"parcels_task_id": 1})
    task = claim_one(conn, type_prefixes=["parcels.attempt"])
    end(conn, task, "failed", error={"kind": "no_handler_registered", "message": "no handler"})
    shop.drain()  # what was kicked off is due, and looks too early
    conn.execute("select queues.find_orphans()")
    shop.drain()
    assert instance(conn)["status"] == "failed"


@pytest.mark.parametrize("name", ["parcels", "refunds"])
def test_a_lost_supervisor_is_replaced(shop: Sandbox, conn: Connection, name: str) -> None:
    conn.execute(f"select {name}.kickoff_{name}_task('{{}}')".encode())
    conn.execute("select queues.delete_task(%s, 'by mistake')", [instance(conn)["task_id"]])
    conn.execute("select queues.find_orphans()")
    (line,) = rows(conn, "select * from queues.health() where check_name = 'orphaned_process'")
    assert line["subject"] == name
    (broken,) = rows(conn, "select * from queues.processes_to_repair()")
    assert run(conn, broken["repair"], {"max_processes": 10})["payload"] == {"repaired": 1}
    shop.drain(until=timedelta(days=8))
    assert instance(conn)["status"] == {"parcels": "succeeded", "refunds": "expired"}[name]


def test_one_login_decides_on_what_it_has_begun_and_no_other(
    shop: Sandbox, db: Database, conn: Connection
) -> None:
    client = db.connect("holdfast_client")
    conn.execute("select refunds.kickoff_refunds_task('{}')")
    client.execute("select refunds.kickoff_refunds_task('{}')")
    decide = "select refunds.decide_refunds_task(%s, 'approved', 'ada', 'fine')"
    with pytest.raises(psycopg.Error, match="there is no refunds_task 1"):
        client.execute(decide, [1])
    assert value(client, decide, [2]) == "approved"
    assert value(db.connect("holdfast_operator"), decide, [1]) == "approved"
    shop.drain()
    assert decisions(conn, "refunds") == ["decided", "decided"]
    assert [row["status"] for row in rows(conn, "select status from queues.process_status")] == [
        "approved"
    ] * 2


def test_two_decisions_at_once_are_one_decision(shop: Sandbox, db: Database, conn: Connection) -> None:
    conn.execute("select refunds.kickoff_refunds_task('{}')")
    first, second = db.connect(autocommit=False), db.connect()
    first.execute("select refunds.decide_refunds_task(1, 'approved')")
    second.execute("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        second.execute("select refunds.decide_refunds_task(1, 'rejected')")
    first.commit()
    with pytest.raises(psycopg.Error, match="was decided already: approved"):
        second.execute("select refunds.decide_refunds_task(1, 'rejected')")


@pytest.mark.full
def test_a_supervisor_that_raises_is_told_by_the_generated_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    answer = CliRunner().invoke(
        app, ["process", "new", "parcels", "--files-only", "--directory", str(pytester.path)]
    )
    assert answer.exit_code == 0, answer.output
    supervisor = pytester.path / "4_supervisor.sql"
    broken = supervisor.read_text().replace("  -- Think.\n", "  raise exception 'the moon is full';\n", 1)
    supervisor.write_text(broken)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    done = pytester.runpytest_subprocess("-n0", "-k", "done_in_one_attempt")
    done.stdout.fnmatch_lines(["E*the moon is full*"])
