"""The provider of a message: without one that can be used, or against its guard, nothing is sent."""

from typing import Any

import pytest

from holdfast.errors import ConfigurationError
from holdfast.messages import message_executor
from holdfast.messages.provider import SendFailed
from support.message_tasks import MESSAGE, handled, send
from support.scripted_provider import PostOffice
from support.workshop import Workshop

pytestmark = pytest.mark.usefixtures("messages")


async def test_settings_that_a_provider_cannot_use_leave_the_task_to_another_worker(
    shop: Workshop, post_office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Any) -> Any:
        raise ConfigurationError("HOLDFAST_RESEND_API_KEY is missing")

    monkeypatch.setattr(message_executor, "email_provider", refuse)
    async with shop.working():
        task = send(shop)
        row = await shop.becomes(task, "retrying")
    assert row["error"]["kind"] == "provider_not_configured"
    monkeypatch.setattr(message_executor, "email_provider", lambda _: post_office)
    shop.conn.execute("select queues.reschedule(%s, queues.clock())", [task])
    async with shop.working():
        row = await shop.ended(task)

    assert (row["status"], len(post_office.calls)) == ("succeeded", 1)


class TestBeforeTheProvider:
    """What fails before the provider is called was not sent: its cause is told, and no outcome is unknown."""

    async def test_a_provider_that_stays_unusable_is_told_to_the_error_handler(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(settings: Any) -> Any:
            raise ConfigurationError("HOLDFAST_RESEND_API_KEY is not set")

        handled(shop, "failed")
        monkeypatch.setattr(message_executor, "email_provider", refuse)
        async with shop.working():
            row = await shop.ended(send(shop, max_attempts=1))

        error = _told(shop)
        assert (row["status"], error["kind"]) == ("failed", "provider_not_configured")
        assert error["message"] == "HOLDFAST_RESEND_API_KEY is not set"
        assert (error["permanent"], error["outcome_unknown"]) == (False, False)

    @pytest.mark.parametrize(
        ("refusal", "kind"),
        [
            (SendFailed("cap_reached", "too many", retry_after=60), "cap_reached"),
            (TimeoutError(), "timeout"),
            (ZeroDivisionError("oops"), "preparation_failed"),
        ],
        ids=["a cap", "a time-out", "a mistake"],
    )
    async def test_what_the_guard_refuses_was_not_sent(
        self, shop: Workshop, post_office: PostOffice, refusal: BaseException, kind: str
    ) -> None:
        handled(shop, "failed")
        post_office.refusal = refusal
        async with shop.working():
            await shop.ended(send(shop, max_attempts=1))

        error = _told(shop)
        assert (error["kind"], error["outcome_unknown"], post_office.calls) == (kind, False, [])

    async def test_a_worker_that_serves_messages_does_not_start_without_its_provider(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()
        for subscription in (
            {"worker_queues": "comms"},
            {"worker_queues": "", "worker_type_prefixes": "comms."},
        ):
            with pytest.raises(ConfigurationError, match="HOLDFAST_RESEND_API_KEY is not set"):
                shop.worker(email_provider="resend", **subscription)
        shop.worker(email_provider="resend", worker_queues="work")

    async def test_another_provider_does_not_repeat_what_may_have_been_delivered(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        handled(shop, "failed")
        async with shop.working():
            await shop.ended(send(shop, message={**MESSAGE, "only_provider": "resend"}))

        error = _told(shop)
        assert (error["kind"], error["permanent"], post_office.calls) == ("provider_changed", True, [])


def _told(shop: Workshop) -> Any:
    kept = shop.conn.execute("select entry::jsonb -> 'error' from app.ledger").fetchone()
    assert kept
    return kept[0]


async def test_the_address_is_in_no_error_and_no_result(shop: Workshop, post_office: PostOffice) -> None:
    post_office.replies.append(SendFailed("rejected", "550 <ADA@example.com> no such user", permanent=True))
    async with shop.working():
        row = await shop.ended(send(shop))

    assert row["last_error"] == "550 <…> no such user"
