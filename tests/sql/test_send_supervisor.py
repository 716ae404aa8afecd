"""The supervisors of a send: they read the facts, decide, write, and run again until there is an end."""

from datetime import timedelta

from support.clock import Clock
from support.comms import Channel, waiting_runs
from support.engine import Connection, act, claim, claim_one, end, rows, value


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
    again = waiting_runs(tx, channel, send)[-1]
    assert again["run_at"] == clock.after(10)
    (decision,) = channel.facts(tx, "supervised", send)
    assert (decision["next_task_id"], decision["next_run_at"]) == (again["task_id"], again["run_at"])


def test_while_an_attempt_is_outstanding_no_other_is_scheduled(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)

    decisions = [channel.supervise(tx, send)["decision"] for _ in range(5)]

    assert decisions == ["attempt", "wait", "wait", "wait", "wait"]
    assert channel.counts(tx, send)["scheduled"] == 1


def test_after_a_success_it_ends_and_nothing_more_is_enqueued(tx: Connection, channel: Channel) -> None:
    send = channel.kick_off(tx)
    channel.supervise(tx, send)
    channel.succeed(tx, send)
    before = len(channel.tasks(tx, send))

    assert channel.supervise(tx, send)["decision"] == "succeeded"
    assert channel.supervise(tx, send)["decision"] == "none"
    assert len(channel.tasks(tx, send)) == before
    assert channel.status(tx, send)["status"] == "succeeded"


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
