import asyncio
import sys
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigurationError
from holdfast.messages.provider import Email, SendFailed, Sent, Sms
from holdfast.messages.providers.choice import email_provider, sms_provider
from holdfast.settings import Settings
from support.database import Database
from support.engine import rows
from support.messages import EMAIL, SMS, email, sms
from support.package import install_package, make_importable
from support.resend_server import API_KEY, ResendServer
from support.twilio_server import ACCOUNT, TOKEN, TwilioServer


class Pigeon:
    """A provider as somebody else's package has it."""

    name = "pigeon"
    key_retention = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sent: list[Email] = []
        self.closed = False

    async def send(self, email: Email) -> Sent:
        self.sent.append(email)
        return Sent(self.name, None)

    async def close(self) -> None:
        self.closed = True


async def deliver(provider: Any, message: Email | Sms) -> Sent:
    """As a worker does it."""
    sent: Sent = await provider.send(await provider.admit(message))
    return sent


@pytest.fixture
def database(db: Database) -> dict[str, str]:
    """As the login of a worker has it."""
    return {"database_url": db.dsn_as("holdfast_worker")}


@pytest.fixture(scope="session")
def loft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed."""
    source = "def provide(settings): return make(settings)\nmake = None\n"
    points = {"holdfast.email_providers": {"pigeon": "loft:provide"}}
    return install_package(tmp_path_factory.mktemp("loft"), "loft", source, points)


@pytest.fixture
def pigeon(loft: Path, monkeypatch: pytest.MonkeyPatch) -> list[Pigeon]:
    made: list[Pigeon] = []

    def make(settings: Settings) -> Pigeon:
        made.append(Pigeon(settings))
        return made[-1]

    make_importable(monkeypatch, loft, "loft")
    monkeypatch.setattr(import_module("loft"), "make", make)
    return made


@pytest.fixture
def texting(twilio: TwilioServer, database: dict[str, str]) -> dict[str, Any]:
    return {
        **database,
        "sms_provider": "twilio",
        "twilio_account_sid": ACCOUNT,
        "twilio_auth_token": TOKEN,
        "twilio_url": twilio.url,
    }


async def test_a_provider_of_another_package_is_found_by_its_entry_point(
    pigeon: list[Pigeon], database: dict[str, str]
) -> None:
    settings = Settings.load(email_provider="pigeon", email_sender="shop@example.com", **database)
    provider = email_provider(settings)
    await deliver(provider, email(sender=None))
    await provider.close()
    assert (provider.name, provider.key_retention) == ("pigeon", None)
    assert [(one.settings, one.sent, one.closed) for one in pigeon] == [
        (settings, [email(sender="shop@example.com")], True)
    ]


async def test_a_provider_of_another_package_gets_nothing_malformed(pigeon: list[Pigeon]) -> None:
    provider = email_provider(Settings.load(email_provider="pigeon"))
    with pytest.raises(SendFailed, match="subject") as caught:
        await deliver(provider, email(subject="Hello\nBcc: eve@example.com"))
    assert (caught.value.kind, caught.value.permanent) == ("malformed", True)
    assert pigeon[0].sent == []


def test_a_provider_that_nobody_has_is_refused_with_those_that_there_are(pigeon: list[Pigeon]) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"HOLDFAST_EMAIL_PROVIDER='post' is not a provider. .*mailbox, pigeon, resend, smtp",
    ):
        email_provider(Settings.load(email_provider="post"))


@pytest.mark.parametrize("name", ["resend", "smtp", "twilio"])
def test_a_library_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"holdfast.messages.providers.{name}"
    monkeypatch.setitem(sys.modules, module, None)  # as if it could not be imported
    choose = sms_provider if name == "twilio" else email_provider
    setting = "sms_provider" if name == "twilio" else "email_provider"
    with pytest.raises(
        ConfigurationError, match=rf"needs the package {module}. Run pip install 'holdfast-pg\[comms\]'"
    ):
        choose(Settings.load(**{setting: name}))


@pytest.mark.parametrize(
    "given", ["Shop", "a@example.com, b@example.com", "Shop <shop@example.com>\nBcc: eve@example.com"]
)
def test_a_sender_in_the_settings_that_is_none_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_EMAIL_SENDER"):
        email_provider(Settings.load(email_provider="smtp", smtp_host="localhost", email_sender=given))


async def test_the_sender_of_the_message_goes_first(resend: ResendServer, database: dict[str, str]) -> None:
    provider = email_provider(
        Settings.load(
            email_provider="resend",
            resend_api_key=API_KEY,
            resend_url=resend.url,
            email_sender="other@example.com",
            **database,
        )
    )
    await deliver(provider, EMAIL)
    await deliver(provider, email(sender=None, idempotency_key="email-2"))
    assert [one.email["from"] for one in resend.delivered] == ["Shop <shop@example.com>", "other@example.com"]
    await provider.close()


async def test_no_country_may_be_texted_unless_it_is_listed(
    twilio: TwilioServer, texting: dict[str, Any]
) -> None:
    provider = sms_provider(Settings.load(**texting))
    with pytest.raises(SendFailed, match="HOLDFAST_SMS_COUNTRIES") as caught:
        await deliver(provider, SMS)
    assert (caught.value.kind, caught.value.permanent) == ("country_not_allowed", True)
    assert SMS.to not in caught.value.message
    assert twilio.requests == []
    await provider.close()


async def test_the_countries_that_are_listed_may_be_texted(
    twilio: TwilioServer, texting: dict[str, Any]
) -> None:
    provider = sms_provider(Settings.load(**texting, sms_countries="+43, +1212"))
    await deliver(provider, sms(to="+436601234567"))
    await deliver(provider, sms(to="+12125550100"))
    for other in ("+4915112345678", "+12135550100", "+441212555010"):
        with pytest.raises(SendFailed, match="are not allowed"):
            await deliver(provider, sms(to=other))
    assert len(twilio.delivered) == 2
    await provider.close()


@pytest.mark.parametrize("given", ["49", "+", "+49x", "DE", "+0", "+49;+43"])
def test_a_list_of_countries_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_SMS_COUNTRIES"):
        Settings.load(sms_countries=given)


@pytest.mark.parametrize("name", ["resend_url", "twilio_url"])
@pytest.mark.parametrize(
    "given", ["http://api.example.com", "ftp://api.example.com", "api.example.com", "https://"]
)
def test_secrets_go_nowhere_in_the_clear(name: str, given: str) -> None:
    with pytest.raises(ConfigurationError, match=f"HOLDFAST_{name.upper()}"):
        Settings.load(**{name: given})


@pytest.mark.parametrize("name", ["resend_api_key", "smtp_password", "twilio_auth_token"])
def test_secrets_are_not_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HOLDFAST_{name.upper()}", "hush-hush")
    settings = Settings.load()
    assert "hush-hush" not in repr(settings) + str(settings) + str(settings.model_dump())
    assert "hush-hush" not in settings.model_dump_json()
    with pytest.raises(ConfigurationError) as refusal:
        Settings.load(**{name: ["hush-hush"]})
    assert "hush-hush" not in str(refusal.value)


async def test_what_is_over_a_cap_does_not_reach_the_provider(
    pigeon: list[Pigeon], db: Database, database: dict[str, str]
) -> None:
    admin = db.connect()
    admin.execute("update comms.send_cap set most = 1 where channel = 'email' and scope = 'recipient'")
    provider = email_provider(Settings.load(email_provider="pigeon", **database))
    await deliver(provider, EMAIL)
    await deliver(provider, EMAIL)
    with pytest.raises(SendFailed, match="at most 1 email messages may be sent to one recipient") as caught:
        await deliver(provider, email(idempotency_key="email-2"))
    await deliver(provider, email(to="bob@example.org", idempotency_key="email-3"))
    await provider.close()
    failed = caught.value
    assert (failed.kind, failed.permanent, failed.outcome_unknown) == ("cap_reached", False, False)
    assert 0 < (failed.retry_after or 0) <= 3600
    assert [one.idempotency_key for one in pigeon[0].sent] == ["email-1", "email-1", "email-3"]


async def test_what_was_refused_before_is_not_counted(
    twilio: TwilioServer, db: Database, texting: dict[str, Any]
) -> None:
    provider = sms_provider(Settings.load(**texting))
    for number in (SMS.to, "not a number"):
        with pytest.raises(SendFailed):
            await deliver(provider, sms(to=number))
    await provider.close()
    assert rows(db.connect(), "select * from comms.send_count") == []


async def test_without_a_database_nothing_is_sent(pigeon: list[Pigeon]) -> None:
    provider = email_provider(
        Settings.load(email_provider="pigeon", database_url="postgresql://127.0.0.1:1/none")
    )
    with pytest.raises(SendFailed, match="the caps cannot be checked") as caught:
        await deliver(provider, EMAIL)
    await provider.close()
    assert (caught.value.permanent, caught.value.outcome_unknown) == (False, False)
    assert pigeon[0].sent == []


async def test_the_mailbox_keeps_what_it_is_given(db: Database, database: dict[str, str]) -> None:
    mail, texts = email_provider(Settings.load(**database)), sms_provider(Settings.load(**database))
    first = await deliver(mail, email(html="<p>Hello</p>", sender=None, headers={"X-Order": "7"}))
    again = await deliver(mail, email(html="<p>Hello</p>", sender=None, headers={"X-Order": "7"}))
    text = await deliver(texts, SMS)
    await mail.close()
    await texts.close()
    assert first == again
    assert (mail.name, mail.key_retention) == ("mailbox", timedelta(days=1))
    kept = rows(db.connect(), "select * from comms.mailbox order by mailbox_message_id")
    assert [str(one["mailbox_message_id"]) for one in kept] == [first.message_id, text.message_id]
    assert [(one["recipient"], one["text_body"], one["headers"]) for one in kept] == [
        ("ada@example.org", "How are you?", {"X-Order": "7"}),
        ("+4915112345678", "Hello", {}),
    ]


async def test_many_messages_at_once(db: Database, database: dict[str, str]) -> None:
    provider = email_provider(Settings.load(**database))
    sent = await asyncio.gather(
        *(deliver(provider, email(to=f"{n}@example.org", idempotency_key=f"k{n}")) for n in range(20))
    )
    await provider.close()
    assert len({one.message_id for one in sent}) == 20
