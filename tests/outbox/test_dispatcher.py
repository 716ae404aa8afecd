"""A dispatcher in the event loop of the test: what arrives where, in which order, and what does not."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook
from structlog.testing import capture_logs

from holdfast._serialization.webhook_signature import check_signature, new_secret
from holdfast.errors import InvalidSignature
from holdfast.outbox.dispatcher import Dispatcher
from holdfast.outbox.sender import SubscriptionSender
from holdfast.outbox.settlements import SettlementWriter
from holdfast.outbox.sink import build_sink
from holdfast.settings import DispatcherSettings
from outbox.conftest import Dispatching, running
from support.database import Database
from support.engine import Connection, call, rows, value
from support.outbox import deliveries, emit, outbox_status, subscribe
from support.receiver import OK, Answer, Request, receiving


@pytest.fixture
def admin(db: Database) -> Connection:
    return db.connect()


def to_http(admin: Connection, url: str, name: str = "all", *events: str, **more: Any) -> int:
    return subscribe(admin, name, *events, **({"sink": "http", "target": url} | more))


async def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Poll, because the awaited change is in the database, which sends no notification."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


def settled(admin: Connection) -> bool:
    return bool(value(admin, "select not exists (select from queues.delivery)"))


async def test_an_event_is_sent_as_soon_as_it_is_committed(
    admin: Connection, dispatching: Dispatching
) -> None:
    async with receiving() as receiver:
        to_http(admin, receiver.url)
        async with dispatching():
            event_id = emit(admin, payload={"n": 1})
            (request,) = await receiver.wait_for(1)
            await until(lambda: settled(admin))

    assert (request.event["id"], request.event["data"]) == (str(event_id), {"n": 1})
    assert deliveries(admin, event_id) == {"all": "delivered"}


async def test_what_was_emitted_before_it_started_is_sent_too(
    admin: Connection, dispatching: Dispatching
) -> None:
    async with receiving() as receiver:
        to_http(admin, receiver.url)
        emitted = [str(emit(admin)) for _ in range(5)]
        async with dispatching():
            await receiver.wait_for(5)

    assert sorted(receiver.ids) == sorted(emitted)


async def test_a_subscription_that_comes_later_is_served(admin: Connection, dispatching: Dispatching) -> None:
    async with receiving() as receiver, dispatching():
        to_http(admin, receiver.url)
        emit(admin)
        await receiver.wait_for(1)


async def test_events_of_an_aggregate_arrive_in_order_and_one_at_a_time(
    admin: Connection, dispatching: Dispatching
) -> None:
    async def count(request: Request) -> Answer:
        aggregate = request.event["partitionkey"]
        under_way[aggregate] += 1
        most[aggregate] = max(most[aggregate], under_way[aggregate])
        await asyncio.sleep(0.002)
        under_way[aggregate] -= 1
        return OK

    under_way: defaultdict[str, int] = defaultdict(int)
    most: defaultdict[str, int] = defaultdict(int)
    async with receiving(count) as receiver:
        to_http(admin, receiver.url)
        with admin.transaction():
            for n in range(60):
                emit(admin, aggregate_id=f"a{n % 6}", payload={"n": n})
        async with dispatching():
            await receiver.wait_for(60)

    assert set(most.values()) == {1}
    assert receiver.most_at_once > 1
    for aggregate in most:
        numbers = [r.event["data"]["n"] for r in receiver.requests if r.event["partitionkey"] == aggregate]
        assert numbers == sorted(numbers)


async def test_a_failed_event_is_sent_again_with_the_same_id_before_those_behind_it(
    admin: Connection, dispatching: Dispatching
) -> None:
    async def fail_once(request: Request) -> Answer:
        return OK if len(receiver.requests) > 1 else (500, {}, b"")

    async with receiving(fail_once) as receiver:
        to_http(admin, receiver.url)
        with admin.transaction():
            first, second = (str(emit(admin, aggregate_id="a")) for _ in range(2))
        async with dispatching(poll_interval="100ms"):
            await receiver.wait_for(3)

    assert receiver.ids == [first, first, second]


async def test_a_receiver_that_hangs_does_not_keep_another_waiting(
    admin: Connection, dispatching: Dispatching
) -> None:
    async def hang(request: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with receiving(hang) as stuck, receiving() as well:
        to_http(admin, stuck.url, "stuck")
        to_http(admin, well.url, "well")
        async with dispatching(grace="100ms"):
            for n in range(100):
                emit(admin, aggregate_id=f"a{n}")
            await well.wait_for(100)
            assert well.most_at_once <= 10

    assert len(set(stuck.ids)) == 10
    assert outbox_status(admin, "stuck")["pending"] == 100


async def test_a_receiver_that_fails_is_left_alone_after_five_times(
    admin: Connection, dispatching: Dispatching
) -> None:
    async def fail(request: Request) -> Answer:
        return 503, {}, b""

    async with receiving(fail) as receiver:
        to_http(admin, receiver.url, options={"concurrency": 1})
        for _ in range(30):
            emit(admin)
        async with dispatching(poll_interval="50ms"):
            await until(lambda: outbox_status(admin)["breaker"] == "open")

    assert 5 <= len(receiver.requests) <= 8
    assert outbox_status(admin)["last_error"] == "HTTP 503"


async def test_a_receiver_that_works_again_gets_everything(
    admin: Connection, dispatching: Dispatching
) -> None:
    async def answer(request: Request) -> Answer:
        return OK if works.is_set() else (500, {}, b"")

    works = asyncio.Event()
    async with receiving(answer) as receiver:
        to_http(admin, receiver.url)
        emitted = {emit(admin, aggregate_id=f"a{n % 10}") for n in range(50)}
        async with dispatching(poll_interval="50ms"):
            await until(lambda: outbox_status(admin)["breaker"] == "open")
            works.set()
            call(admin, "queues.resume_subscription", {"name": "all"})
            await until(lambda: settled(admin))

    assert {UUID(one) for one in receiver.ids} == emitted


async def test_an_answer_of_try_later_is_obeyed(admin: Connection, dispatching: Dispatching) -> None:
    async def later(request: Request) -> Answer:
        return 429, {"retry-after": "3600"}, b""

    async with receiving(later) as receiver:
        to_http(admin, receiver.url)
        event_id = emit(admin)
        async with dispatching():
            await until(lambda: deliveries(admin, event_id) == {"all": "retrying"})

    waits = value(admin, "select due_at - queues.clock() > '50 minutes' from queues.delivery")
    assert waits is True


async def test_a_sink_that_breaks_is_not_the_end_of_the_dispatcher(
    admin: Connection, dispatching: Dispatching, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        concurrency, timeout = 1, 1.0

        async def send(self, _: object) -> None:
            raise ZeroDivisionError("oops")

        async def close(self) -> None: ...

    monkeypatch.setattr(
        "holdfast.outbox.dispatcher.build_sink",
        lambda sink, config: Broken() if sink == "broken" else build_sink(sink, config),
    )
    monkeypatch.setattr("holdfast.outbox.dispatcher.known_sinks", lambda: ["broken"])
    async with receiving() as receiver:
        to_http(admin, receiver.url)
        async with dispatching(poll_interval="100ms"):
            subscribe(admin, "broken", sink="broken")
            event_id = emit(admin)
            await receiver.wait_for(1)
            await until(lambda: deliveries(admin, event_id)["broken"] == "retrying")

    assert outbox_status(admin, "broken")["last_error"] == "ZeroDivisionError: oops"


async def test_a_subscription_that_cannot_be_served_is_logged_and_the_others_go_on(
    admin: Connection, dispatching: Dispatching
) -> None:
    with capture_logs() as logs:
        async with receiving() as receiver:
            subscribe(admin, "missing", sink="http", target="env:HOLDFAST_SINK_NOWHERE")
            to_http(admin, receiver.url)
            async with dispatching():
                emit(admin)
                await receiver.wait_for(1)

    (line,) = [line for line in logs if line["event"] == "sink_unusable"]
    assert (line["subscription"], "HOLDFAST_SINK_NOWHERE" in line["error"]) == ("missing", True)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sink": "http", "target": "env:HOLDFAST_SINK_NOWHERE"}, "HOLDFAST_SINK_NOWHERE is not set"),
        (
            {
                "sink": "http",
                "target": "https://hook.example/",
                "options": {"headers": {"x": "env:HOLDFAST_SINK_NO"}},
            },
            "HOLDFAST_SINK_NO is not set",
        ),
        ({"sink": "http", "target": "https://hook.example/", "options": {"timeout": 3600}}, "timeout"),
        ({"sink": "http", "target": "https://169.254.169.254/"}, "internal address 169.254.169.254"),
        ({"sink": "nats", "target": "nats://10.0.0.1:4222"}, "internal address 10.0.0.1"),
        ({"sink": "nats", "target": "tls://[::1]"}, "internal address ::1"),
        ({"sink": "amqp", "target": "amqp://guest:guest@192.168.0.1/"}, "internal address 192.168.0.1"),
        (
            {"sink": "amqp", "target": "amqps://rabbit.example/?certfile=/etc/key.pem"},
            "options after a question mark",
        ),
        (
            {"sink": "amqp", "target": "amqps://rabbit.example/?no_verify_ssl=1"},
            "options after a question mark",
        ),
    ],
)
async def test_why_a_subscription_cannot_be_served_is_shown_to_those_who_look(
    admin: Connection, dispatching: Dispatching, given: dict[str, Any], reason: str
) -> None:
    subscribe(admin, "sick", **given)
    subscribe(admin, "well")
    async with dispatching():
        await until(lambda: outbox_status(admin, "sick")["problem"])
        assert reason in outbox_status(admin, "sick")["problem"]
        assert outbox_status(admin, "well")["problem"] is None
        lines = "select subject, level, error, code from queues.health() where check_name = 'outbox'"
        health = {row["subject"]: row for row in rows(admin, lines)}
        assert (health["sick"]["level"], health["well"]["level"]) == ("red", "green")
        assert reason in health["sick"]["error"]
        assert health["sick"]["code"] == "subscription_unusable"
        call(admin, "queues.unsubscribe", {"name": "sick"})
    assert [row["subject"] for row in rows(admin, lines)] == ["well"]


async def test_a_sink_whose_package_breaks_is_not_the_end_of_the_dispatcher(
    admin: Connection, dispatching: Dispatching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(sink: str, config: Any) -> Any:
        if config.name == "sick":
            raise ZeroDivisionError("oops")
        return build_sink(sink, config)

    monkeypatch.setattr("holdfast.outbox.dispatcher.build_sink", build)
    subscribe(admin, "sick")
    async with receiving() as receiver:
        to_http(admin, receiver.url)
        async with dispatching():
            emit(admin)
            await receiver.wait_for(1)
            await until(lambda: outbox_status(admin, "sick")["problem"])
            assert "ZeroDivisionError: oops" in outbox_status(admin, "sick")["problem"]


async def test_a_secret_may_be_a_variable_of_the_dispatcher(
    admin: Connection, dispatching: Dispatching, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = new_secret()
    monkeypatch.setenv("HOLDFAST_SINK_SECRET", secret)
    async with receiving() as receiver:
        to_http(admin, receiver.url, secrets=["env:HOLDFAST_SINK_SECRET"])
        async with dispatching():
            emit(admin)
            (request,) = await receiver.wait_for(1)

    Webhook(secret).verify(request.body, request.headers)
    assert value(admin, "select secrets from queues.subscription") == ["env:HOLDFAST_SINK_SECRET"]


async def test_a_rotated_secret_is_used_at_once(admin: Connection, dispatching: Dispatching) -> None:
    old, new = new_secret(), new_secret()
    async with receiving() as receiver:
        to_http(admin, receiver.url, secrets=[old])
        async with dispatching(poll_interval="50ms"):
            emit(admin)
            await receiver.wait_for(1)
            call(admin, "queues.rotate_secret", {"name": "all", "secret": new})
            await until(lambda: _sent_with(admin, receiver.requests, new))

    Webhook(old).verify(receiver.requests[0].body, receiver.requests[0].headers)
    for secret in (old, new):
        Webhook(secret).verify(receiver.requests[-1].body, receiver.requests[-1].headers)


def _sent_with(admin: Connection, requests: list[Request], secret: str) -> bool:
    emit(admin)
    try:
        check_signature(requests[-1].headers, requests[-1].body, secret)
    except InvalidSignature:
        return False
    return True


async def test_who_is_asked_to_stop_lets_arrive_what_is_on_its_way_and_gives_back_the_rest(
    admin: Connection, dispatching: Dispatching
) -> None:
    async def slowly(request: Request) -> Answer:
        arrived.set()
        await let_go.wait()
        return OK

    arrived, let_go = asyncio.Event(), asyncio.Event()
    async with receiving(slowly) as receiver:
        to_http(admin, receiver.url, options={"concurrency": 1})
        with admin.transaction():
            first, second = (emit(admin, aggregate_id="a") for _ in range(2))
        async with dispatching() as dispatcher:
            await arrived.wait()
            dispatcher.stop()
            let_go.set()

    assert deliveries(admin, first) == {"all": "delivered"}
    assert deliveries(admin, second) == {"all": "waiting"}
    assert rows(admin, "select * from queues.dispatcher_status") == []
    assert len(receiver.requests) == 1


async def test_a_lost_database_costs_nothing_but_time(
    db: Database, admin: Connection, dispatching: Dispatching
) -> None:
    async with receiving() as receiver:
        to_http(admin, receiver.url)
        async with dispatching(poll_interval="100ms"):
            for n in range(40):
                emit(admin, aggregate_id=f"a{n % 4}", payload={"n": n})
                if n % 10 == 5:
                    admin.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where usename = 'holdfast_dispatcher_login' and datname = current_database()"
                    )
            await until(lambda: settled(admin))

    assert {r.event["data"]["n"] for r in receiver.requests} == set(range(40))


async def test_two_dispatchers_share_the_work_and_deliver_each_event_once(
    admin: Connection, dispatching: Dispatching
) -> None:
    async with receiving() as receiver:
        to_http(admin, receiver.url, options={"concurrency": 2})
        emitted = {str(emit(admin, aggregate_id=f"a{n % 20}")) for n in range(200)}
        async with dispatching(), dispatching():
            await until(lambda: settled(admin))

    assert len(receiver.ids) == 200
    assert set(receiver.ids) == emitted
    shares = rows(admin, "select count(*) from queues.delivered group by dispatcher_id")
    assert len(shares) == 2


async def test_a_file_gets_every_event_once_and_in_order(
    admin: Connection, dispatching: Dispatching, tmp_path: Path
) -> None:
    subscribe(admin, sink="file", target="events.jsonl")
    admin.execute(
        "select queues.emit('n.counted', jsonb_build_object('n', n), 'a' || n % 50)"
        " from generate_series(1, 2000) n"
    )
    async with dispatching():
        await until(lambda: settled(admin))

    found: defaultdict[str, list[int]] = defaultdict(list)
    for line in (tmp_path / "events" / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        found[event["partitionkey"]].append(event["data"]["n"])
    assert sum(map(len, found.values())) == 2000
    assert all(numbers == sorted(numbers) for numbers in found.values())


async def test_a_login_with_more_rights_drops_them(db: Database, tmp_path: Path) -> None:
    async with running(db.dsn, tmp_path / "events") as dispatcher:
        connection = await dispatcher._claiming.connection()
        cursor = await connection.execute("select session_user, current_user")
        assert await cursor.fetchone() == ("postgres", "holdfast_dispatcher")


async def test_a_dispatcher_whose_settlements_fail_ends_and_says_so(
    admin: Connection, db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would look healthy, and send every event again after its lease."""

    async def fail(_: SettlementWriter, __: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(SettlementWriter, "_send", fail)
    dispatcher = Dispatcher(
        db.dsn_as("holdfast_dispatcher"),
        DispatcherSettings.load(poll_interval="1m", grace="1s", outbox_directory=tmp_path),
    )
    subscribe(admin, sink="file", target="events.jsonl")
    emit(admin)
    with capture_logs() as logs, pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(30):
            await dispatcher.run()
    assert [line["log_level"] for line in logs if line["event"] == "dispatcher_failed"] == ["error"]
    assert value(admin, "select count(*) from queues.dispatcher") == 0


async def test_a_sender_that_fails_is_started_again(
    admin: Connection, dispatching: Dispatching, monkeypatch: pytest.MonkeyPatch
) -> None:
    rightly = SubscriptionSender._claim_and_send
    failures = [ZeroDivisionError("a bug")]

    async def fail_once(sender: SubscriptionSender) -> None:
        if failures:
            raise failures.pop()
        await rightly(sender)

    monkeypatch.setattr(SubscriptionSender, "_claim_and_send", fail_once)
    async with receiving() as receiver:
        to_http(admin, receiver.url)
        with capture_logs() as logs:
            async with dispatching(poll_interval="100ms"):
                emit(admin)
                await receiver.wait_for(1)
    assert [line["subscription"] for line in logs if line["event"] == "sender_failed"] == ["all"]
