from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import pytest

from holdfast.errors import ConfigurationError
from holdfast.messages.provider import SendFailed, SmsProvider
from holdfast.messages.providers.twilio import Twilio
from holdfast.settings import Settings
from support.messages import SMS, sms
from support.provider_server import Fault
from support.twilio_server import ACCOUNT, STOPPED, TOKEN, TwilioServer


def settings(server: TwilioServer, **more: Any) -> Settings:
    given = {"twilio_account_sid": ACCOUNT, "twilio_auth_token": TOKEN, "twilio_url": server.url}
    return Settings.load(**{"sms_provider": "twilio", **given, **more})


@pytest.fixture
async def provider(twilio: TwilioServer) -> AsyncIterator[SmsProvider]:
    provider = Twilio(settings(twilio))
    yield provider
    await provider.close()


async def failure(provider: SmsProvider, **fields: Any) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await provider.send(sms(**fields))
    assert TOKEN not in repr(caught.value) + caught.value.message
    return caught.value


async def test_a_message_is_delivered_as_it_was_given(twilio: TwilioServer, provider: SmsProvider) -> None:
    sent = await provider.send(sms(text="Grüße & 1+1=2\nBye"))
    [delivery] = twilio.delivered
    assert (sent.provider, sent.message_id) == ("twilio", delivery.sid)
    assert sent.detail == {"status": "queued", "num_segments": "1"}
    assert (delivery.to, delivery.sender, delivery.body) == (
        "+4915112345678",
        "+15005550006",
        "Grüße & 1+1=2\nBye",
    )


async def test_a_messaging_service_may_be_the_sender(twilio: TwilioServer, provider: SmsProvider) -> None:
    service = "MG" + "a" * 32
    await provider.send(sms(sender=service))
    assert b"MessagingServiceSid" in twilio.requests[0].body
    assert twilio.delivered[0].sender == service


async def test_a_message_that_is_sent_twice_arrives_twice(
    twilio: TwilioServer, provider: SmsProvider
) -> None:
    await provider.send(SMS)
    await provider.send(SMS)
    assert len(twilio.delivered) == 2
    assert provider.key_retention is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"sid": null}'])
async def test_a_success_without_an_id_leaves_the_outcome_unknown(
    twilio: TwilioServer, provider: SmsProvider, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twilio, "explain", lambda _: body)
    twilio.faults.append(Fault(201))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unexpected_answer", False, True)


async def test_reports_are_asked_for_where_they_can_be_taken(twilio: TwilioServer) -> None:
    url = "https://tasks.example.com/v1/deliveries/twilio"
    provider = Twilio(settings(twilio, twilio_status_callback=url))
    await provider.send(SMS)
    await provider.close()
    assert ("StatusCallback", url) in parse_qsl(twilio.requests[0].body.decode())


async def test_a_recipient_who_said_stop_is_permanent(provider: SmsProvider) -> None:
    failed = await failure(provider, to=STOPPED)
    assert (failed.kind, failed.permanent) == ("rejected", True)
    assert "400 21610" in failed.message


async def test_a_sender_of_another_account_is_permanent(provider: SmsProvider) -> None:
    assert (await failure(provider, sender="+15005550001")).permanent


async def test_a_wrong_token_is_permanent_and_shown_nowhere(twilio: TwilioServer) -> None:
    provider = Twilio(settings(twilio, twilio_auth_token=TOKEN[::-1]))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent) == ("rejected", True)
    assert TOKEN[::-1] not in failed.message
    await provider.close()


@pytest.mark.parametrize(("status", "code"), [(429, "20429"), (400, "21611"), (503, "20503")])
async def test_what_passes_is_passing(
    twilio: TwilioServer, provider: SmsProvider, status: int, code: str
) -> None:
    twilio.faults.append(Fault(status, code, headers={"retry-after": "3"}))
    failed = await failure(provider)
    assert (failed.permanent, failed.outcome_unknown, failed.retry_after) == (False, False, 3.0)


@pytest.mark.parametrize(
    "fault",
    [Fault.cut(accepted=True), Fault(500, "20500", accepted=True), Fault(504, "20504", accepted=True)],
)
async def test_a_request_without_an_answer_leaves_the_outcome_unknown(
    twilio: TwilioServer, provider: SmsProvider, fault: Fault
) -> None:
    twilio.faults.append(fault)
    assert (await failure(provider)).outcome_unknown
    assert len(twilio.delivered) == 1


async def test_a_message_without_any_sender_is_refused(twilio: TwilioServer, provider: SmsProvider) -> None:
    assert "HOLDFAST_SMS_SENDER" in (await failure(provider, sender=None)).message
    assert twilio.requests == []


def test_without_an_account_there_is_no_provider() -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_TWILIO_ACCOUNT_SID is not set"):
        Twilio(Settings.load(sms_provider="twilio"))
    with pytest.raises(ConfigurationError, match="HOLDFAST_TWILIO_AUTH_TOKEN is not set"):
        Twilio(Settings.load(sms_provider="twilio", twilio_account_sid=ACCOUNT))
