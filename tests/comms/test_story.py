"""One send with one retry, from its kickoff to its end, against servers that behave as the providers do.

First one task at a time, with what every table holds after each; then with a worker that is left to itself.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast import App
from holdfast._worker.worker import Worker
from holdfast.settings import Settings
from support.clock import Clock
from support.comms import Channel
from support.database import Database
from support.engine import Connection, rows
from support.provider_server import Fault, ProviderServer
from support.resend_server import API_KEY, ResendServer
from support.stepper import Stepper
from support.twilio_server import ACCOUNT, TOKEN, TwilioServer

PATIENCE_SECONDS = 60
EMAIL, SMS = Channel("email"), Channel("sms")


@dataclass
class Post:
    """A channel, the server of its provider, and the settings of a worker that uses it."""

    channel: Channel
    server: Any
    settings: dict[str, Any]


@contextmanager
def _post(channel: Channel) -> Iterator[Post]:
    server: ProviderServer = ResendServer() if channel is EMAIL else TwilioServer()
    with server.running():
        email = {
            "email_provider": "resend",
            "resend_api_key": API_KEY,
            "resend_url": server.url,
            "email_sender": "Shop <shop@example.com>",
        }
        sms = {
            "sms_provider": "twilio",
            "twilio_account_sid": ACCOUNT,
            "twilio_auth_token": TOKEN,
            "twilio_url": server.url,
            "sms_sender": "+15005550006",
            "sms_countries": "+49",
        }
        yield Post(channel, server, email if channel is EMAIL else sms)


@pytest.fixture(params=[EMAIL, SMS], ids=lambda channel: channel.name)
def post(request: pytest.FixtureRequest) -> Iterator[Post]:
    with _post(request.param) as running:
        yield running


@pytest.fixture
def conn(db: Database) -> Connection:
    return db.connect()


def _waiting(conn: Connection, post: Post, send: int) -> list[tuple[datetime, str]]:
    """What is in the queue for this send and has not ended, by time."""
    tasks = [
        task
        for task in post.channel.tasks(conn, send)
        if task["status"] in ("pending", "scheduled", "retrying")
    ]
    return sorted((task["run_at"], task["type"]) for task in tasks)


async def _step_or_wait(worker: Stepper, conn: Connection, post: Post, send: int, clock: Clock) -> bool:
    """One step; if nothing is due, the clock goes on to what is next. False if there is nothing more."""
    if await worker.step() is not None:
        return True
    waiting = _waiting(conn, post, send)
    if waiting:
        clock.set(max(clock.now, waiting[0][0]))
    return bool(waiting)


async def _to_the_end(worker: Stepper, conn: Connection, post: Post, send: int, clock: Clock) -> None:
    while await _step_or_wait(worker, conn, post, send, clock):
        pass


class TestStepByStep:
    """The clock stands still unless the test moves it."""

    async def test_the_first_attempt_fails_the_second_succeeds_and_the_third_run_is_the_last(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        clock, channel = Clock(conn), post.channel
        post.server.faults.append(Fault(500))

        # Kickoff: the message, the root, and the supervisor in the queue.
        application = db.connect("holdfast_client")
        with application.transaction():
            send = channel.kick_off(application)
        assert channel.counts(conn, send) == {"scheduled": 0, "failed": 0, "succeeded": 0, "supervised": 0}
        assert _waiting(conn, post, send) == [(clock.now, channel.supervisor)]
        (asked,) = channel.tasks(conn, send)
        assert asked["payload"] == {
            "task_type": "db_function",
            "db_function": channel.supervisor,
            f"{channel.root}_id": send,
        }

        async with Stepper(db, **post.settings) as worker:
            # Supervisor, run 1: a scheduled fact, one attempt now, and itself in a few seconds.
            assert await worker.step() == channel.supervisor
            assert channel.counts(conn, send) == {
                "scheduled": 1,
                "failed": 0,
                "succeeded": 0,
                "supervised": 1,
            }
            assert channel.decisions(conn, send) == ["attempt"]
            assert _waiting(conn, post, send) == [
                (clock.now, channel.sender),
                (clock.after(10), channel.supervisor),
            ]

            # Attempt 1: the provider fails; queues.error, the error handler, a failure fact.
            clock.advance(1)
            assert await worker.step() == channel.sender
            assert channel.counts(conn, send) == {
                "scheduled": 1,
                "failed": 1,
                "succeeded": 0,
                "supervised": 1,
            }
            (failure,) = channel.facts(conn, "failed", send)
            assert (failure["attempt"], failure["failed_at"], failure["permanent"]) == (1, clock.now, False)
            (attempt,) = channel.tasks(conn, send, channel.sender)
            assert attempt["status"] == "failed"
            (error,) = rows(conn, "select * from queues.error")
            assert (error["task_id"], error["kind"]) == (attempt["task_id"], failure["kind"])
            assert post.server.delivered == []
            # The handler has nudged the supervisor.
            assert _waiting(conn, post, send) == [(clock.now, channel.supervisor)]

            # Supervisor, run 2: scheduled = failures, so another attempt after the back-off, and itself.
            clock.advance(1)
            assert await worker.step() == channel.supervisor
            assert channel.counts(conn, send) == {
                "scheduled": 2,
                "failed": 1,
                "succeeded": 0,
                "supervised": 2,
            }
            assert channel.decisions(conn, send) == ["attempt", "attempt"]
            assert _waiting(conn, post, send) == [
                (failure["retry_at"], channel.sender),
                (failure["retry_at"] + timedelta(seconds=10), channel.supervisor),
            ]

            # Attempt 2: the provider takes it over; the success handler, a success fact.
            clock.set(failure["retry_at"])
            assert await worker.step() == channel.sender
            assert channel.counts(conn, send) == {
                "scheduled": 2,
                "failed": 1,
                "succeeded": 1,
                "supervised": 2,
            }
            (success,) = channel.facts(conn, "succeeded", send)
            (delivery,) = post.server.delivered
            delivered_id = delivery.id if channel is EMAIL else delivery.sid
            assert (success["attempt"], success["provider_message_id"]) == (2, delivered_id)
            assert [task["status"] for task in channel.tasks(conn, send, channel.sender)] == [
                "failed",
                "succeeded",
            ]
            assert _waiting(conn, post, send) == [(clock.now, channel.supervisor)]

            # Supervisor, run 3: there is a success; it ends, and nothing more is enqueued.
            before = len(channel.tasks(conn, send))
            assert await worker.step() == channel.supervisor
            assert channel.counts(conn, send) == {
                "scheduled": 2,
                "failed": 1,
                "succeeded": 1,
                "supervised": 3,
            }
            assert channel.decisions(conn, send) == ["attempt", "attempt", "succeeded"]
            assert len(channel.tasks(conn, send)) == before
            assert _waiting(conn, post, send) == []
            clock.advance(7 * 86400)
            assert await worker.step() is None

        assert channel.status(application, send)["status"] == "succeeded"
        assert rows(conn, "select from queues.ready union all select from queues.lease") == []

    async def test_a_send_for_tomorrow_sleeps_until_then_and_is_sent_once(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        clock, channel = Clock(conn), post.channel
        tomorrow = clock.after(86400)
        send = channel.kick_off(conn, scheduled_at=tomorrow)
        async with Stepper(db, **post.settings) as worker:
            for _ in range(24):
                assert await worker.step() is None
                clock.advance(3599)
            assert _waiting(conn, post, send) == [(tomorrow, channel.supervisor)]
            assert channel.counts(conn, send)["supervised"] == 0
            assert post.server.requests == []

            clock.set(tomorrow)
            steps = [await worker.step() for _ in range(4)]

        assert steps == [channel.supervisor, channel.sender, channel.supervisor, None]
        assert len(post.server.delivered) == 1
        assert channel.status(conn, send)["status"] == "succeeded"

    async def test_a_supervisor_that_polls_finds_an_attempt_that_nobody_recorded_yet(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        clock, channel = Clock(conn), post.channel
        send = channel.kick_off(conn)
        async with Stepper(db, **post.settings) as worker:
            await worker.step()
            attempt = worker.claim()  # held, and slow
            assert attempt is not None
            clock.advance(10)
            assert await worker.step() == channel.supervisor
            assert channel.decisions(conn, send) == ["attempt", "wait"]
            await worker.run(attempt)
            assert await worker.step() == channel.supervisor

        assert channel.decisions(conn, send) == ["attempt", "wait", "succeeded"]
        assert channel.counts(conn, send)["scheduled"] == 1

    async def test_a_permanent_answer_ends_the_send_at_once(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        channel = post.channel
        if channel is EMAIL:
            post.server.domains = set()
        else:
            post.server.numbers = set()
        send = channel.kick_off(conn, max_attempts=5)
        async with Stepper(db, **post.settings) as worker:
            steps = [await worker.step() for _ in range(4)]

        assert steps == [channel.supervisor, channel.sender, channel.supervisor, None]
        assert channel.status(conn, send)["status"] == "failed"
        assert channel.counts(conn, send) == {"scheduled": 1, "failed": 1, "succeeded": 0, "supervised": 2}

    async def test_a_provider_that_asks_for_a_pause_is_called_after_it(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        clock, channel = Clock(conn), post.channel
        post.server.faults.append(Fault(429, headers={"retry-after": "120"}))
        send = channel.kick_off(conn)
        async with Stepper(db, **post.settings) as worker:
            assert [await worker.step() for _ in range(4)] == [
                *(channel.supervisor, channel.sender, channel.supervisor, None)
            ]
            clock.advance(119)
            assert await worker.step() is None
            clock.advance(1)
            assert await worker.step() == channel.sender
            assert await worker.step() == channel.supervisor

        assert channel.status(conn, send)["status"] == "succeeded"
        assert len(post.server.requests) == 2

    async def test_an_answer_that_was_lost_is_repeated_under_the_same_key_or_left_to_the_policy(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        clock, channel = Clock(conn), post.channel
        post.server.faults.append(Fault.cut(accepted=True))
        send = channel.kick_off(conn, when_unknown="stop")
        async with Stepper(db, **post.settings) as worker:
            await _to_the_end(worker, conn, post, send, clock)

        assert len(post.server.delivered) == 1
        assert channel.facts(conn, "failed", send)[0]["outcome_unknown"] is True
        status = channel.status(conn, send)
        expected = ("succeeded", False) if channel is EMAIL else ("failed", True)
        assert (status["status"], status["outcome_unknown"]) == expected

    @pytest.mark.parametrize(
        "fault", [Fault(504, accepted=True), Fault(200, accepted=True)], ids=["504", "200"]
    )
    async def test_with_stop_nothing_is_delivered_twice_however_long_the_provider_wants_to_wait(
        self, db: Database, conn: Connection, post: Post, fault: Fault
    ) -> None:
        clock, channel = Clock(conn), post.channel
        post.server.faults.append(replace(fault, headers={"retry-after": "90000"}))
        forgotten_at = clock.after(86400)
        post.server.plan = lambda _: post.server.forget_keys() if clock.now >= forgotten_at else None
        send = channel.kick_off(conn, when_unknown="stop")
        async with Stepper(db, **post.settings) as worker:
            await _to_the_end(worker, conn, post, send, clock)

        assert len(post.server.delivered) == 1
        assert channel.facts(conn, "failed", send)[0]["outcome_unknown"] is True
        if fault.status == 504:
            assert channel.status(conn, send)["status"] == "failed"
            assert len(post.server.requests) == 1

    async def test_a_provider_that_is_down_for_a_minute_loses_no_send(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        clock, channel = Clock(conn), post.channel
        up_again = clock.after(60)
        post.server.plan = lambda _: Fault(503) if clock.now < up_again else None
        sends = [channel.kick_off(conn) for _ in range(3)]
        async with Stepper(db, **post.settings) as worker:
            for send in sends:
                await _to_the_end(worker, conn, post, send, clock)

        assert [channel.status(conn, send)["status"] for send in sends] == ["succeeded"] * 3
        assert len(post.server.delivered) == 3
        assert channel.counts(conn, sends[0])["failed"] >= 4

    async def test_a_provider_without_its_key_is_the_reason_of_the_failure_and_nothing_is_unknown(
        self, db: Database, conn: Connection, post: Post
    ) -> None:
        clock, channel = Clock(conn), post.channel
        secret = "resend_api_key" if channel is EMAIL else "twilio_auth_token"
        broken = {name: value for name, value in post.settings.items() if name != secret}
        send = channel.kick_off(conn, when_unknown="stop", max_attempts=3)
        async with Stepper(db, **broken) as worker:
            while channel.counts(conn, send)["failed"] < 2:
                await _step_or_wait(worker, conn, post, send, clock)
        async with Stepper(db, **post.settings) as worker:
            await _to_the_end(worker, conn, post, send, clock)

        failures = channel.facts(conn, "failed", send)
        assert {row["kind"] for row in failures} == {"provider_not_configured"}
        assert f"HOLDFAST_{secret.upper()} is not set" in failures[0]["message"]
        assert [row["outcome_unknown"] for row in failures] == [False, False]
        assert channel.status(conn, send)["status"] == "succeeded"
        assert len(post.server.delivered) == 1


async def test_a_worker_left_to_itself_brings_every_send_to_its_end_without_waiting_for_a_poll(
    db: Database, conn: Connection, post: Post
) -> None:
    channel = post.channel
    post.server.faults += [Fault(500)] * 3
    # Attempts that back off become due without a wake-up, so the worker has to look by itself.
    settings = Settings.load(worker_queues="comms", poll_interval="200ms", **post.settings)
    worker = Worker(App(db.dsn), db.dsn_as("holdfast_worker"), settings)
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    application = db.connect("holdfast_client")
    sends = [channel.kick_off(application, max_attempts=5) for _ in range(5)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while rows(conn, "select from queues.ready union all select from queues.lease"):
            await asyncio.to_thread(conn.execute, "select pg_sleep(0.05)")
    worker.stop()
    await running

    assert len(post.server.delivered) == 5
    for send in sends:
        counts = channel.counts(conn, send)
        assert channel.decisions(conn, send)[-1] == "succeeded"
        assert counts["scheduled"] == counts["failed"] + 1
        runs = channel.facts(conn, "supervised", send)
        assert counts["scheduled"] + 1 == len([run for run in runs if run["decision"] != "wait"])
        for run, following in pairwise(runs):  # a handler nudged it before it would have looked by itself
            assert following["decision"] == "wait" or following["supervised_at"] < run["next_run_at"]
    failed = rows(conn, f"select count(*) as n from comms.{channel.root}_failed")
    assert failed == [{"n": 3}]
