"""A generated process whose supervisor is a Python task: it reaches an end whatever fails on the way."""

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.testing.sandbox import Sandbox
from support.commands import app
from support.comms import run
from support.database import Database
from support.engine import Connection, Row, rows, value
from support.web import dsn_of
from support.workshop import Workshop

THIS = {"errands_task_id": 1}


def holdfast(db: Database, *words: str, code: int = 0) -> str:
    answer = CliRunner().invoke(app, ["process", *words, "--database-url", db.dsn])
    assert answer.exit_code == code, answer.output
    return answer.output


@pytest.fixture
def shop(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    monkeypatch.chdir(tmp_path)
    holdfast(db, "new", "errands", "--python")
    monkeypatch.syspath_prepend(tmp_path / "errands")
    with closing(Sandbox(db.dsn)) as sandbox:
        sandbox.use(import_module("errands").app)
        yield sandbox
    del sys.modules["errands"]


@pytest.fixture
def conn(db: Database) -> Connection:
    return db.connect()


def kick_off(conn: Connection, most: int = 2) -> None:
    conn.execute("""select errands.kickoff_errands_task('{"n": 7}', max_attempts => %s)""", [most])


def decisions(conn: Connection) -> list[str]:
    found = rows(conn, "select decision from errands.errands_task_supervised order by run")
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

    monkeypatch.setattr(sys.modules["errands"], "work", work)
    return made


def suspend(shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> Row:
    """One whose supervisor waits for its second attempt, which is not due yet."""
    fails(monkeypatch, 1)
    kick_off(conn)
    shop.drain()
    assert decisions(conn) == ["started", "attempt", "attempt"]
    return instance(conn)


def test_it_keeps_every_rule_and_can_be_applied_again(shop: Sandbox, db: Database) -> None:
    assert holdfast(db, "check", "errands") == "errands: all checks passed\n"
    holdfast(db, "apply", "errands", "--force")
    assert holdfast(db, "check", "errands") == "errands: all checks passed\n"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("drop function errands.read_errands_facts", "errands.read_errands_facts"),
        (
            "revoke execute on function errands.record_errands_decision from holdfast_caller",
            "errands.record_errands_decision(jsonb)",
        ),
    ],
)
def test_what_its_supervisor_needs_is_checked(
    shop: Sandbox, db: Database, conn: Connection, change: str, named: str
) -> None:
    conn.execute(change.encode())
    assert named in holdfast(db, "check", "errands", "--json", code=1)


def test_a_failed_attempt_wakes_the_supervisor_by_a_signal_and_the_next_one_succeeds(
    shop: Sandbox, db: Database, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend(shop, conn, monkeypatch)
    shop.drain(until=timedelta(minutes=1))
    assert decisions(conn) == ["started", "attempt", "attempt", "succeeded"]
    assert [row["name"] for row in rows(conn, "select name from queues.signal order by sent_at")] == [
        "attempt 1",
        "attempt 2",
    ]
    assert (instance(conn)["status"], instance(conn)["reason"]) == ("succeeded", "attempt 2 has succeeded")
    assert "attempt 1 failed" in holdfast(db, "show", "errands", "1")
    assert value(conn, "select count(*) from queues.task_error") == 0


def test_a_supervisor_that_waits_is_not_in_trouble(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend(shop, conn, monkeypatch)
    conn.execute("select queues.find_orphans()")
    assert instance(conn)["trouble"] is None


@pytest.mark.parametrize("how", ["cancel", "delete_task"])
def test_a_lost_run_is_replaced_by_one_that_goes_on_from_the_facts(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    lost = suspend(shop, conn, monkeypatch)["task_id"]
    conn.execute(f"select queues.{how}(%s, 'by mistake')", [lost])
    conn.execute("select queues.find_orphans()")
    (line,) = rows(conn, "select * from queues.health() where check_name = 'orphaned_process'")
    assert line["subject"] == "errands"
    assert run(conn, "errands.repair_errands", {"max_processes": 10})["payload"] == {"repaired": 1}
    shop.drain(until=timedelta(minutes=1))
    assert decisions(conn) == ["started", "attempt", "attempt", "started", "succeeded"]
    assert value(conn, "select count(*) from errands.errands_task_scheduled") == 2


def test_an_outcome_is_recorded_although_the_run_is_lost(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = suspend(shop, conn, monkeypatch)["task_id"]
    conn.execute("select queues.delete_task(%s, 'by mistake')", [lost])
    conn.execute("select queues.forget_tasks(array[%s]::uuid[])", [lost])
    told = run(conn, "errands.record_errands_success", {"original_payload": {**THIS, "attempt": 2}})
    assert told["success"] is True


def test_a_run_that_fails_for_good_is_replaced(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(facts: Any, looks: int) -> tuple[str, str]:
        raise RuntimeError("a mistake in the code")

    kick_off(conn)
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules["errands"], "decide", decide)
        shop.drain(until=timedelta(days=30))
    assert decisions(conn) == ["started"]
    conn.execute("select queues.find_orphans()")
    assert instance(conn)["trouble"] == "orphaned"
    run(conn, "errands.repair_errands", {"max_processes": 10})
    shop.drain(until=timedelta(minutes=1))
    assert decisions(conn) == ["started", "started", "attempt", "succeeded"]


def test_a_run_that_returns_without_an_end_is_replaced(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(function: str, payload: Any) -> Any:
        return {"ended": True, "scheduled": 0}

    kick_off(conn)
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules["errands"], "call", call)
        shop.drain()
    conn.execute("select queues.find_orphans()")
    assert instance(conn)["trouble"] == "orphaned"
    run(conn, "errands.repair_errands", {"max_processes": 10})
    shop.drain(until=timedelta(minutes=1))
    assert decisions(conn) == ["started", "started", "attempt", "succeeded"]


def test_an_attempt_that_is_cancelled_is_known_to_the_supervisor_at_once(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = suspend(shop, conn, monkeypatch)["awaited_task_id"]
    conn.execute("select queues.cancel(%s, 'not this one')", [attempt])
    shop.drain()
    (failure,) = rows(conn, "select message, permanent from errands.errands_task_failed where attempt = 2")
    assert (failure["message"], failure["permanent"]) == ("its task ended as cancelled: not this one", True)
    assert instance(conn)["status"] == "failed"


def test_it_gives_up_an_attempt_that_no_worker_makes(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = suspend(shop, conn, monkeypatch)["awaited_task_id"]
    conn.execute("select queues.reschedule(%s, queues.clock() + interval '1 year')", [attempt])
    shop.drain(until=timedelta(days=60))
    assert (decisions(conn)[-1], instance(conn)["status"]) == ("gave_up", "gave_up")


@pytest.mark.parametrize("decision", ["attempt", "succeeded", "failed", "sleep", None])
def test_a_decision_that_the_facts_contradict_is_refused(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch, decision: str | None
) -> None:
    supervisor = suspend(shop, conn, monkeypatch)["task_id"]
    told = run(
        conn,
        "errands.record_errands_decision",
        {**THIS, "task_id": str(supervisor), "decision": decision, "reason": "a mistake"},
    )
    assert "the facts do not allow" in told["validation_failure_message"]
    assert decisions(conn) == ["started", "attempt", "attempt"]


def test_a_run_that_was_replaced_decides_nothing(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend(shop, conn, monkeypatch)
    told = run(
        conn,
        "errands.record_errands_decision",
        {**THIS, "task_id": "019a0000-0000-7000-8000-000000000000", "decision": "gave_up"},
    )
    assert "another run" in told["validation_failure_message"]


def test_a_cancelled_process_ends_its_waiting_run(
    shop: Sandbox, db: Database, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = suspend(shop, conn, monkeypatch)["task_id"]
    assert holdfast(db, "cancel", "errands", "1", "--reason", "never mind") == "cancelled\n"
    shop.drain()
    status = value(conn, "select status from queues.task_status where task_id = %s", [supervisor])
    assert (status, decisions(conn)[-1]) == ("succeeded", "cancelled")


def test_it_reaches_its_end_if_every_step_begins_a_new_attempt(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, 2)
    kick_off(conn, most=3)
    shop.drain(until=timedelta(minutes=2), replay="always")
    assert decisions(conn) == ["started", "attempt", "attempt", "attempt", "succeeded"]


async def test_a_worker_and_a_client_with_no_other_rights_bring_it_to_its_end(
    shop: Sandbox, db: Database, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, 1)
    conn.execute(
        """create or replace function errands.errands_retry_at(attempt integer, now timestamptz)
           returns timestamptz language sql set search_path = pg_catalog, pg_temp as 'select now'"""
    )
    url = dsn_of(db, "plain_worker", "holdfast_worker")
    monkeypatch.setenv("DATABASE_URL", url)
    db.connect("holdfast_client").execute("select errands.kickoff_errands_task('{}')")
    place = Workshop(db, [])
    place.app = sys.modules["errands"].app
    async with place.working(url, worker_queues="errands"):
        row = await place.until("select * from queues.process_status where ended_at is not null")
    await place.close()
    assert row["status"] == "succeeded"
    assert decisions(conn) == ["started", "attempt", "attempt", "succeeded"]


def test_signals_without_an_outcome_are_no_looks(
    shop: Sandbox, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = suspend(shop, conn, monkeypatch)["task_id"]
    conn.execute("select queues.signal(%s, 'attempt 2') from generate_series(1, 40)", [supervisor])
    shop.drain()
    assert decisions(conn) == ["started", "attempt", "attempt"]


def test_a_plan_says_that_only_a_worker_can_run_it(shop: Sandbox, db: Database, conn: Connection) -> None:
    kick_off(conn)
    assert "is a Python task" in holdfast(db, "plan", "errands", "1", code=2)


def test_a_decision_in_python_is_refused(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "exclude each other" in holdfast(db, "new", "errands", "--python", "--decision", code=2)
    assert list(tmp_path.iterdir()) == []
