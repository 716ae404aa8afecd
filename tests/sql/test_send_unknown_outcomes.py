"""Attempts whose outcome is unknown: when a send may repeat them, and when it has to stop."""

from typing import Any

import pytest

from support.clock import Clock
from support.comms import Channel, run
from support.engine import Connection


@pytest.mark.parametrize(("when_unknown", "decision"), [("retry", "attempt"), ("stop", "failed")])
def test_what_follows_an_unknown_outcome_is_the_sends_own_policy(
    tx: Connection, channel: Channel, when_unknown: str, decision: str
) -> None:
    send = channel.kick_off(tx, when_unknown=when_unknown)
    channel.supervise(tx, send)
    channel.fail(tx, send, kind="outcome_unknown", outcome_unknown=True)

    assert channel.supervise(tx, send)["decision"] == decision


UNKNOWN: dict[str, Any] = {"kind": "outcome_unknown", "outcome_unknown": True, "provider": "resend"}


def test_while_the_provider_recognises_the_key_another_attempt_is_harmless(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx, when_unknown="stop")
    channel.supervise(tx, send)
    clock.advance(10)
    channel.fail(tx, send, **UNKNOWN, key_seconds=3600)

    (failure,) = channel.facts(tx, "failed", send)
    assert (failure["outcome_unknown"], failure["repeatable_until"]) == (True, clock.after(3590))
    assert channel.supervise(tx, send)["decision"] == "attempt"
    told = run(tx, channel.handler("before"), {f"{channel.root}_id": send, "attempt": 2})
    assert told["payload"]["only_provider"] == "resend"


def test_an_attempt_that_would_come_after_the_key_is_forgotten_is_not_made_with_stop(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx, when_unknown="stop")
    channel.supervise(tx, send)
    channel.fail(tx, send, **UNKNOWN, key_seconds=82080, retry_after=90000)

    told = channel.supervise(tx, send)

    assert (told["decision"], channel.counts(tx, send)["scheduled"]) == ("failed", 1)
    assert "could deliver it twice" in told["reason"]
    assert channel.status(tx, send)["outcome_unknown"] is True


def test_an_attempt_that_waits_in_the_queue_until_the_key_is_forgotten_is_not_made_with_stop(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx, when_unknown="stop")
    channel.supervise(tx, send)
    channel.fail(tx, send, **UNKNOWN, key_seconds=3600)
    assert channel.supervise(tx, send)["decision"] == "attempt"
    clock.advance(3601)

    told = run(tx, channel.handler("before"), {f"{channel.root}_id": send, "attempt": 2})

    assert "may have been delivered" in told["validation_failure_message"]


def test_an_unknown_outcome_before_the_last_failure_still_counts_with_stop(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx, when_unknown="stop")
    channel.supervise(tx, send)
    channel.fail(tx, send, **UNKNOWN, key_seconds=3600)
    channel.supervise(tx, send)
    channel.fail(tx, send, kind="unreachable", retry_after=7200)

    assert channel.supervise(tx, send)["decision"] == "failed"
