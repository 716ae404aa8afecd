"""Finds the providers that the settings name. Each is wrapped in the checks that apply to all."""

from collections.abc import Callable
from typing import Any

from holdfast._install import entry_points
from holdfast.errors import ConfigurationError
from holdfast.messages.providers.admission import CheckedEmailProvider, CheckedSmsProvider
from holdfast.settings import Settings, variable_of


def email_provider(settings: Settings) -> CheckedEmailProvider:
    """Does not connect yet. `settings.database_url` must be the database of the calling worker."""
    found = _find("email_provider", settings, entry_points.EMAIL_PROVIDERS)
    return CheckedEmailProvider(found(settings), settings)


def sms_provider(settings: Settings) -> CheckedSmsProvider:
    return CheckedSmsProvider(_find("sms_provider", settings, entry_points.SMS_PROVIDERS)(settings), settings)


def _find(setting: str, settings: Settings, group: str) -> Callable[[Settings], Any]:
    """What builds the provider. Raises ConfigurationError if it is unknown or cannot be imported."""
    name, points = getattr(settings, setting), entry_points.installed(group)
    if name not in points:
        raise ConfigurationError(
            f"{variable_of(setting)}={name!r} is not a provider",
            hint=f"Known providers: {', '.join(sorted(points))}.",
        )
    found: Callable[[Settings], Any] = entry_points.load(points[name], "provider")
    return found
