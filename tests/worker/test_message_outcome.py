"""The outcome of a message: recorded once, and unknown where the message may have been sent."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.messages.provider import SendFailed
from support.business import entries, make_function
from support.message_tasks import PREPARES, RECORDS, handled, send
from support.scripted_provider import PostOffice
from support.workshop import Workshop

pytestmark = pytest.mark.usefixtures("messages")


async def test_a_provider_that_breaks_its_word_leaves_an_unknown_outcome(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.replies.append(ZeroDivisionError("oops"))
    async with shop.working():
        row = await shop.ended(send(shop))

    assert row["error"]["detail"]["outcome_unknown"] is True
    assert "ZeroDivisionError: oops" in row["last_error"]
    assert entries(shop.conn) == ["failed provider_failed"]


async def test_a_provider_that_does_not_answer_in_time_leaves_an_unknown_outcome(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.replies.append(asyncio.Event().wait)
    async with shop.working():
        row = await shop.ended(send(shop, timeout="200ms"))

    assert row["error"]["detail"]["outcome_unknown"] is True
    assert entries(shop.conn) == ["failed timeout"]


async def test_where_the_key_is_recognised_the_outcome_is_unknown_and_may_be_repeated_for_a_time(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.key_retention = timedelta(hours=24)
    post_office.replies.append(SendFailed("outcome_unknown", "cut", outcome_unknown=True))
    async with shop.working():
        row = await shop.ended(send(shop))

    detail = row["error"]["detail"]
    assert (detail["outcome_unknown"], detail["key_seconds"]) == (True, 0.95 * 86400)


class TestRecording:
    """What the provider did is recorded, however long that takes; it is not done again."""

    async def test_a_handler_that_breaks_for_a_moment_is_called_again(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        shop.conn.execute("create sequence app.tries; alter sequence app.tries owner to app_owner")
        make_function(
            shop.conn,
            "sent",
            "if nextval('app.tries') < 3 then raise exception 'not yet'; end if;" + RECORDS,
        )
        async with shop.working():
            row = await shop.ended(send(shop))

        assert (row["status"], row["attempt"], len(post_office.calls)) == ("succeeded", 1, 1)
        assert entries(shop.conn) == ["sent id-1"]

    @pytest.mark.parametrize("reply", [None, SendFailed("down", "down")], ids=["sent", "failed"])
    async def test_a_handler_that_stays_broken_is_called_by_the_next_attempt_with_what_was_known(
        self, shop: Workshop, post_office: PostOffice, monkeypatch: pytest.MonkeyPatch, reply: Any
    ) -> None:
        monkeypatch.setattr("holdfast.messages.message_executor.PAUSES_SECONDS", (0.01,))
        post_office.replies.append(reply)
        for function in ("sent", "failed"):
            make_function(shop.conn, function, "raise exception 'broken';")
        async with shop.working():
            task = send(shop)
            row = await shop.becomes(task, "retrying")
            assert row["error"]["kind"] == "recording_failed"
            for function in ("sent", "failed"):
                make_function(shop.conn, function, RECORDS)
            row = await shop.ended(task)

        assert (row["attempt"], len(post_office.calls)) == (2, 1)
        assert entries(shop.conn) == (["sent id-1"] if reply is None else ["failed down"])

    async def test_a_validation_failure_of_a_handler_is_final(self, shop: Workshop) -> None:
        make_function(
            shop.conn,
            "sent",
            """insert into app.ledger values ('late');
               return '{"success": false, "validation_failure_message": "too late"}';""",
        )
        async with shop.working():
            row = await shop.ended(send(shop))

        assert (row["status"], row["last_error"]) == ("failed", "app.sent: too late")
        assert row["error"]["detail"]["sent"]["message_id"] == "id-1"
        assert entries(shop.conn) == ["late"]

    async def test_what_the_provider_says_is_made_storable(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.replies.append(SendFailed("odd", "a\0b \ud800"))
        async with shop.working():
            row = await shop.ended(send(shop))

        assert row["last_error"] == "a\ufffdb \ufffd"
        assert entries(shop.conn) == ["failed odd"]


async def _die_while_it_is_sent(shop: Workshop, post_office: PostOffice, **more: Any) -> Any:
    """A worker that has handed a message over and ended before it could tell; its lease has ended, too.

    One of its heartbeats has told that the task has begun.
    """
    gate = asyncio.Event()
    post_office.replies.append(gate.wait)
    async with shop.working() as worker:
        task = send(shop, **more)
        await shop.sees(lambda: post_office.calls)
        shop.conn.execute("select queues.pause('work')")
        shop.conn.execute(
            "update queues.lease"
            " set started_at = claimed_at, lease_until = queues.clock() - interval '1 second'"
        )
        await shop.until("select from queues.error where recovered")
        gate.set()
        await shop.sees(lambda: worker.metrics.refused["lost"] == 1)
    shop.conn.execute("select queues.resume('work')")
    return task


class TestAfterADeath:
    """A worker ended between the provider's answer and the record of it."""

    async def test_without_a_key_the_outcome_is_recorded_as_unknown_and_nothing_is_sent_again(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        task = await _die_while_it_is_sent(shop, post_office)
        async with shop.working():
            row = await shop.ended(task)

        assert len(post_office.calls) == 1
        assert (row["status"], row["error"]["kind"]) == ("failed", "outcome_unknown")
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_with_a_key_it_is_sent_again_under_the_same_key(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.key_retention = timedelta(hours=24)
        task = await _die_while_it_is_sent(shop, post_office)
        async with shop.working():
            row = await shop.ended(task)

        assert [email.idempotency_key for email in post_office.calls] == ["send-1", "send-1"]
        assert (row["status"], list(post_office.delivered)) == ("succeeded", ["send-1"])
        assert entries(shop.conn) == ["sent id-2"]

    async def test_with_a_key_that_the_provider_has_forgotten_the_outcome_is_unknown(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.key_retention = timedelta(hours=24)
        task = await _die_while_it_is_sent(shop, post_office)
        shop.conn.execute("update queues.test_clock set shifted_by = interval '1 day'")
        async with shop.working():
            await shop.ended(task)

        assert len(post_office.calls) == 1
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_when_the_attempts_are_used_up_the_error_handler_is_called_all_the_same(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        task = await _die_while_it_is_sent(shop, post_office, max_attempts=1)
        async with shop.working():
            await shop.until("select from app.ledger")

        row = await shop.ended(task)
        assert (row["status"], len(post_office.calls)) == ("dead_letter", 1)
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_a_worker_that_is_stopped_in_the_middle_does_not_give_the_attempt_back(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.replies.append(asyncio.Event().wait)
        async with shop.working(grace="0s"):
            task = send(shop)
            await shop.sees(lambda: post_office.calls)
        row = await shop.becomes(task, "retrying")
        assert (row["attempt"], row["error"]["kind"]) == (1, "outcome_unknown")
        async with shop.working():
            await shop.ended(task)

        assert len(post_office.calls) == 1
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_a_worker_that_is_stopped_before_gives_it_back(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        make_function(shop.conn, "prepare", "perform pg_advisory_xact_lock(42);" + PREPARES)
        gate = shop.db.connect(autocommit=False)
        gate.execute("select pg_advisory_xact_lock(42)")
        async with shop.working(grace="0s"):
            task = send(shop)
            await shop.until("select from pg_locks where locktype = 'advisory' and not granted")
        row = await shop.becomes(task, "pending")

        assert (row["attempt"], post_office.calls) == (0, [])


async def test_the_error_handler_hears_of_a_cancelled_attempt(
    shop: Workshop, post_office: PostOffice
) -> None:
    handled(shop, "failed")
    post_office.replies.append(asyncio.Event().wait)
    async with shop.working(heartbeat="100ms", lease="1s"):
        task = send(shop)
        await shop.sees(lambda: post_office.calls)
        shop.conn.execute("select queues.cancel(%s, 'wrong person')", [task])
        await shop.until("select from app.ledger")

    kept = shop.conn.execute("select entry::jsonb -> 'error' from app.ledger").fetchone()
    assert kept
    assert {"kind": "cancelled", "permanent": True, "outcome_unknown": True}.items() <= kept[0].items()
    assert kept[0]["message"] == "it was cancelled by postgres: wrong person"
