"""Events parse with the public CloudEvents SDK, in both modes."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from holdfast._engine.events import ClaimedEvent
from holdfast._serialization.webhook_signature import attribute_headers, new_secret, signature_headers
from holdfast.errors import InvalidArgument, InvalidSignature
from holdfast.events import parse, verify
from holdfast.outbox.cloud_event import EncodedEvent, OutgoingEvent

EVENT_ID = UUID("01a1e214-96b1-734b-a098-65c0b72e36ae")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOON = datetime(2030, 1, 31, 13, 0, 0, 123456, timezone(timedelta(hours=1)))


def outgoing(data: str = '{"n": 1}', **more: Any) -> OutgoingEvent:
    given: dict[str, Any] = {
        "event_id": EVENT_ID,
        "token": 1,
        "attempt": 1,
        "namespace": "shop",
        "aggregate_id": "order 7",
        "event_type": "order.created",
        "source": "/holdfast/shop",
        "subject": 'Grüße, 100% "x"',
        "occurred_at": NOON,
        "traceparent": TRACE,
        "data_json": data,
    }
    return OutgoingEvent(ClaimedEvent(**(given | more)))


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_the_public_sdk_reads_all_attributes_and_the_data(mode: str) -> None:
    message = outgoing().encode(mode)

    event = from_http_event(HTTPMessage(message.headers, message.body))

    assert event.get_attributes() == {
        "specversion": "1.0",
        "id": str(EVENT_ID),
        "source": "/holdfast/shop",
        "type": "order.created",
        "subject": 'Grüße, 100% "x"',
        "time": NOON.astimezone(UTC),
        "datacontenttype": "application/json",
        "traceparent": TRACE,
        "partitionkey": "order 7",
        "namespace": "shop",
    }
    assert event.get_data() == {"n": 1}


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_what_does_not_apply_is_left_out(mode: str) -> None:
    message = outgoing(aggregate_id=str(EVENT_ID), subject=None, traceparent=None).encode(mode)

    event = from_http_event(HTTPMessage(message.headers, message.body))

    assert not event.get_attributes().keys() & {"subject", "traceparent", "partitionkey"}


@pytest.mark.parametrize("mode", ["structured", "binary"])
@pytest.mark.parametrize(
    "data", ["[1, 2]", '"text"', "7", "true", '{"ü": "\\ud83d\\ude00"}', "[]", "{}", '""']
)
def test_every_json_document_comes_through(mode: str, data: str) -> None:
    message = outgoing(data).encode(mode)

    assert from_http_event(HTTPMessage(message.headers, message.body)).get_data() == json.loads(data)


def test_in_binary_mode_the_body_is_what_the_database_wrote() -> None:
    assert outgoing('{"price": 1.10, "n": 12345678901234567890}').binary.body == (
        b'{"price": 1.10, "n": 12345678901234567890}'
    )


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_a_receiver_verifies_and_reads_an_event(mode: str) -> None:
    secret = new_secret()
    message = outgoing().encode(mode)
    headers = message.headers | _signed(str(EVENT_ID), message, secret)

    event = verify({name.title(): value for name, value in headers.items()}, message.body, secret)

    assert (event.id, event.source, event.type, event.subject) == (
        str(EVENT_ID),
        "/holdfast/shop",
        "order.created",
        'Grüße, 100% "x"',
    )
    assert (event.time, event.data, event.attributes["partitionkey"]) == (NOON, {"n": 1}, "order 7")


@pytest.mark.parametrize(
    ("name", "value"),
    [("ce-type", "order.paid"), ("ce-source", "/other"), ("ce-more", "x"), ("content-type", "text/plain")],
)
def test_a_captured_event_in_binary_mode_cannot_be_sent_with_other_attributes(name: str, value: str) -> None:
    secret = new_secret()
    message = outgoing().binary
    headers = message.headers | _signed(str(EVENT_ID), message, secret)

    with pytest.raises(InvalidSignature, match="matches"):
        verify(headers | {name: value}, message.body, secret)


def test_a_captured_event_in_structured_mode_cannot_be_sent_in_binary_mode() -> None:
    secret = new_secret()
    message = outgoing().structured
    signatures = _signed(str(EVENT_ID), message, secret)

    with pytest.raises(InvalidSignature, match="matches"):
        verify(outgoing(event_type="order.paid").binary.headers | signatures, message.body, secret)


def _signed(event_id: str, message: EncodedEvent, secret: str) -> dict[str, str]:
    attributes = attribute_headers(message.headers)
    return signature_headers(event_id, message.body, [secret], attributes=attributes)


def test_a_signature_of_another_event_is_refused() -> None:
    secret = new_secret()
    message = outgoing().binary
    headers = message.headers | _signed("another", message, secret)

    with pytest.raises(InvalidSignature, match="signed id"):
        verify(headers, message.body, secret)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"id": 1}', b'"x"', b'{"specversion": "9"}'])
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="not a CloudEvent"):
        parse({}, body)
