"""holdfast process: one process is started, planned, drawn step by step, and ended by hand."""

import json
from datetime import UTC

import pytest

from support.clock import Clock
from support.comms import CHANNELS
from support.database import Database
from support.process_commands import ProcessCommand, value_of


def test_a_plan_says_what_would_happen_and_changes_nothing(shipping: ProcessCommand, db: Database) -> None:
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}')")

    assert "attempt 1 of 2" in shipping("plan", "shipping", "1")
    assert conn.execute("select count(*) from shipping.shipping_task_supervised").fetchone() == (0,)


def test_one_process_is_drawn_in_order(shipping: ProcessCommand, db: Database) -> None:
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


def test_what_comes_next_and_what_went_wrong_is_drawn(shipping: ProcessCommand, db: Database) -> None:
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


def test_one_process_is_ended_by_hand(shipping: ProcessCommand, db: Database) -> None:
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
    shipping: ProcessCommand, db: Database, function: str, words: list[str]
) -> None:
    """It would run with the rights of the login that runs the command."""
    conn = db.connect()
    conn.execute("select shipping.kickoff_shipping_task('{}')")
    conn.execute(f"alter function shipping.{function} security invoker".encode())
    told = _told(shipping, *words, code=1)
    assert f"shipping.{function.partition('(')[0]}(" in told
    assert "was dropped or changed since it was registered" in told


def test_a_kickoff_that_refuses_its_input_says_why(shipping: ProcessCommand, db: Database) -> None:
    db.connect().execute(
        """create or replace function shipping.kickoff_shipping_task(
             input jsonb, scheduled_at timestamptz default null, max_attempts integer default 2)
           returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp
           as $$ begin raise exception 'the address is not known'; end $$"""
    )
    assert "the address is not known" in _told(shipping, "start", "shipping", code=2)


def test_a_send_is_drawn_and_planned(run: ProcessCommand, db: Database) -> None:
    db.connect().execute(
        "select comms.kickoff_send_email_task(comms.create_email_message('ada@example.org', 'Hi', 'text'))"
    )

    assert "kicked off" in run("show", "comms.send_email", "1")
    assert "attempt 1 of 10" in run("plan", "comms.send_email", "1")


def test_a_send_for_later_says_what_comes_next_and_when(run: ProcessCommand, db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    for channel in CHANNELS:
        send = channel.kick_off(conn, scheduled_at=clock.after(86400))
        *_, last = json.loads(run("show", f"comms.send_{channel.name}", str(send), "--json"))
        assert (last["what"], last["at"]) == ("next: run 1 of the supervisor", "2030-02-01T12:00:00+00:00")
        assert last["reason"].startswith("it is to be sent at 2030-02-01")
        assert channel.status(conn, send)["next_run_at"] == clock.after(86400)


def test_a_send_that_backs_off_says_when_its_next_attempt_is(run: ProcessCommand, db: Database) -> None:
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


def test_a_send_without_a_supervisor_says_so(run: ProcessCommand, db: Database) -> None:
    conn = db.connect()
    for channel in CHANNELS:
        send = channel.kick_off(conn)
        conn.execute("select queues.cancel(task_id) from queues.process_status where ended_at is null")
        told = run("show", f"comms.send_{channel.name}", str(send))
        assert "its task is cancelled; the leader will enqueue a new one" in told
        assert "next" not in told


def test_what_is_not_there_is_said(run: ProcessCommand) -> None:
    assert "there is no process 'nowhere'" in _told(run, "check", "nowhere", code=4)
    assert "several processes" in _told(run, "show", "comms", "1", code=2)
    assert "there is no send_email_task 7" in _told(run, "show", "comms.send_email", "7", code=4)
    assert "there is no send_email_task 7" in _told(run, "plan", "comms.send_email", "7", code=4)


def _told(run: ProcessCommand, *words: str, code: int) -> str:
    return str(run(*words, code=code))
