"""queues.subscribe and what operators do to subscriptions."""

import json
from typing import Any

import pytest

from support.clock import Clock
from support.database import Database
from support.engine import Connection, answer, call, refused, rows, value
from support.outbox import claim_events, deliveries, emit, ids, outbox_status, settle, subscribe

SECRET = "whsec_" + "A" * 32


def _attend(conn: Connection) -> list[dict[str, Any]]:
    return call(conn, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1"})


def test_asking_twice_for_the_same_changes_nothing(tx: Connection) -> None:
    first = subscribe(tx, "a", "order.*", secrets=[SECRET])

    assert subscribe(tx, "a", "order.*") == first
    (row,) = _attend(tx)
    assert row["secrets"] == [SECRET]


def test_one_name_does_not_stand_for_two_things(tx: Connection) -> None:
    subscribe(tx, "a", "order.*")

    with refused(tx, "QF409", "already exists with other settings"):
        subscribe(tx, "a", "order.*", target="elsewhere")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"name": ""}, "name must not be empty"),
        ({"sink": "no good"}, "malformed"),
        ({"event_types": []}, "at least one pattern"),
        ({"event_types": None}, "at least one pattern"),
        ({"event_types": ["order."]}, "malformed"),
        ({"event_types": ["or*der"]}, "malformed"),
        ({"event_types": [None]}, "must not be empty"),
        ({"event_types": ["task.created"]}, "there are no events of type"),
        ({"event_types": ["order.*.paid"]}, "malformed"),
        ({"type_prefixes": [""]}, "no nulls or empty texts"),
        ({"target": ""}, "target"),
        ({"target": "http://a b"}, "white space"),
        ({"options": []}, "options must be an object"),
        ({"secrets": ["password"]}, "neither whsec_"),
        ({"secrets": [None]}, "neither whsec_"),
        ({"secrets": [SECRET] * 6}, "at most five"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"sink": "kafka"}, 'no dispatcher has a sink "kafka"'),
        ({"options": {"fsync": "never"}}, "options.fsync is not an option of the sink console"),
        ({"sink": "http"}, "target is not valid for the sink http"),
        ({"sink": "nats", "target": "wss://nats.example"}, "target"),
        ({"sink": "amqp", "target": "http://rabbit.example"}, "target"),
        ({"sink": "file", "target": "bin/deploy.sh"}, "target"),
        ({"sink": "file", "target": "../orders.jsonl"}, "target"),
        ({"sink": "http", "target": "https://a.example", "options": {"timeout": "9"}}, "not a number"),
        ({"sink": "http", "target": "https://a.example", "options": {"bogus": 1}}, "options.bogus"),
        ({"sink": "http", "target": "env:DATABASE_URL"}, '"env:DATABASE_URL" cannot be used'),
        (
            {"sink": "http", "target": "https://a.example", "options": {"headers": {"x": "env:PATH"}}},
            '"env:PATH" cannot be used',
        ),
        ({"options": {"anything": "env:PATH"}}, '"env:PATH" cannot be used'),
        ({"secrets": ["env:HOLDFAST_WEB_SECRET"]}, "nor env:HOLDFAST_SINK_NAME"),
    ],
)
def test_what_cannot_be_meant_is_refused(tx: Connection, arguments: dict[str, Any], part: str) -> None:
    given = {"name": "a", "sink": "console", "target": "-", "event_types": ["*"]} | arguments
    with refused(tx, "QF400", part):
        subscribe(tx, **given) if "event_types" not in arguments else _call(tx, given)


def _call(tx: Connection, given: dict[str, Any]) -> None:
    call(tx, "queues.subscribe", given)


def test_a_refusal_does_not_repeat_a_secret(tx: Connection) -> None:
    with pytest.raises(Exception, match="secret is neither") as caught, tx.transaction():
        subscribe(tx, "a", secrets=["hunter2-hunter2"])
    assert "hunter2" not in str(caught.value)


def test_prefixes_let_through_only_events_about_such_tasks(tx: Connection) -> None:
    subscribe(tx, "billing", "*", type_prefixes=["billing."])

    event_id = emit(tx, "billing.closed")

    assert deliveries(tx, event_id) == {}


def test_a_paused_subscription_gathers_its_events_until_it_is_resumed(tx: Connection) -> None:
    subscription = subscribe(tx)
    assert answer(tx, "queues.pause_subscription", {"name": "all", "reason": "moving"}) is True
    assert answer(tx, "queues.pause_subscription", {"name": "all"}) is False

    event_id = emit(tx)
    assert claim_events(tx, subscription) == []
    assert (outbox_status(tx)["pause_reason"], outbox_status(tx)["pending"]) == ("moving", 1)
    assert [row["outstanding"] for row in _attend(tx)] == [False]

    assert answer(tx, "queues.resume_subscription", {"name": "all"}) is True
    assert answer(tx, "queues.resume_subscription", {"name": "all"}) is False
    assert ids(claim_events(tx, subscription)) == [event_id]


def test_what_was_on_its_way_when_it_was_paused_may_arrive(tx: Connection) -> None:
    subscription = subscribe(tx)
    emit(tx)
    held = claim_events(tx, subscription)

    call(tx, "queues.pause_subscription", {"name": "all"})

    assert settle(tx, subscription, held) == ["accepted"]


def test_a_removed_subscription_gets_nothing_more_and_frees_its_name(tx: Connection) -> None:
    subscription = subscribe(tx, secrets=[SECRET])
    emit(tx)
    call(tx, "queues.unsubscribe", {"name": "all"})

    assert (claim_events(tx, subscription), _attend(tx)) == ([], [])
    with refused(tx, "QF404", 'there is no subscription "all"'):
        call(tx, "queues.unsubscribe", {"name": "all"})
    assert value(tx, "select secrets from queues.subscription where name = 'all'") == []

    again = subscribe(tx)
    event_id = emit(tx)
    assert again != subscription
    assert deliveries(tx, event_id) == {"all": "waiting"}


@pytest.mark.parametrize(
    "function",
    ["unsubscribe", "pause_subscription", "resume_subscription", "test_subscription", "redrive_events"],
)
def test_what_does_not_exist_is_not_found(tx: Connection, function: str) -> None:
    for name in ("nobody", None):
        with refused(tx, "QF404", "there is no subscription"):
            call(tx, f"queues.{function}", {"name": name})


def test_a_new_secret_goes_first_and_some_of_the_old_stay(tx: Connection) -> None:
    subscribe(tx, secrets=[SECRET])
    rotate = "queues.rotate_secret"
    new, newer = "whsec_" + "B" * 32, "env:HOLDFAST_SINK_SHOP"

    assert answer(tx, rotate, {"name": "all", "secret": new}) == 2
    assert _attend(tx)[0]["secrets"] == [new, SECRET]
    assert answer(tx, rotate, {"name": "all", "secret": newer}) == 2
    assert _attend(tx)[0]["secrets"] == [newer, new]
    assert answer(tx, rotate, {"name": "all", "secret": newer, "keep": 0}) == 1
    with refused(tx, "QF400", "neither whsec_"):
        call(tx, rotate, {"name": "all", "secret": "weak"})
    with refused(tx, "QF400", "keep"):
        call(tx, rotate, {"name": "all", "secret": new, "keep": 5})


def test_a_test_event_goes_to_the_one_subscription_that_is_tested(tx: Connection) -> None:
    subscribe(tx, "all")
    subscription = subscribe(tx, "orders", "order.*")

    event_id = answer(tx, "queues.test_subscription", {"name": "orders"})

    assert deliveries(tx, event_id) == {"orders": "waiting"}
    (event,) = claim_events(tx, subscription)
    assert (event["event_type"], event["data"]) == ("subscription.test", {"subscription": "orders"})


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("https://hook.example/path", "https://hook.example/path"),
        ("https://hook.example/path?token=s3cret", "https://hook.example/path?***"),
        ("amqp://guest:s3cret@host/vhost", "amqp://guest:***@host/vhost"),
        ("nats://:s3cret@host", "nats://:***@host"),
        ("amqp://guest:s3@cret@host", "amqp://guest:***@host"),
        ("env:HOLDFAST_SINK_RABBIT", "env:HOLDFAST_SINK_RABBIT"),
        ("nats://s3cret-token@nats.example:4222", "nats://***@nats.example:4222"),
    ],
)
def test_who_looks_sees_no_password(tx: Connection, target: str, shown: str) -> None:
    subscribe(tx, target=target)

    assert outbox_status(tx)["target"] == shown


def test_secrets_are_told_to_dispatchers_and_to_nobody_else(db: Database) -> None:
    subscribe(db.connect("holdfast_operator"), secrets=[SECRET])

    assert _attend(db.connect("holdfast_dispatcher"))[0]["secrets"] == [SECRET]
    reader = db.connect("holdfast_operator")
    assert SECRET not in str(call(reader, "queues.tail_events", {}))
    assert outbox_status(reader)["secrets"] == 1
    assert SECRET not in str(outbox_status(reader))


def test_readers_see_the_names_of_headers_and_not_their_values(db: Database) -> None:
    headers = {"authorization": "Bearer s3cret", "x-token": "env:HOLDFAST_SINK_TOKEN"}
    given = {"mode": "binary", "headers": headers}
    operator = db.connect("holdfast_operator")
    subscribe(operator, sink="http", target="https://shop.example/", options=given)
    shown = {"mode": "binary", "headers": headers | {"authorization": "***"}}
    for role in ("holdfast_reader", "holdfast_operator"):
        assert outbox_status(db.connect(role))["options"] == shown
    assert _attend(db.connect("holdfast_dispatcher"))[0]["options"] == given


def test_a_sink_of_a_package_can_be_asked_for_once_a_dispatcher_has_it(tx: Connection) -> None:
    attending = {"dispatcher_id": "d1", "sinks": ["console", "pigeon"]}
    call(tx, "queues.dispatcher_heartbeat", attending)
    assert subscribe(tx, sink="pigeon", target="home", options={"colour": "grey"})
    with refused(tx, "QF400", 'no dispatcher has a sink "kafka"'):
        subscribe(tx, "other", sink="kafka")


@pytest.mark.parametrize("unusable", [[], "x", 1])
def test_what_a_dispatcher_cannot_serve_is_an_object_of_reasons(tx: Connection, unusable: Any) -> None:
    with refused(tx, "QF400", "unusable"):
        call(tx, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1", "unusable": json.dumps(unusable)})


def test_a_dispatcher_is_seen_until_it_retires(tx: Connection, clock: Clock) -> None:
    call(
        tx, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1", "hostname": "h", "pid": 7, "version": "1"}
    )
    live = "select live from queues.dispatcher_status where dispatcher_id = 'd1'"
    assert value(tx, live) is True
    clock.advance(61)
    assert value(tx, live) is False
    call(tx, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1"})
    assert value(tx, live) is True

    assert answer(tx, "queues.retire_dispatcher", {"dispatcher_id": "d1"}) is True
    assert answer(tx, "queues.retire_dispatcher", {"dispatcher_id": "d1"}) is False


def test_who_retires_takes_those_along_that_were_silent_for_an_hour(tx: Connection, clock: Clock) -> None:
    call(tx, "queues.dispatcher_heartbeat", {"dispatcher_id": "killed"})
    clock.advance(3601)
    call(tx, "queues.dispatcher_heartbeat", {"dispatcher_id": "d1"})
    call(tx, "queues.dispatcher_heartbeat", {"dispatcher_id": "d2"})

    answer(tx, "queues.retire_dispatcher", {"dispatcher_id": "d1"})

    assert value(tx, "select array_agg(dispatcher_id) from queues.dispatcher_status") == ["d2"]


def _fail_all(tx: Connection, subscription: int) -> None:
    settle(tx, subscription, claim_events(tx, subscription), "rejected", error="410")


def test_only_events_of_this_subscription_are_sent_again(tx: Connection) -> None:
    mine, other = subscribe(tx, "mine"), subscribe(tx, "other")
    event_id = emit(tx)
    _fail_all(tx, mine)
    settle(tx, other, claim_events(tx, other))
    unrelated = subscribe(tx, "unrelated", "nothing.*")

    for given in ({"event_id": event_id}, {}):
        assert answer(tx, "queues.redrive_events", {"name": "unrelated", **given}) == 0
    assert claim_events(tx, unrelated) == []
    assert deliveries(tx, event_id) == {"mine": "dead", "other": "delivered"}
    assert answer(tx, "queues.redrive_events", {"name": "mine", "event_id": event_id}) == 1
    assert deliveries(tx, event_id) == {"mine": "waiting", "other": "delivered"}


def test_an_event_that_failed_twice_is_sent_again_to_one_receiver(tx: Connection) -> None:
    for name in ("mine", "other"):
        subscribe(tx, name)
    event_id = emit(tx)
    for row in rows(tx, "select subscription_id from queues.outbox_status"):
        _fail_all(tx, row["subscription_id"])

    assert answer(tx, "queues.redrive_events", {"name": "mine"}) == 1
    assert deliveries(tx, event_id) == {"mine": "waiting", "other": "dead"}


def test_one_event_is_sent_again_although_it_was_delivered(tx: Connection) -> None:
    subscription = subscribe(tx)
    event_id = emit(tx)
    settle(tx, subscription, claim_events(tx, subscription))

    assert answer(tx, "queues.redrive_events", {"name": "all"}) == 0
    assert answer(tx, "queues.redrive_events", {"name": "all", "event_id": event_id}) == 1
    assert settle(tx, subscription, claim_events(tx, subscription)) == ["accepted"]
    assert deliveries(tx, event_id) == {"all": "delivered"}


def test_events_that_die_later_are_left_out(tx: Connection, clock: Clock) -> None:
    subscription = subscribe(tx)
    emit(tx)
    _fail_all(tx, subscription)
    until = clock.now
    clock.advance(10)
    late = emit(tx)
    _fail_all(tx, subscription)

    assert answer(tx, "queues.redrive_events", {"name": "all", "died_until": until}) == 1
    assert deliveries(tx, late) == {"all": "dead"}


def test_acts_on_a_subscription_are_recorded_once_each(tx: Connection) -> None:
    subscription = subscribe(tx)
    event_id = emit(tx)
    _fail_all(tx, subscription)
    for function in (
        "pause_subscription",
        "pause_subscription",
        "resume_subscription",
        "resume_subscription",
    ):
        answer(tx, f"queues.{function}", {"name": "all", "reason": function})
    for _ in range(2):
        answer(tx, "queues.redrive_events", {"name": "all", "event_id": event_id, "reason": "lost"})

    found = rows(tx, "select * from queues.subscription_event order by act_id")
    assert [(row["act"], row["reason"], row["events"]) for row in found] == [
        ("paused", "pause_subscription", None),
        ("resumed", "resume_subscription", None),
        ("redriven", "lost", 1),
    ]
    with refused(tx, "QF412", "append-only"):
        tx.execute("update queues.subscription_act set reason = null")


def test_deliveries_are_listed_by_state(tx: Connection) -> None:
    subscription = subscribe(tx)
    dead = emit(tx)
    _fail_all(tx, subscription)
    delivered = emit(tx)
    settle(tx, subscription, claim_events(tx, subscription))
    failed = emit(tx, subject="order 3")
    settle(tx, subscription, claim_events(tx, subscription), "failed", error="503")

    def listed(status: str) -> list[tuple[object, ...]]:
        found = call(tx, "queues.list_deliveries", {"name": "all", "of_status": status})
        return [(row["event_id"], row["status"], row["attempt"], row["last_error"]) for row in found]

    assert listed("dead") == [(dead, "dead", 1, "410")]
    assert listed("delivered") == [(delivered, "delivered", 1, None)]
    assert listed("outstanding") == [(failed, "retrying", 1, "503")]
    for wrong, code in (({"of_status": "odd"}, "QF400"), ({"name": "nobody"}, "QF404")):
        with refused(tx, code):
            call(tx, "queues.list_deliveries", {"name": "all", **wrong})
