"""Executors email and sms: before-handler, provider, then a handler with the outcome in its transaction."""

from typing import Any

import pytest

from holdfast.messages.provider import Email, SendFailed
from support.business import ask, entries, make_function
from support.message_tasks import MESSAGE, handled, send
from support.scripted_provider import PostOffice
from support.workshop import Workshop

pytestmark = pytest.mark.usefixtures("messages")


async def test_what_the_before_handler_answers_is_sent_and_recorded(
    shop: Workshop, post_office: PostOffice
) -> None:
    async with shop.working():
        row = await shop.ended(send(shop))

    (email,) = post_office.calls
    assert (email.to, email.text, email.idempotency_key) == ("ada@example.com", "Hello, Ada", "send-1")
    assert row["status"] == "succeeded"
    assert row["result"] == {"provider": "post_office", "message_id": "id-1", "detail": {"queued": True}}
    assert entries(shop.conn) == ["sent id-1"]
    assert post_office.closed


async def test_the_outcome_is_in_the_transaction_of_the_handler(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.replies += [None, SendFailed("down", "the provider is down")]
    async with shop.working():
        for task in (send(shop), send(shop)):
            await shop.ended(task)

    pairs = shop.conn.execute(
        """select (select array_agg(transaction_id::text order by transaction_id::text) from app.ledger)
             = (select array_agg(xmin::text order by xmin::text) from queues.outcome)"""
    ).fetchone()
    assert pairs == (True,)


async def test_a_text_message_takes_the_same_way(shop: Workshop, post_office: PostOffice) -> None:
    async with shop.working():
        row = await shop.ended(send(shop, "sms", message={"to": "+4915112345678", "text": "Hello"}))

    (sms,) = post_office.calls
    assert (sms.to, sms.text) == ("+4915112345678", "Hello")
    assert row["status"] == "succeeded"


async def test_without_a_before_handler_the_payload_is_the_message(
    shop: Workshop, post_office: PostOffice
) -> None:
    async with shop.working():
        task = send(shop, before_handler=None, message=None, to="bob@example.com", subject="S", html="<p>")
        await shop.ended(task)

    (email,) = post_office.calls
    assert isinstance(email, Email)
    assert (email.to, email.html, email.text) == ("bob@example.com", "<p>", None)
    assert email.idempotency_key == f"holdfast-{task}"


async def test_the_success_handler_gets_the_payload_as_it_came_and_what_the_provider_said(
    shop: Workshop,
) -> None:
    handled(shop, "sent")
    async with shop.working():
        task = send(shop, extra={"n": 0.5})
        await shop.ended(task)

    kept = shop.conn.execute(
        """select l.entry::jsonb -> 'original_payload' = t.payload, l.entry::jsonb -> 'worker_payload'
           from app.ledger l, queues.task t"""
    ).fetchone()
    assert kept == (True, {"provider": "post_office", "message_id": "id-1", "detail": {"queued": True}})


async def test_the_error_handler_gets_the_payload_as_it_came_and_what_went_wrong(
    shop: Workshop, post_office: PostOffice
) -> None:
    handled(shop, "failed")
    post_office.replies.append(SendFailed("rate_limited", "slow down", retry_after=90))
    async with shop.working():
        task = send(shop)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    kept = shop.conn.execute(
        "select entry::jsonb -> 'original_payload' ->> 'task_type', entry::jsonb -> 'error' from app.ledger"
    ).fetchone()
    assert kept == (
        "email",
        {
            "kind": "rate_limited",
            "message": "slow down",
            "permanent": False,
            "outcome_unknown": False,
            "retry_after": 90,
            "key_seconds": None,
            "task_id": str(task),
            "provider": "post_office",
        },
    )
    assert (row["status"], row["attempt"]) == ("failed", 1)
    assert (error["kind"], error["message"]) == ("rate_limited", "slow down")


async def test_a_validation_failure_of_the_before_handler_is_final_and_nothing_is_sent(
    shop: Workshop, post_office: PostOffice
) -> None:
    make_function(
        shop.conn, "prepare", """return '{"success": false, "validation_failure_message": "closed"}';"""
    )
    async with shop.working():
        task = send(shop)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert post_office.calls == []
    assert (row["status"], error["kind"]) == ("failed", "validation_failure")
    assert error["message"] == "app.prepare: closed"
    assert error["detail"]["permanent"] is True
    assert entries(shop.conn) == ["failed validation_failure"]


async def test_a_before_handler_that_breaks_is_tried_again_and_then_told_to_the_error_handler(
    shop: Workshop, post_office: PostOffice
) -> None:
    make_function(shop.conn, "prepare", "raise exception 'no such column';")
    async with shop.working():
        task = send(shop, max_attempts=2)
        row = await shop.ended(task)
        errors = await shop.errors(task)

    assert post_office.calls == []
    assert [error["kind"] for error in errors] == ["function_failed", "before_handler_failed"]
    assert (row["status"], row["attempt"]) == ("failed", 2)
    assert entries(shop.conn) == ["failed before_handler_failed"]


async def test_a_before_handler_that_answers_neither_a_payload_nor_a_refusal_has_broken(
    shop: Workshop, post_office: PostOffice
) -> None:
    no_payload = ['{"success": true, "payload": [1]}', '{"success": true}']
    no_envelope = ["null", "[]", '{"success": false}', '{"payload": {"to": "ada@example.com"}}']
    make_function(shop.conn, "prepare", "return (payload ->> 'answer')::jsonb;")
    async with shop.working():
        tasks = [send(shop, answer=answer, max_attempts=1) for answer in [*no_payload, *no_envelope]]
        await shop.ended(*tasks)
        errors = [error for task in tasks for error in await shop.errors(task)]

    assert post_office.calls == []
    assert {error["kind"] for error in errors} == {"before_handler_failed"}
    told = [error["message"] for error in errors]
    assert told[:2] == ["app.prepare: returned no object as the payload for the provider"] * 2
    assert all(message.startswith("app.prepare: returned ") for message in told)
    assert entries(shop.conn) == ["failed before_handler_failed"] * 6


async def test_a_handler_that_does_not_exist_is_a_failure_for_good(
    shop: Workshop, post_office: PostOffice
) -> None:
    async with shop.working():
        first = await shop.ended(send(shop, before_handler="app.missing"))
        second = await shop.ended(send(shop, success_handler="app.missing"))

    assert (first["status"], second["status"]) == ("failed", "failed")
    assert len(post_office.calls) == 1
    assert second["error"]["kind"] == "function_not_found"
    assert second["error"]["detail"]["known"]["sent"]["message_id"] == "id-1"
    assert entries(shop.conn) == ["failed before_handler_failed"]


@pytest.mark.parametrize(
    "message",
    [{"subject": "S", "text": "t"}, {**MESSAGE, "to": 7}, {**MESSAGE, "headers": {"a": 1}}],
    ids=["no recipient", "a number as recipient", "a number in headers"],
)
async def test_a_message_of_another_shape_is_not_sent(
    shop: Workshop, post_office: PostOffice, message: Any
) -> None:
    async with shop.working():
        await shop.ended(send(shop, message=message))

    assert post_office.calls == []
    assert entries(shop.conn) == ["failed malformed"]


async def test_a_payload_that_names_no_functions_fails_the_task(shop: Workshop) -> None:
    payloads: list[Any] = [[], {"task_type": "email", "error_handler": 7}]
    async with shop.working():
        for payload in payloads:
            row = await shop.ended(ask(shop.conn, payload, executor="email"))
            assert (row["status"], row["error"]["kind"]) == ("failed", "invalid_payload")


class TestWithoutHandlers:
    """No function in the database waits for the outcome: the attempts of the task apply."""

    async def test_a_success_is_the_result(self, shop: Workshop) -> None:
        async with shop.working():
            row = await shop.ended(send(shop, success_handler=None, error_handler=None))

        assert row["result"]["message_id"] == "id-1"

    async def test_a_passing_failure_is_retried(self, shop: Workshop, post_office: PostOffice) -> None:
        post_office.replies.append(SendFailed("unavailable", "503", retry_after=0.1))
        async with shop.working():
            row = await shop.ended(send(shop, success_handler=None, error_handler=None))

        assert (row["status"], row["attempt"], len(post_office.calls)) == ("succeeded", 2, 2)

    @pytest.mark.parametrize("how", ["permanent", "outcome_unknown"])
    async def test_any_other_is_final(self, shop: Workshop, post_office: PostOffice, how: str) -> None:
        post_office.replies.append(SendFailed("failed", "no", **{how: True}))
        async with shop.working():
            row = await shop.ended(send(shop, success_handler=None, error_handler=None))

        assert (row["status"], len(post_office.calls)) == ("failed", 1)
