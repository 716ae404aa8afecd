"""An outgoing event as a CloudEvent: structured (all in the body) or binary (attributes as headers)."""

import json
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from typing import Any

from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from holdfast._engine.events import ClaimedEvent


@dataclass(frozen=True)
class EncodedEvent:
    """What a sink sends. Header names are lower case."""

    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class OutgoingEvent:
    """One event. Only `attempt` differs between attempts to send it."""

    claimed: ClaimedEvent

    @property
    def id(self) -> str:
        return str(self.claimed.event_id)

    @property
    def type(self) -> str:
        return self.claimed.event_type

    @property
    def attempt(self) -> int:
        return self.claimed.attempt

    @property
    def aggregate_id(self) -> str | None:
        """None for an event without an aggregate."""
        return None if self.claimed.aggregate_id == self.id else self.claimed.aggregate_id

    @cached_property
    def attributes(self) -> dict[str, Any]:
        claimed = self.claimed
        given = {
            "specversion": "1.0",
            "id": self.id,
            "source": claimed.source,
            "type": claimed.event_type,
            "subject": claimed.subject,
            "time": claimed.occurred_at.astimezone(UTC),
            "datacontenttype": "application/json",
            "traceparent": claimed.traceparent,
            "partitionkey": self.aggregate_id,
            "namespace": claimed.namespace,
        }
        return {name: value for name, value in given.items() if value is not None}

    @cached_property
    def structured(self) -> EncodedEvent:
        """Attributes and data in one JSON document."""
        encoded = to_structured_event(CloudEvent(dict(self.attributes), json.loads(self.claimed.data_json)))
        return EncodedEvent(encoded.headers, encoded.body)

    @cached_property
    def binary(self) -> EncodedEvent:
        """The data as the body, exactly as the database stored it, and the attributes as headers."""
        encoded = to_binary_event(CloudEvent(dict(self.attributes), self.claimed.data_json.encode()))
        return EncodedEvent(encoded.headers, encoded.body)

    def encode(self, mode: str) -> EncodedEvent:
        return self.binary if mode == "binary" else self.structured
