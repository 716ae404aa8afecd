from importlib.metadata import EntryPoint
from typing import Any

import pytest

from holdfast.comms import providers
from holdfast.comms.provider import Email, SendFailed, Sent
from holdfast.comms.providers import email_provider, sms_provider
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from support.messages import EMAIL, SMS, email, sms
from support.resend_server import API_KEY, ResendServer
from support.twilio_server import ACCOUNT, TOKEN, TwilioServer


class Pigeon:
    """A provider as somebody else's package has it."""

    name = "pigeon"
    honours_idempotency_key = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sent: list[Email] = []
        self.closed = False

    async def send(self, email: Email) -> Sent:
        self.sent.append(email)
        return Sent(self.name, None)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def pigeon(monkeypatch: pytest.MonkeyPatch) -> list[Pigeon]:
    made: list[Pigeon] = []

    def make(settings: Settings) -> Pigeon:
        made.append(Pigeon(settings))
        return made[-1]

    class Point(EntryPoint):
        def load(self) -> Any:
            return make

    monkeypatch.setattr(providers, "entry_points", lambda group: [Point("pigeon", "pigeons:Pigeon", group)])
    return made


@pytest.fixture
def texting(twilio: TwilioServer) -> dict[str, Any]:
    return {
        "sms_provider": "twilio",
        "twilio_account_sid": ACCOUNT,
        "twilio_auth_token": TOKEN,
        "twilio_url": twilio.url,
    }


async def test_a_provider_of_another_package_is_found_by_its_entry_point(pigeon: list[Pigeon]) -> None:
    settings = Settings.load(email_provider="pigeon", email_sender="shop@example.com")
    provider = email_provider(settings)
    await provider.send(email(sender=None))
    await provider.close()
    assert (provider.name, provider.honours_idempotency_key) == ("pigeon", False)
    assert [(one.settings, one.sent, one.closed) for one in pigeon] == [
        (settings, [email(sender="shop@example.com")], True)
    ]


async def test_a_provider_of_another_package_gets_nothing_malformed(pigeon: list[Pigeon]) -> None:
    provider = email_provider(Settings.load(email_provider="pigeon"))
    with pytest.raises(SendFailed, match="subject") as caught:
        await provider.send(email(subject="Hello\nBcc: eve@example.com"))
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
    def missing(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named for {module}", name="httpx")

    monkeypatch.setattr(providers, "import_module", missing)
    choose = sms_provider if name == "twilio" else email_provider
    setting = "sms_provider" if name == "twilio" else "email_provider"
    with pytest.raises(ConfigurationError, match=r"needs httpx. Run pip install 'holdfast\[comms\]'"):
        choose(Settings.load(**{setting: name}))


@pytest.mark.parametrize(
    "given", ["Shop", "a@example.com, b@example.com", "Shop <shop@example.com>\nBcc: eve@example.com"]
)
def test_a_sender_in_the_settings_that_is_none_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_EMAIL_SENDER"):
        email_provider(Settings.load(email_provider="smtp", smtp_host="localhost", email_sender=given))


async def test_the_sender_of_the_message_goes_first(resend: ResendServer) -> None:
    provider = email_provider(
        Settings.load(
            email_provider="resend",
            resend_api_key=API_KEY,
            resend_url=resend.url,
            email_sender="other@example.com",
        )
    )
    await provider.send(EMAIL)
    await provider.send(email(sender=None, idempotency_key="email-2"))
    assert [one.email["from"] for one in resend.delivered] == ["Shop <shop@example.com>", "other@example.com"]
    await provider.close()


async def test_no_country_may_be_texted_unless_it_is_listed(
    twilio: TwilioServer, texting: dict[str, Any]
) -> None:
    provider = sms_provider(Settings.load(**texting))
    with pytest.raises(SendFailed, match="HOLDFAST_SMS_COUNTRIES") as caught:
        await provider.send(SMS)
    assert (caught.value.kind, caught.value.permanent) == ("country_not_allowed", True)
    assert SMS.to not in caught.value.message
    assert twilio.requests == []
    await provider.close()


async def test_the_countries_that_are_listed_may_be_texted(
    twilio: TwilioServer, texting: dict[str, Any]
) -> None:
    provider = sms_provider(Settings.load(**texting, sms_countries="+43, +1212"))
    await provider.send(sms(to="+436601234567"))
    await provider.send(sms(to="+12125550100"))
    for other in ("+4915112345678", "+12135550100", "+441212555010"):
        with pytest.raises(SendFailed, match="may not be texted"):
            await provider.send(sms(to=other))
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
