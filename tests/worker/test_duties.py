"""The duties of the leader: it recovers lost tasks, deletes old rows and repairs processes."""

from typing import Any

import pytest

from holdfast._engine import Engine, enqueue, tasks
from holdfast._engine.enqueue import NewTask
from holdfast._telemetry.logs import worker_log
from holdfast._worker import duties
from holdfast._worker.chores import Chores
from holdfast._worker.duties import ProcessRepair, Retention
from support.clock import Clock
from support.comms import CHANNELS, Channel
from support.database import Database
from support.engine import Connection, counts, end, enqueue_many
from support.engine import claim as claim_tasks
from support.workshop import Workshop

EMAIL, SMS = CHANNELS


def status(shop: Workshop, channel: Channel, send: int) -> str:
    row = shop.conn.execute(
        "select status from queues.process_status where process = %s and process_id = %s",
        [f"comms.send_{channel.name}", send],
    ).fetchone()
    assert row
    return str(row[0])


async def ended(shop: Workshop, channel: Channel, send: int) -> Any:
    return await shop.until(
        "select * from queues.process_status where process = %s and process_id = %s and ended_at is not null",
        f"comms.send_{channel.name}",
        send,
    )


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessRepair, "interval", 0.05)


async def test_what_a_silent_worker_held_runs_elsewhere_long_before_its_lease_ends(shop: Workshop) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    handle = await echo.aenqueue()
    shop.conn.execute(
        "select queues.register_worker('gone', timeout => '5 seconds', queues => array['work'])"
    )
    shop.conn.execute("select from queues.claim('gone', 1, array['work'], lease => '1 hour')")
    shop.conn.execute("update queues.worker set last_heartbeat = last_heartbeat - interval '1 minute'")
    async with shop.working():
        row = await shop.ended(handle)
        await shop.logged("worker_lost", lost="gone", back_to_ready=1, dead_letter=0)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert [error["kind"] for error in await shop.errors(handle)] == ["worker_lost"]


@pytest.mark.parametrize("state", ["P0001", "57014"])
def test_a_chore_that_fails_or_takes_too_long_is_put_behind_the_others_and_logged(
    db: Database, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    conn = db.connect()
    (first,) = enqueue_many(conn, [{"type": "first.work"}])
    after = {"type": "next.work", "after": [str(first["task_id"])]}
    dependants = [row["task_id"] for row in enqueue_many(conn, [after] * 9)]
    conn.execute(
        f"""create function refuse() returns trigger language plpgsql as
            $$ begin
              if new.task_id = '{dependants[4]}' then raise 'planted' using errcode = '{state}'; end if;
              return new;
            end $$;
            create trigger planted before insert on queues.outcome for each row execute function refuse()
        """.encode()
    )
    (claimed,) = claim_tasks(conn, queues=["first"])
    end(conn, claimed, "failed")
    chores = Chores(worker_log("w1"))

    for _ in range(100):
        if chores.run(Engine(conn).run) != 0.0 and len(left_to_cancel(conn)) == 1:
            break

    assert left_to_cancel(conn) == [(dependants[4], "planted")]
    assert capsys.readouterr().err.count("chore_failed") == 1


def left_to_cancel(conn: Connection) -> list[Any]:
    found = conn.execute(
        """select t.task_id, (select c.error from queues.chore c where c.task_id = t.task_id and c.kind = 'c')
           from queues.task_status t where t.type = 'next.work' and t.status <> 'cancelled'"""
    )
    return found.fetchall()


async def test_a_leader_prunes(shop: Workshop) -> None:
    engine = Engine(shop.conn)
    task_id = engine.run(enqueue.enqueue(NewTask("elsewhere.work")))
    engine.run(tasks.cancel(task_id))
    shop.conn.execute("update queues.outcome set finished_at = finished_at - interval '1 year'")
    async with shop.working():
        await shop.logged("rows_pruned", rows=1)
    assert engine.run(tasks.task_status(task_id)) is None


@pytest.mark.parametrize("backlog", [0, 9, 21])
def test_a_backlog_is_removed_step_by_step_without_a_rest(
    db: Database, backlog: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "PRUNE_BATCH", 10)
    conn = db.connect()
    clock = Clock(conn)
    if backlog:
        enqueue_many(conn, [{"type": "default.work"}] * backlog)
        conn.execute("select queues.cancel(task_id) from queues.task")
    clock.advance(31 * 86400)
    duty, steps = Retention(worker_log("w1")), 0

    while left := counts(conn)["task"]:
        pause = duty.run(Engine(conn).run)
        if counts(conn)["task"] < left:
            assert pause == 0
        steps += 1
    assert steps >= backlog // 10


def test_a_walk_that_deletes_nothing_rests(db: Database) -> None:
    duty = Retention(worker_log("w1"))

    assert (duty.run(Engine(db.connect()).run) or 0) > 0


def test_a_new_pass_begins_at_the_oldest(db: Database) -> None:
    conn = db.connect()
    clock = Clock(conn)
    duty = Retention(worker_log("w1"))
    for _ in range(2):
        enqueue_many(conn, [{"type": "default.work"}])
        (task,) = claim_tasks(conn)
        end(conn, task)
        clock.advance(8 * 86400)
        while duty.run(Engine(conn).run) is not None:
            pass
        assert counts(conn)["task"] == 0


async def test_a_send_whose_supervisor_was_cancelled_by_hand_is_sent_all_the_same(shop: Workshop) -> None:
    send = EMAIL.kick_off(shop.conn)
    shop.conn.execute("select queues.cancel(task_id, 'a mistake') from queues.process_status")
    async with shop.working(worker_queues="comms"):
        row = await ended(shop, EMAIL, send)
        await shop.logged("processes_repaired", process="comms.send_email")
    assert row["status"] == "succeeded"
    assert shop.conn.execute("select count(*) from comms.mailbox").fetchone() == (1,)


async def test_a_send_whose_supervisor_could_not_be_called_for_a_moment_is_sent_all_the_same(
    shop: Workshop,
) -> None:
    shop.conn.execute("revoke execute on function comms.send_email_supervisor from holdfast_caller")
    send = EMAIL.kick_off(shop.conn)
    async with shop.working(worker_queues="comms"):
        await shop.until("select from queues.outcome where status = 'failed'")
        await shop.until("select from queues.health() where check_name = 'orphaned_process'")
        shop.conn.execute("grant execute on function comms.send_email_supervisor to holdfast_caller")
        shop.conn.execute("update queues.process_instance set repaired_at = null")
        row = await ended(shop, EMAIL, send)
    assert row["status"] == "succeeded"


async def test_a_process_that_cannot_be_repaired_is_told_of_and_keeps_no_other_from_it(
    shop: Workshop,
) -> None:
    shop.conn.execute("revoke execute on function comms.repair_send_email from holdfast_caller")
    lost, other = EMAIL.kick_off(shop.conn), SMS.kick_off(shop.conn)
    shop.conn.execute("select queues.delete_task(task_id) from queues.process_status")
    async with shop.working(worker_queues="comms"):
        await shop.logged("repair_failed", process="comms.send_email")
        await ended(shop, SMS, other)
        await shop.until("select from queues.health() where check_name = 'orphaned_process'")
        assert status(shop, EMAIL, lost) == "scheduled"
        shop.conn.execute("grant execute on function comms.repair_send_email to holdfast_caller")
        await ended(shop, EMAIL, lost)
    assert (
        shop.conn.execute("select from queues.health() where check_name = 'orphaned_process'").fetchone()
        is None
    )


async def test_processes_of_several_namespaces_are_repaired_in_their_own(shop: Workshop) -> None:
    with shop.db.connect("holdfast_client") as client:
        sends = [EMAIL.kick_off(client), EMAIL.kick_off(shop.conn)]
    shop.conn.execute("select queues.delete_task(task_id) from queues.process_status")
    async with shop.working(worker_queues="comms"):
        for send in sends:
            await ended(shop, EMAIL, send)

    of_a_send = """select i.process_id, array_agg(distinct t.namespace) from queues.process_instance i
      join queues.task t on (t.payload ->> 'send_email_task_id')::bigint = i.process_id
      group by 1 order by 1"""
    assert shop.conn.execute(of_a_send).fetchall() == [
        (sends[0], ["holdfast_client_login"]),
        (sends[1], ["postgres"]),
    ]


async def test_a_supervisor_that_raises_makes_health_amber(shop: Workshop) -> None:
    EMAIL.kick_off(shop.conn)
    shop.conn.execute(
        """create or replace function comms.send_email_supervisor(payload jsonb) returns jsonb
           language plpgsql security definer set search_path = pg_catalog, pg_temp
           as $$ begin raise exception 'a column is missing'; end $$"""
    )
    async with shop.working(worker_queues="comms"):
        line = await shop.until("select * from queues.health() where check_name = 'failing_supervisor'")
    assert (line["level"], line["subject"]) == ("amber", "comms.send_email")
    assert "a column is missing" in line["error"]
