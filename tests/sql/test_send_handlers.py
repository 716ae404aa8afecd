"""The handlers of a send: what the provider gets, which attempts are refused, and what a report starts."""

from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.comms import Channel, run, waiting_runs
from support.engine import Connection, events


def test_what_was_given_up_is_not_sent_any_more(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    for _ in range(32):
        channel.supervise(tx, send)

    told = run(tx, channel.handler("before"), {f"{channel.root}_id": send, "attempt": 1})

    assert "has ended" in told["validation_failure_message"]


@pytest.mark.parametrize("given", [10**15, "x", None, -1, "1; drop table comms.message", {"a": 1}])
def test_a_send_that_does_not_exist_is_a_validation_failure(
    tx: Connection, channel: Channel, given: Any
) -> None:
    for function in (channel.supervisor, channel.handler("before")):
        told = run(tx, function, {f"{channel.root}_id": given})
        assert told["success"] is False
        assert f"there is no {channel.root}" in told["validation_failure_message"]
    for function in (channel.handler("success"), channel.handler("error")):
        told = run(tx, function, {"original_payload": {f"{channel.root}_id": given}})
        assert told["success"] is False
        assert "there is no attempt" in told["validation_failure_message"]


@pytest.mark.parametrize("payload", [None, [], 7, "text", {}])
def test_a_payload_of_any_shape_is_answered_with_an_envelope(
    tx: Connection, channel: Channel, payload: Any
) -> None:
    for function in (channel.supervisor, *map(channel.handler, ("before", "success", "error"))):
        assert run(tx, function, payload)["validation_failure_message"]


@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_a_handler_makes_the_waiting_supervisor_run_at_once(
    tx: Connection, channel: Channel, clock: Clock, how: str
) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    waiting = channel.facts(tx, "supervised", send)[-1]["next_task_id"]
    clock.advance(1)

    getattr(channel, how)(tx, send)

    (again,) = (task for task in waiting_runs(tx, channel, send) if task["task_id"] == waiting)
    assert (again["status"], again["run_at"]) == ("pending", clock.now)
    moved = [event for event in events(tx, waiting) if event["event_type"] == "rescheduled"]
    assert [event["reason"] for event in moved] == ["nudged"]


def test_a_handler_that_comes_after_the_end_nudges_nobody(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    for _ in range(32):
        channel.supervise(tx, send)

    assert channel.succeed(tx, send) == {"success": True}
    assert channel.status(tx, send)["status"] == "succeeded"


def test_what_the_provider_gets_is_the_message_and_the_same_key_for_every_attempt(
    tx: Connection, channel: Channel
) -> None:
    send = channel.kick_off(tx)
    asked = {f"{channel.root}_id": send, "attempt": 1}
    channel.supervise(tx, send)

    first = run(tx, channel.handler("before"), asked)
    channel.fail(tx, send)
    channel.supervise(tx, send)
    second = run(tx, channel.handler("before"), {**asked, "attempt": 2})

    assert first == second
    assert first["success"] is True
    message = first["payload"]
    UUID(message.pop("idempotency_key"))
    expected = {"to": "+4915112345678", "text": "Your code is 123456", "sender": None}
    if channel.name == "email":
        expected |= {"to": "ada@example.org", "subject": "Your code", "html": None, "reply_to": None}
        assert message.pop("headers") == {}
    assert message == expected


def test_two_sends_of_one_message_have_different_keys(tx: Connection, channel: Channel) -> None:
    message_id = channel.create(tx)
    sends = [channel.kick_off(tx, message_id=message_id) for _ in range(2)]
    for send in sends:
        channel.supervise(tx, send)

    keys = {
        run(tx, channel.handler("before"), {f"{channel.root}_id": send})["payload"]["idempotency_key"]
        for send in sends
    }

    assert len(keys) == 2


def test_what_was_sent_is_not_sent_again(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.succeed(tx, send)

    told = run(tx, channel.handler("before"), {f"{channel.root}_id": send, "attempt": 1})

    assert told["success"] is False
    assert "has ended" in told["validation_failure_message"]


def test_an_attempt_that_has_failed_or_never_was_is_not_sent(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    asked = {f"{channel.root}_id": send, "attempt": 1}

    assert "was never scheduled" in run(tx, channel.handler("before"), asked)["validation_failure_message"]
    channel.supervise(tx, send)
    channel.fail(tx, send)
    assert "has failed already" in run(tx, channel.handler("before"), asked)["validation_failure_message"]
