"""Finds the providers that the settings name. Each is wrapped in the checks that apply to all."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.messages.providers.admission import CheckedEmailProvider, CheckedSmsProvider
from holdfast.settings import Settings, variable_of

EMAIL_GROUP = "holdfast.email_providers"
SMS_GROUP = "holdfast.sms_providers"

# Imported only when chosen: each needs a different library.
_BUILT_IN_EMAIL = {"mailbox": "mailbox:EmailMailbox", "resend": "resend:Resend", "smtp": "smtp:Smtp"}
_BUILT_IN_SMS = {"mailbox": "mailbox:SmsMailbox", "twilio": "twilio:Twilio"}


def email_provider(settings: Settings) -> CheckedEmailProvider:
    """Does not connect yet. `settings.database_url` must be the database of the calling worker."""
    return CheckedEmailProvider(
        _find("email_provider", settings, _BUILT_IN_EMAIL, EMAIL_GROUP)(settings), settings
    )


def sms_provider(settings: Settings) -> CheckedSmsProvider:
    return CheckedSmsProvider(_find("sms_provider", settings, _BUILT_IN_SMS, SMS_GROUP)(settings), settings)


def _find(
    setting: str, settings: Settings, built_in: Mapping[str, str], group: str
) -> Callable[[Settings], Any]:
    """Return the factory of the provider: a built-in class or the object of an entry point."""
    name = getattr(settings, setting)
    if name in built_in:
        module, _, kind = built_in[name].partition(":")
        return _load(name, f"{__name__}.{module}", kind)
    installed = {point.name: point for point in entry_points(group=group)}
    if name not in installed:
        raise ConfigurationError(
            f"{variable_of(setting)}={name!r} is not a provider",
            hint=f"Known providers: {', '.join(sorted(built_in | installed.keys()))}.",
        )
    loaded: Callable[[Settings], Any] = installed[name].load()
    return loaded


def _load(name: str, module: str, kind: str) -> Callable[[Settings], Any]:
    try:
        found: Callable[[Settings], Any] = getattr(import_module(module), kind)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the provider {name} needs {error.name}", hint="Run pip install 'holdfast-pg[comms]'."
        ) from None
    return found
