"""What a sink is, and how the sink of a subscription is built.

A package adds a sink with an entry point of the group `holdfast.sinks`: a callable that takes a `SinkConfig`
and returns a `Sink`. The sink runs in the dispatcher's event loop.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast._engine.events import Subscription
from holdfast._install import entry_points
from holdfast.errors import ConfigurationError
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.settings import Settings

__all__ = ["OutgoingEvent", "Rejected", "Sink", "SinkConfig", "SinkOptions", "Undelivered", "build_sink"]

REFERENCE = "env:"
VARIABLES = "HOLDFAST_SINK_"


class Undelivered(Exception):
    """The receiver did not accept the event. It is sent again, after `delay` seconds if given."""

    def __init__(self, message: str, *, delay: float | None = None) -> None:
        super().__init__(message)
        self.delay = delay


class Rejected(Exception):
    """The event can never be delivered. It becomes dead without further attempts."""


class Sink(Protocol):
    """One receiver. `send` returns when the receiver has taken responsibility for the event."""

    concurrency: int
    """How many events of different aggregates may be sent at the same time."""
    timeout: float
    """How many seconds one send may take before it is cancelled."""

    async def send(self, event: OutgoingEvent, /) -> None:
        """Raise Undelivered or Rejected. Any other exception counts as Undelivered."""

    async def close(self) -> None: ...


class SinkOptions(BaseModel):
    """The options of a sink. Subclasses add their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sink: ClassVar[str]


@dataclass(frozen=True)
class SinkConfig:
    """What a sink is built from: the subscription, with all references to variables resolved.

    A subscriber controls everything except `directory`, `allowed` and a target that is a reference: the
    administrator of the dispatcher sets those.
    """

    name: str
    target: str
    options: Mapping[str, Any]
    directory: Path
    allowed: tuple[str, ...] = ()
    """Internal hosts and networks that the sink may connect to."""
    is_reference: bool = False
    """The target comes from a variable of the dispatcher."""
    secrets: tuple[str, ...] = field(default=(), repr=False)


def sink_config(subscription: Subscription, settings: Settings) -> SinkConfig:
    return SinkConfig(
        name=subscription.name,
        target=resolve_reference(subscription.target),
        options=subscription.options,
        directory=settings.outbox_files,
        allowed=tuple(settings.outbox_allow),
        is_reference=subscription.target.startswith(REFERENCE),
        secrets=tuple(map(resolve_reference, subscription.secrets)),
    )


def known_sinks() -> list[str]:
    """The sinks that a subscription may name on this dispatcher."""
    return sorted(entry_points.installed(entry_points.SINKS))


def build_sink(sink: str, config: SinkConfig) -> Sink:
    """Raise ConfigurationError if the sink is unknown, lacks a package or has invalid options.

    Only entry points are imported: a name in the database can never import anything else.
    """
    points = entry_points.installed(entry_points.SINKS)
    if sink not in points:
        raise ConfigurationError(
            f"there is no sink {sink!r}", hint=f"Known sinks: {', '.join(sorted(points))}."
        )
    try:
        built: Sink = entry_points.load(points[sink], "sink")(config)
    except ValidationError as error:
        raise ConfigurationError(f"invalid sink options: {_first_error(error)}") from None
    return built


def resolve_reference(value: str) -> str:
    """Replace `env:HOLDFAST_SINK_NAME` by that environment variable. Other variables cannot be read."""
    if not value.startswith(REFERENCE):
        return value
    name = value.removeprefix(REFERENCE)
    if not name.startswith(VARIABLES):
        raise ConfigurationError(f"{name} cannot be used: only variables that begin with {VARIABLES} can")
    found = os.environ.get(name)
    if not found:
        raise ConfigurationError(
            f"{name} is not set in the environment of the dispatcher", hint="Set it there."
        )
    return found


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])
