import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import ConfigurationError
from holdfast.messages.provider import EmailProvider, SendFailed
from holdfast.messages.providers.resend import Resend
from holdfast.settings import Settings
from support.messages import EMAIL, email
from support.provider_server import Fault
from support.resend_server import API_KEY, ResendServer


def settings(server: ResendServer, **more: Any) -> Settings:
    return Settings.load(
        **{"email_provider": "resend", "resend_api_key": API_KEY, "resend_url": server.url, **more}
    )


@pytest.fixture
async def provider(resend: ResendServer) -> AsyncIterator[EmailProvider]:
    provider = Resend(settings(resend))
    yield provider
    await provider.close()


@pytest.fixture
def silent() -> Iterator[threading.Event]:
    """A server that is silent until the test is over."""
    event = threading.Event()
    yield event
    event.set()


async def failure(provider: EmailProvider) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await provider.send(EMAIL)
    assert API_KEY not in repr(caught.value) + caught.value.message
    return caught.value


async def test_a_message_is_delivered_as_it_was_given(resend: ResendServer, provider: EmailProvider) -> None:
    whole = email(
        html="<p>How are you?</p>", reply_to='"Lovelace, Ada" <ada@example.com>', headers={"X-Order": "7"}
    )
    sent = await provider.send(whole)
    [delivery] = resend.delivered
    assert (sent.provider, sent.message_id) == ("resend", delivery.id)
    assert delivery.email == {
        "from": "Shop <shop@example.com>",
        "to": ["ada@example.org"],
        "subject": "Hello",
        "text": "How are you?",
        "html": "<p>How are you?</p>",
        "reply_to": '"Lovelace, Ada" <ada@example.com>',
        "headers": {"X-Order": "7"},
    }


async def test_the_same_key_delivers_once(resend: ResendServer, provider: EmailProvider) -> None:
    first, second = await provider.send(EMAIL), await provider.send(EMAIL)
    assert first == second
    assert [delivery.key for delivery in resend.delivered] == ["email-1"]
    assert provider.key_retention == timedelta(hours=24)


async def test_the_same_key_for_another_message_is_permanent(
    resend: ResendServer, provider: EmailProvider
) -> None:
    await provider.send(email(subject="Another"))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent) == ("rejected", True)
    assert "409 invalid_idempotent_request" in failed.message


async def test_a_key_that_is_still_under_way_is_passing(
    resend: ResendServer, provider: EmailProvider
) -> None:
    resend.faults.append(Fault(409, "concurrent_idempotent_requests"))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unavailable", False, False)


async def test_a_sender_that_is_not_verified_is_permanent(resend: ResendServer) -> None:
    provider = Resend(settings(resend))
    with pytest.raises(SendFailed, match=r"403 validation_error: .*elsewhere\.example") as caught:
        await provider.send(email(sender="shop@elsewhere.example"))
    assert caught.value.permanent
    await provider.close()


async def test_a_wrong_key_is_permanent_and_shown_nowhere(resend: ResendServer) -> None:
    provider = Resend(settings(resend, resend_api_key="re_wrong"))
    with pytest.raises(SendFailed, match="403 invalid_api_key") as caught:
        await provider.send(EMAIL)
    assert caught.value.permanent
    assert "re_wrong" not in repr(caught.value)
    await provider.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422, 451])
async def test_what_the_provider_refuses_is_permanent(
    resend: ResendServer, provider: EmailProvider, status: int
) -> None:
    resend.faults.append(Fault(status, "validation_error"))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("rejected", True, False)


@pytest.mark.parametrize("status", [301, 302, 307])
async def test_a_redirect_is_not_followed(resend: ResendServer, provider: EmailProvider, status: int) -> None:
    resend.faults.append(Fault(status, headers={"location": f"{resend.url}/emails"}))
    assert (await failure(provider)).permanent
    assert len(resend.requests) == 1


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", None), ("soon", None), ("nan", None), ("inf", None), ("", None)],
)
async def test_too_many_requests_are_passing_and_say_for_how_long(
    resend: ResendServer, provider: EmailProvider, given: str, seconds: float | None
) -> None:
    resend.faults.append(Fault(429, "rate_limit_exceeded", headers={"retry-after": given}))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.retry_after) == ("rate_limited", False, seconds)


async def test_a_date_to_come_back_at_becomes_seconds(resend: ResendServer, provider: EmailProvider) -> None:
    resend.faults.append(
        Fault(429, "daily_quota_exceeded", headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    )
    resend.faults.append(
        Fault(429, "daily_quota_exceeded", headers={"retry-after": "Wed, 21 Oct 2150 07:28:00 GMT"})
    )
    assert (await failure(provider)).retry_after == 0
    assert ((await failure(provider)).retry_after or 0) > 1e9


@pytest.mark.parametrize("status", [501, 503, 505])
async def test_a_failure_of_the_provider_is_passing(
    resend: ResendServer, provider: EmailProvider, status: int
) -> None:
    resend.faults.append(Fault(status, "application_error"))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unavailable", False, False)
    await provider.send(EMAIL)
    assert len(resend.delivered) == 1


@pytest.mark.parametrize("status", [500, 502, 504, 520, 599])
async def test_a_server_that_broke_or_a_gateway_that_gave_up_leaves_the_outcome_unknown(
    resend: ResendServer, provider: EmailProvider, status: int
) -> None:
    resend.faults.append(Fault(status, accepted=True))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("outcome_unknown", False, True)
    await provider.send(EMAIL)
    assert len(resend.delivered) == 1


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_cut_after_the_request_leaves_the_outcome_unknown(
    resend: ResendServer, provider: EmailProvider, accepted: bool
) -> None:
    resend.faults.append(Fault.cut(accepted=accepted))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("outcome_unknown", False, True)
    await provider.send(EMAIL)
    assert len(resend.delivered) == 1


async def test_silence_leaves_the_outcome_unknown(resend: ResendServer, silent: threading.Event) -> None:
    provider = Resend(settings(resend, send_timeout="1s"))
    resend.faults.append(Fault(wait=silent, accepted=True))
    assert (await failure(provider)).outcome_unknown
    await provider.close()


async def test_nobody_there_is_passing_and_nothing_was_sent(resend: ResendServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    provider = Resend(settings(resend, resend_url=f"http://127.0.0.1:{port}"))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unreachable", False, False)
    await provider.close()


async def test_a_host_that_takes_no_connection_is_passing_and_nothing_was_sent(resend: ResendServer) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(2):  # fills the queue of connections to accept; the next one is not answered
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        provider = Resend(
            settings(resend, resend_url=f"http://127.0.0.1:{full.getsockname()[1]}", send_timeout="1s")
        )
        failed = await failure(provider)
        assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unreachable", False, False)
        await provider.close()


@pytest.mark.parametrize("status", [200, 202, 204])
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1]", b'"x"', b'{"id": 7}', b'{"id": ""}', b'{"id": null}', b"[" * 100_000]
)
async def test_a_success_without_an_id_leaves_the_outcome_unknown(
    resend: ResendServer, provider: EmailProvider, status: int, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resend, "explain", lambda _: b"" if status == 204 else body)
    resend.faults.append(Fault(status, headers={"content-type": "text/html"}))
    failed = await failure(provider)
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("unexpected_answer", False, True)
    assert f"returned {status} (text/html) without the 'id' of a message" in failed.message


async def test_a_long_explanation_is_cut(
    resend: ResendServer, provider: EmailProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    resend.faults.append(Fault(422, "validation_error"))
    monkeypatch.setattr(resend, "explain", lambda _: json.dumps({"message": "x" * 100_000}).encode())
    assert len((await failure(provider)).message) < 1000


async def test_a_message_without_any_sender_is_refused(resend: ResendServer, provider: EmailProvider) -> None:
    with pytest.raises(SendFailed, match="HOLDFAST_EMAIL_SENDER") as caught:
        await provider.send(email(sender=None))
    assert caught.value.permanent
    assert resend.requests == []


def test_without_a_key_there_is_no_provider() -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_RESEND_API_KEY is not set"):
        Resend(Settings.load(email_provider="resend"))
