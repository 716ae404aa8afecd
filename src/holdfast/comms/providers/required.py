"""What a provider cannot do without."""

from typing import Any

from holdfast.comms.provider import SendFailed
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings, variable_of


def required(settings: Settings, name: str, provider: str) -> Any:
    value = getattr(settings, name)
    if value is None:
        raise ConfigurationError(f"{variable_of(name)} is not set", hint=f"The provider {provider} needs it.")
    return value


def required_sender(given: str | None, setting: str) -> str:
    if given is None:
        raise SendFailed(
            "rejected", f"the message has no sender, and {variable_of(setting)} is not set", permanent=True
        )
    return given
