"""The supervisors of a send: they read the facts, decide, write, and run again until there is an end."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from support.clock import Clock
from support.comms import Channel, run
from support.engine import Connection, act, claim, claim_one, end, events, rows, value


def _waiting(tx: Connection, channel: Channel, send: int) -> list[Any]:
    return [
        task
        for task in channel.tasks(tx, send, channel.supervisor)
        if task["status"] in ("pending", "scheduled")
    ]


def test_a_kickoff_writes_the_root_and_enqueues_the_supervisor(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx)

    (task,) = channel.tasks(tx, send)
    assert task["payload"] == {
        "task_type": "db_function",
        "db_function": channel.supervisor,
        f"{channel.root}_id": send,
    }
    assert (task["executor"], task["queue"], task["run_at"]) == ("db_function", "comms", clock.now)
    assert channel.counts(tx, send) == {"scheduled": 0, "failed": 0, "succeeded": 0, "supervised": 0}


def test_the_first_run_schedules_one_attempt_and_the_next_run(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx)

    assert channel.supervise(tx, send)["decision"] == "attempt"

    (attempt,) = channel.facts(tx, "scheduled", send)
    (task,) = channel.tasks(tx, send, channel.sender)
    assert (attempt["task_id"], attempt["attempt"]) == (task["task_id"], 1)
    assert task["payload"] == {
        "task_type": channel.name,
        f"{channel.root}_id": send,
        "attempt": 1,
        "before_handler": channel.handler("before"),
        "success_handler": channel.handler("success"),
        "error_handler": channel.handler("error"),
    }
    assert (task["executor"], task["run_at"]) == (channel.name, clock.now)
    again = _waiting(tx, channel, send)[-1]
    assert again["run_at"] == clock.after(10)
    (decision,) = channel.facts(tx, "supervised", send)
    assert (decision["next_task_id"], decision["next_run_at"]) == (again["task_id"], again["run_at"])


def test_while_an_attempt_is_outstanding_no_other_is_scheduled(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)

    decisions = [channel.supervise(tx, send)["decision"] for _ in range(5)]

    assert decisions == ["attempt", "wait", "wait", "wait", "wait"]
    assert channel.counts(tx, send)["scheduled"] == 1


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


def test_after_a_success_it_ends_and_nothing_more_is_enqueued(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.succeed(tx, send)
    before = len(channel.tasks(tx, send))

    assert channel.supervise(tx, send)["decision"] == "succeeded"
    assert channel.supervise(tx, send)["decision"] == "none"
    assert len(channel.tasks(tx, send)) == before
    assert channel.status(tx, send)["status"] == "succeeded"


def test_a_permanent_failure_ends_it_at_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx, max_attempts=5)
    channel.supervise(tx, send)
    channel.fail(tx, send, permanent=True, message="no such mailbox")

    told = channel.supervise(tx, send)

    assert told["decision"] == "failed"
    assert "no such mailbox" in told["reason"]


@pytest.mark.parametrize(("when_unknown", "decision"), [("retry", "attempt"), ("stop", "failed")])
def test_what_follows_an_unknown_outcome_is_the_sends_own_policy(
    tx: Connection, channel: Channel, when_unknown: str, decision: str
) -> None:
    send = channel.kick_off(tx, when_unknown=when_unknown)
    channel.supervise(tx, send)
    channel.fail(tx, send, kind="outcome_unknown", outcome_unknown=True)

    assert channel.supervise(tx, send)["decision"] == decision


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


def test_for_tomorrow_the_supervisor_is_enqueued_for_tomorrow(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    tomorrow = clock.after(86400)
    send = channel.kick_off(tx, scheduled_at=tomorrow)

    (task,) = channel.tasks(tx, send)
    assert (task["status"], task["run_at"]) == ("scheduled", tomorrow)
    assert channel.status(tx, send)["status"] == "scheduled"


def test_a_supervisor_that_is_run_too_early_sleeps_until_the_time_of_the_send(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx, scheduled_at=clock.after(86400))

    told = channel.supervise(tx, send)

    assert told["decision"] == "sleep"
    assert channel.facts(tx, "supervised", send)[0]["next_run_at"] == clock.after(86400)
    assert channel.counts(tx, send)["scheduled"] == 0


def test_it_looks_at_half_of_what_remains_and_then_less_and_less_often(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx)
    waits = []
    for _ in range(12):
        channel.supervise(tx, send)
        next_run_at = channel.facts(tx, "supervised", send)[-1]["next_run_at"]
        waits.append((next_run_at - clock.now).total_seconds())
        clock.set(next_run_at)

    assert waits == [10, 5, 5, 5, 5, 5, 7.5, 11.25, 16.875, 25.3125, 37.96875, 56.953125]


def test_after_thirty_waits_for_one_attempt_it_gives_up(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)

    decisions = [channel.supervise(tx, send)["decision"] for _ in range(33)]

    assert decisions == ["attempt", *["wait"] * 30, "gave_up", "none"]
    assert channel.status(tx, send)["status"] == "gave_up"


def test_what_was_given_up_is_not_sent_any_more(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    for _ in range(32):
        channel.supervise(tx, send)

    told = run(tx, channel.handler("before"), {f"{channel.root}_id": send, "attempt": 1})

    assert "has ended" in told["validation_failure_message"]


def test_a_run_whose_place_was_taken_does_nothing(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.supervise(tx, send)  # by hand, without a number: it takes the place of the second run
    before = len(channel.tasks(tx, send))

    assert channel.supervise(tx, send, run=2)["decision"] == "none"
    assert len(channel.tasks(tx, send)) == before
    assert channel.supervise(tx, send, run=3)["decision"] == "wait"


def test_each_run_enqueues_the_next_one_once(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    for n in range(1, 6):
        channel.supervise(tx, send)
        assert len(channel.tasks(tx, send, channel.supervisor)) == n + 1


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

    (again,) = (task for task in _waiting(tx, channel, send) if task["task_id"] == waiting)
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


def test_a_rolled_back_kickoff_never_was(tx: Connection, channel: Channel) -> None:
    before = value(tx, "select count(*) from queues.task")
    with tx.transaction(force_rollback=True):
        channel.kick_off(tx)

    assert value(tx, "select count(*) from queues.task") == before
    assert rows(tx, f"select from comms.{channel.root}") == []


def test_an_hour_of_waiting_is_an_hour(tx: Connection, channel: Channel, clock: Clock) -> None:
    send = channel.kick_off(tx, scheduled_at=clock.after(3600))
    assert claim(tx, queues=["comms"]) == []
    clock.set(clock.now + timedelta(hours=1))

    task = claim_one(tx, queues=["comms"])

    assert task["payload"][f"{channel.root}_id"] == send
    channel.supervise(tx, send)
    assert end(tx, task) == "accepted"


def test_an_operator_may_run_a_waiting_supervisor_earlier(
    tx: Connection, channel: Channel, clock: Clock
) -> None:
    send = channel.kick_off(tx, scheduled_at=clock.after(3600))
    (task,) = channel.tasks(tx, send)

    assert act(tx, "reschedule", task["task_id"], run_at=clock.now) == "pending"
    assert channel.supervise(tx, send)["decision"] == "sleep"
