"""The providers that the settings name, each behind the refusals that hold for all."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from holdfast.comms.providers.admission import GuardedEmail, GuardedSms
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings, variable_of

EMAIL_GROUP = "holdfast.email_providers"
SMS_GROUP = "holdfast.sms_providers"

# Loaded when they are chosen: each needs another library.
_OUR_EMAIL = {"mailbox": "mailbox:EmailMailbox", "resend": "resend:Resend", "smtp": "smtp:Smtp"}
_OUR_SMS = {"mailbox": "mailbox:SmsMailbox", "twilio": "twilio:Twilio"}


def email_provider(settings: Settings) -> GuardedEmail:
    """Opens no connection yet. `settings.database_url` has to be the database of the worker that asks."""
    return GuardedEmail(_find("email_provider", settings, _OUR_EMAIL, EMAIL_GROUP)(settings), settings)


def sms_provider(settings: Settings) -> GuardedSms:
    return GuardedSms(_find("sms_provider", settings, _OUR_SMS, SMS_GROUP)(settings), settings)


def _find(setting: str, settings: Settings, ours: Mapping[str, str], group: str) -> Callable[[Settings], Any]:
    """What makes the provider from the settings: a class of ours, or what an entry point names."""
    name = getattr(settings, setting)
    if name in ours:
        module, _, kind = ours[name].partition(":")
        return _load(name, f"{__name__}.{module}", kind)
    others = {point.name: point for point in entry_points(group=group)}
    if name not in others:
        raise ConfigurationError(
            f"{variable_of(setting)}={name!r} is not a provider",
            hint=f"Known are: {', '.join(sorted(ours | others.keys()))}.",
        )
    loaded: Callable[[Settings], Any] = others[name].load()
    return loaded


def _load(name: str, module: str, kind: str) -> Callable[[Settings], Any]:
    try:
        found: Callable[[Settings], Any] = getattr(import_module(module), kind)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the provider {name} needs {error.name}", hint="Run pip install 'holdfast[comms]'."
        ) from None
    return found
