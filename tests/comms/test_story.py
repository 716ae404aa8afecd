"""One send with one retry, from its kickoff to its end, against servers that behave as the providers do.

First one task at a time, with what every table holds after each; then with a worker that is left to itself.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from holdfast import App
from holdfast.settings import Settings
from holdfast.worker import Worker
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

            # Supervisor, run 2: scheduled = failures, so another attempt; and itself again.
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
                (clock.now, channel.sender),
                (clock.after(10), channel.supervisor),
            ]

            # Attempt 2: the provider takes it over; the success handler, a success fact.
            clock.advance(1)
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
        channel = post.channel
        post.server.faults.append(Fault.cut(accepted=True))
        send = channel.kick_off(conn, when_unknown="stop")
        async with Stepper(db, **post.settings) as worker:
            while await worker.step():
                pass

        assert len(post.server.delivered) == 1
        expected = ("succeeded", False) if channel is EMAIL else ("failed", True)
        unknown = channel.facts(conn, "failed", send)[0]["outcome_unknown"]
        assert (channel.status(conn, send)["status"], unknown) == expected


async def test_a_worker_left_to_itself_brings_every_send_to_its_end_without_waiting_for_a_poll(
    db: Database, conn: Connection, post: Post
) -> None:
    """The clock stands still, so no run of a supervisor becomes due by itself: only nudges make them run."""
    Clock(conn)
    channel = post.channel
    post.server.faults += [Fault(500)] * 3
    settings = Settings.load(worker_queues="comms", poll_interval="1m", **post.settings)
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
        assert counts["supervised"] == counts["scheduled"] + 1
    failed = rows(conn, f"select count(*) as n from comms.{channel.root}_failed")
    assert failed == [{"n": 3}]
