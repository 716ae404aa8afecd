"""How a send goes on after a failure: how many attempts are made, and how far they are put off."""

from datetime import timedelta
from typing import Any

import pytest

from support.clock import Clock
from support.comms import Channel
from support.engine import Connection


def test_a_failure_is_followed_by_another_attempt(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send)

    assert channel.supervise(tx, send)["decision"] == "attempt"
    assert channel.counts(tx, send)["scheduled"] == 2


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_after_the_last_attempt_it_ends(tx: Connection, channel: Channel, max_attempts: int) -> None:
    send = channel.kick_off(tx, max_attempts=max_attempts)
    for _ in range(max_attempts):
        channel.supervise(tx, send)
        channel.fail(tx, send)

    told = channel.supervise(tx, send)

    assert (told["decision"], told["next_run_at"]) == ("failed", None)
    assert f"{max_attempts} of {max_attempts} attempts have failed" in told["reason"]
    assert "the provider is down" in told["reason"]


def test_ten_attempts_within_two_days_are_usual(tx: Connection, channel: Channel) -> None:
    status = channel.status(tx, channel.kick_off(tx))
    assert (status["max_attempts"], status["retry_for"]) == (10, timedelta(days=2))


def _delays(tx: Connection, channel: Channel, clock: Clock, **terms: Any) -> list[float]:
    """Fails every attempt at its time: how long after each failure the next attempt was due."""
    send = channel.kick_off(tx, **terms)
    found = []
    while channel.supervise(tx, send)["decision"] == "attempt":
        *_, attempt = channel.facts(tx, "scheduled", send)
        found.append((attempt["run_at"] - clock.now).total_seconds())
        clock.set(attempt["run_at"])
        channel.fail(tx, send)
    return found


def test_attempts_are_put_off_for_longer_and_longer_with_jitter(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    first, *delays = _delays(tx, channel, clock)

    assert first == 0
    for delay, least in zip(delays, [2, 4, 8, 16, 32, 64, 128, 256, 300], strict=True):
        assert least <= delay <= least * 1.5
    assert delays != [2, 4, 8, 16, 32, 64, 128, 256, 300]


def test_the_usual_terms_survive_a_provider_that_is_down_for_minutes(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    assert sum(_delays(tx, channel, clock)) > 600


def test_a_nudge_does_not_shorten_the_back_off(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send)
    (failure,) = channel.facts(tx, "failed", send)
    supervised = channel.tasks(tx, send, channel.supervisor)[-1]
    assert (supervised["status"], supervised["run_at"]) == ("pending", clock.now)

    assert channel.supervise(tx, send)["decision"] == "attempt"

    (attempt,) = (task for task in channel.tasks(tx, send, channel.sender) if task["status"] == "scheduled")
    assert attempt["run_at"] == failure["retry_at"] > clock.now


def test_a_failure_that_is_told_twice_keeps_its_jitter_and_nudges_once(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send, 1)
    (before,) = channel.facts(tx, "failed", send)
    channel.supervise(tx, send)
    waiting = channel.facts(tx, "supervised", send)[-1]

    channel.fail(tx, send, 1)

    assert channel.facts(tx, "failed", send) == [before]
    (task,) = (t for t in channel.tasks(tx, send) if t["task_id"] == waiting["next_task_id"])
    assert task["run_at"] == waiting["next_run_at"]


def test_no_attempt_is_made_after_the_retry_window(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = channel.kick_off(tx, retry_for="1 minute")
    channel.supervise(tx, send)
    channel.fail(tx, send, retry_after=59)
    assert channel.supervise(tx, send)["decision"] == "attempt"
    clock.advance(59)
    channel.fail(tx, send, retry_after=2)

    told = channel.supervise(tx, send)

    assert told["decision"] == "failed"
    assert "retry_for ends at" in told["reason"]
    assert "the provider is down" in told["reason"]


def test_the_retry_window_begins_with_the_first_failure(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx, retry_for="1 minute")
    channel.supervise(tx, send)
    clock.advance(3600)  # no worker was there
    channel.fail(tx, send)

    assert channel.supervise(tx, send)["decision"] == "attempt"


def test_a_permanent_failure_ends_it_at_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx, max_attempts=5)
    channel.supervise(tx, send)
    channel.fail(tx, send, permanent=True, message="no such mailbox")

    told = channel.supervise(tx, send)

    assert told["decision"] == "failed"
    assert "no such mailbox" in told["reason"]


def test_a_provider_that_asks_for_a_pause_gets_it(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send, kind="rate_limited", retry_after=90)

    assert channel.supervise(tx, send)["decision"] == "attempt"

    *_, attempt = channel.facts(tx, "scheduled", send)
    assert attempt["run_at"] == clock.after(90)
    assert channel.facts(tx, "supervised", send)[-1]["next_run_at"] == clock.after(100)


def test_a_pause_past_the_retry_window_ends_the_send(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send, retry_after=1e9)

    assert channel.facts(tx, "failed", send)[0]["retry_at"] == clock.after(31 * 86400)
    assert channel.supervise(tx, send)["decision"] == "failed"


@pytest.mark.parametrize("retry_after", ["soon", None, {"s": 1}, -5, 0.1])
def test_a_pause_that_is_no_number_or_shorter_leaves_the_back_off(
    tx: Connection, channel: Channel, clock: Clock, retry_after: Any
) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.fail(tx, send, retry_after=retry_after)

    assert clock.after(2) <= channel.facts(tx, "failed", send)[0]["retry_at"] <= clock.after(3)


def test_twenty_attempts_of_half_a_minute_each_are_made(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    """The supervisor looks several times while each of them runs."""
    send = channel.kick_off(tx, max_attempts=20)
    for attempt in range(1, 21):
        assert channel.supervise(tx, send)["decision"] == "attempt"
        ends_at = channel.facts(tx, "scheduled", send)[-1]["run_at"] + timedelta(seconds=30)
        while (looks_at := channel.facts(tx, "supervised", send)[-1]["next_run_at"]) < ends_at:
            clock.set(looks_at)
            assert channel.supervise(tx, send)["decision"] == "wait"
        clock.set(ends_at)
        channel.fail(tx, send, attempt)

    told = channel.supervise(tx, send)
    assert told["reason"].startswith("20 of 20 attempts have failed")
    assert channel.counts(tx, send)["supervised"] > 60
