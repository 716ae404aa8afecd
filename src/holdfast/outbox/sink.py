"""Where events go: what a sink is, and how one is found by its name.

A package adds a sink by an entry point of the group `holdfast.sinks`: a callable that takes a `Place` and
gives a `Sink`. It runs in the event loop of the dispatcher.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.engine.events import Subscription
from holdfast.errors import ConfigurationError
from holdfast.outbox.cloud_event import OutgoingEvent
from holdfast.outbox.destinations import Allowed
from holdfast.outbox.failure import Rejected, Undelivered
from holdfast.settings import Settings

__all__ = ["Allowed", "Options", "OutgoingEvent", "Place", "Rejected", "Sink", "Undelivered", "build_sink"]

GROUP = "holdfast.sinks"
REFERENCE = "env:"
VARIABLES = "HOLDFAST_SINK_"
BUILT_IN = {
    "http": ("http_sink", "HttpSink"),
    "nats": ("nats_sink", "NatsSink"),
    "amqp": ("amqp_sink", "AmqpSink"),
    "file": ("file_sink", "FileSink"),
    "console": ("console_sink", "ConsoleSink"),
}


class Sink(Protocol):
    """One receiver. `send` returns when the receiver has taken responsibility for the event."""

    concurrency: int
    """How many events of different aggregates may be on their way at once."""
    timeout: float
    """How many seconds one of them may take. It is cancelled then."""

    async def send(self, event: OutgoingEvent, /) -> None:
        """Raise Undelivered or Rejected; any other exception counts as undelivered, too."""

    async def close(self) -> None: ...


class Options(BaseModel):
    """What a sink may be told. Derived classes add their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sink: ClassVar[str]


@dataclass(frozen=True)
class Place:
    """What a sink is built from: the subscription, with all references looked up.

    Whoever may subscribe decides on everything but `directory` and `allowed`, which the administrator of the
    dispatcher sets, and a target that is a reference.
    """

    name: str
    target: str
    options: Mapping[str, Any]
    directory: Path
    allowed: Allowed = field(default_factory=Allowed)
    is_reference: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)


def find_place(subscription: Subscription, settings: Settings) -> Place:
    return Place(
        name=subscription.name,
        target=looked_up(subscription.target),
        options=subscription.options,
        directory=settings.outbox_files,
        allowed=Allowed(settings.outbox_allow),
        is_reference=subscription.target.startswith(REFERENCE),
        secrets=tuple(map(looked_up, subscription.secrets)),
    )


def known_sinks() -> list[str]:
    """What a subscription may name here."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def build_sink(sink: str, place: Place) -> Sink:
    """Raise ConfigurationError if it is unknown, misses a package, or cannot use its options."""
    build = partial(_built_in, sink) if sink in BUILT_IN else _installed(sink)
    try:
        built: Sink = build(place)
    except ValidationError as error:
        raise ConfigurationError(f"the options cannot be used: {_explain(error)}") from None
    return built


def looked_up(value: str) -> str:
    """`env:HOLDFAST_SINK_NAME` stands for a variable of this process. No other variable can be named."""
    if not value.startswith(REFERENCE):
        return value
    name = value.removeprefix(REFERENCE)
    if not name.startswith(VARIABLES):
        raise ConfigurationError(f"{name} cannot be used: only variables that begin with {VARIABLES} can")
    found = os.environ.get(name)
    if not found:
        raise ConfigurationError(f"the environment of the dispatcher has no {name}", hint="Set it there.")
    return found


def _built_in(sink: str, place: Place) -> Sink:
    module, name = BUILT_IN[sink]
    try:
        found = import_module(f"holdfast.outbox.sinks.{module}")
    except ModuleNotFoundError as error:
        extra = sink if sink in {"nats", "amqp"} else "events"
        raise ConfigurationError(
            f"the sink {sink} needs the package {error.name}", hint=f"pip install 'holdfast[{extra}]'"
        ) from None
    built: Sink = getattr(found, name)(place)
    return built


def _installed(sink: str) -> Any:
    """By its entry point, so that a name in the database can only mean what was installed here."""
    for point in entry_points(group=GROUP):
        if point.name == sink:
            return point.load()
    raise ConfigurationError(
        f"there is no sink {sink!r}", hint=f"Known here are: {', '.join(known_sinks())}."
    )


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])
