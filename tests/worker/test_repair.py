"""The leader has processes repaired that have lost their supervisor."""

from typing import Any

import pytest

from holdfast.worker.duties import ProcessRepair
from support.comms import CHANNELS, Channel
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
    shop.conn.execute("revoke execute on function comms.send_email_supervisor from holdfast_worker")
    send = EMAIL.kick_off(shop.conn)
    async with shop.working(worker_queues="comms"):
        await shop.until("select from queues.outcome where status = 'failed'")
        await shop.until("select from queues.health() where check_name = 'orphaned_process'")
        shop.conn.execute("grant execute on function comms.send_email_supervisor to holdfast_worker")
        shop.conn.execute("update queues.process_instance set repaired_at = null")
        row = await ended(shop, EMAIL, send)
    assert row["status"] == "succeeded"


async def test_a_process_that_cannot_be_repaired_is_told_of_and_keeps_no_other_from_it(
    shop: Workshop,
) -> None:
    shop.conn.execute("revoke execute on function comms.repair_send_email from holdfast_worker")
    lost, other = EMAIL.kick_off(shop.conn), SMS.kick_off(shop.conn)
    shop.conn.execute("select queues.delete_task(task_id) from queues.process_status")
    async with shop.working(worker_queues="comms"):
        await shop.logged("repair_failed", process="comms.send_email")
        await ended(shop, SMS, other)
        await shop.until("select from queues.health() where check_name = 'orphaned_process'")
        assert status(shop, EMAIL, lost) == "scheduled"
        shop.conn.execute("grant execute on function comms.repair_send_email to holdfast_worker")
        await ended(shop, EMAIL, lost)
    assert (
        shop.conn.execute("select from queues.health() where check_name = 'orphaned_process'").fetchone()
        is None
    )


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
    assert "a column is missing" in line["message"]
