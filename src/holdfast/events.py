"""Receiving events: verify the signature of an event, and process it once.

event = verify(request.headers, await request.body(), SECRET)
async with connection.transaction():
    if await areceive(event, tx=connection):
        await charge.using(tx=connection).aenqueue(order_id=event.data["order"])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast._connections.transaction import arun_in, run_in
from holdfast._engine import events as statements
from holdfast._serialization.webhook_signature import TOLERANCE_SECONDS, attribute_headers, check_signature
from holdfast.errors import ConfigurationError, InvalidArgument, InvalidSignature

__all__ = ["ReceivedEvent", "areceive", "parse", "receive", "verify"]


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """A CloudEvent that was received. `attributes` has all attributes, including extensions."""

    id: str
    source: str
    type: str
    subject: str | None
    time: datetime | None
    data: Any
    attributes: Mapping[str, Any]


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE_SECONDS,
) -> ReceivedEvent:
    """The event of a signed request, or InvalidSignature. One of several secrets must match.

    In binary mode the attributes are headers; only a signature that covers them is accepted.
    """
    attributes = attribute_headers(headers)
    message_id = check_signature(headers, body, secret, attributes=attributes, tolerance=tolerance)
    event = parse(headers, body)
    if event.id != message_id:
        raise InvalidSignature("the signed id is not that of the event")
    return event


def parse(headers: Mapping[str, str], body: bytes) -> ReceivedEvent:
    """The event of a request in either mode, without verification."""
    try:
        from cloudevents.core.bindings.http import HTTPMessage, from_http_event  # noqa: PLC0415 - an extra
        from cloudevents.core.exceptions import BaseCloudEventException  # noqa: PLC0415 - as above
    except ModuleNotFoundError:
        raise ConfigurationError(
            "reading CloudEvents needs the package cloudevents", hint="pip install 'holdfast-pg[events]'"
        ) from None
    lowered = {name.lower(): value for name, value in headers.items()}
    try:
        event = from_http_event(HTTPMessage(lowered, body))
    except (BaseCloudEventException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"the request is not a CloudEvent: {type(error).__name__}") from None
    return ReceivedEvent(
        id=event.get_id(),
        source=event.get_source(),
        type=event.get_type(),
        subject=event.get_subject(),
        time=event.get_time(),
        data=event.get_data(),
        attributes=dict(event.get_attributes()),
    )


def receive(event: ReceivedEvent, *, tx: Any) -> bool:
    """Whether the event is new, as far as this transaction and those before it know. Ask before acting."""
    return run_in(tx, statements.receive(event.id, event.source), "receive")


async def areceive(event: ReceivedEvent, *, tx: Any) -> bool:
    return await arun_in(tx, statements.receive(event.id, event.source), "receive")
