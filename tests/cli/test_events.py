"""holdfast events and holdfast dispatch."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from uuid import UUID

import pytest

from holdfast._engine import Engine
from holdfast._engine.events import Settlement, claim_events, dispatcher_heartbeat, emit, settle_events
from support.command import HOLDFAST, IGNORING_INTERRUPTS
from support.commands import Holdfast, answer, fail
from support.database import Database


@pytest.fixture
def shop(holdfast: Holdfast) -> str:
    """A subscription to a file."""
    arguments = ["--sink", "file", "--to", "shop.jsonl", "--event", "order.*", "--event", "task.*"]
    assert holdfast("events", "subscribe", "shop", *arguments).exit_code == 0
    return "shop"


def test_a_webhook_gets_a_secret_that_is_shown_once(holdfast: Holdfast) -> None:
    command = ["events", "subscribe", "hook", "--to", "https://shop.example/hook?token=x"]
    created = answer(holdfast(*command, "--json"))
    again = answer(holdfast(*command, "--json"))

    assert (created["created"], created["secret"][:6]) == (True, "whsec_")
    assert (again["created"], again["secret"]) == (False, None)
    listed = holdfast("events", "list").stdout
    assert "https://shop.example/hook?***" in listed
    assert created["secret"] not in listed + holdfast("events", "list", "--json").stdout
    assert "already" in holdfast(*command).stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--sink", "kafka", "--to", "x"], 'no dispatcher has a sink "kafka"'),
        (["--to", "https://shop.example/", "--options", '{"bogus": 1}'], "options.bogus"),
        (["--to", "env:DATABASE_URL"], "HOLDFAST_SINK_"),
        (["--sink", "file", "--to", "bin/deploy.sh"], "orders.jsonl"),
    ],
)
def test_what_no_dispatcher_can_use_is_refused(holdfast: Holdfast, options: list[str], reason: str) -> None:
    refused = holdfast("events", "subscribe", "hook", *options)

    assert refused.exit_code == 2
    assert reason in refused.stderr
    assert answer(holdfast("events", "list", "--json")) == {"subscriptions": []}


def test_subscriptions_are_listed_with_what_they_have_still_to_get(
    engine: Engine, holdfast: Holdfast, shop: str
) -> None:
    engine.run(emit("order.created", {"n": 1}, "o1"))
    (one,) = answer(holdfast("events", "list", "--json"))["subscriptions"]
    assert (one["name"], one["pending"], one["event_types"]) == ("shop", 1, ["order.*", "task.*"])
    assert (one["breaker"], one["dead"]) == ("closed", 0)
    head, line = holdfast("events", "list").stdout.splitlines()
    assert head.split()[:3] == ["name", "events", "sink"]
    assert line.split()[:4] == ["shop", "order.*,task.*", "file", "shop.jsonl"]


def test_no_subscription_is_no_error(holdfast: Holdfast) -> None:
    assert answer(holdfast("events", "list", "--json")) == {"subscriptions": []}
    assert (
        holdfast("events", "list").stderr
        == "No subscriptions found. Create one: holdfast events subscribe NAME --to URL\n"
    )


def test_a_subscription_is_paused_resumed_and_removed(holdfast: Holdfast, shop: str) -> None:
    paused = holdfast("events", "pause", shop, "--reason", "moving")
    assert paused.stdout == "Subscription shop is paused.\n"
    assert "paused" in holdfast("events", "list").stdout
    assert answer(holdfast("events", "pause", shop, "--json"))["changed"] is False
    assert holdfast("events", "resume", shop).stdout == "Subscription shop is running.\n"
    assert holdfast("events", "remove", shop).stdout == "Subscription shop removed.\n"
    gone = holdfast("events", "remove", shop)
    assert (gone.exit_code, "there is no subscription" in gone.stderr) == (4, True)


def test_a_secret_is_rotated(holdfast: Holdfast, shop: str) -> None:
    first = answer(holdfast("events", "rotate", shop, "--json"))
    second = answer(holdfast("events", "rotate", shop, "--json"))
    assert (first["secrets"], second["secrets"]) == (1, 2)
    assert first["secret"] != second["secret"]
    assert answer(
        holdfast("events", "rotate", shop, "--secret", "env:HOLDFAST_SINK_S", "--keep", "0", "--json")
    ) == {
        "name": "shop",
        "secrets": 1,
        "secret": None,
    }
    assert holdfast("events", "rotate", shop, "--secret", "weak").exit_code == 2


def _claim(engine: Engine, shop: str, status: str) -> UUID:
    (subscription,) = engine.run(dispatcher_heartbeat("d1"))
    assert subscription.name == shop
    number = subscription.subscription_id
    events = engine.run(claim_events("d1", number))
    settlements = [Settlement(number, e.event_id, e.token, status, "no") for e in events]  # type: ignore[arg-type]
    assert set(engine.run(settle_events("d1", settlements))) == {"accepted"}
    return events[0].event_id


def test_dead_events_are_redriven(engine: Engine, holdfast: Holdfast, shop: str) -> None:
    engine.run(emit("order.created"))
    engine.run(emit("order.created"))
    event_id = _claim(engine, shop, "rejected")

    assert holdfast("events", "redrive", shop, "--event", str(event_id)).stdout == (
        "1 event will be sent again.\n"
    )
    [dead] = answer(holdfast("events", "deliveries", shop, "--json"))["deliveries"]
    assert dead["last_error"]
    assert answer(holdfast("events", "redrive", shop, "--dry-run", "--json"))["redriven"] == 1
    assert answer(holdfast("events", "redrive", shop, "--json"))["redriven"] == 1
    assert answer(holdfast("events", "redrive", shop, "--json"))["redriven"] == 0


def test_a_task_is_shown_with_its_events_and_their_deliveries(
    engine: Engine, holdfast: Holdfast, shop: str
) -> None:
    (task_id,) = fail(engine)
    waiting = answer(holdfast("show", str(task_id), "--json"))["deliveries"]
    assert [(d["event_type"], d["subscription"], d["status"]) for d in waiting] == [
        ("task.failed", "shop", "waiting")
    ]
    _claim(engine, shop, "delivered")
    shown = holdfast("show", str(task_id)).stdout
    assert "deliveries" in shown
    assert shown.splitlines()[-1].split()[2:5] == ["task.failed", "shop", "delivered"]


def test_the_past_is_shown_newest_last(engine: Engine, holdfast: Holdfast) -> None:
    for n in range(3):
        engine.run(emit("order.created" if n else "user.created", {"n": n}, f"o{n}"))

    lines = holdfast("events", "tail", "--no-follow", "-n", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["data"]["n"] for line in lines] == [1, 2]
    shown = holdfast("events", "tail", "--no-follow", "--event", "user.*").stdout
    assert shown.split()[2:4] == ["user.created", "o0"]
    assert len(shown.splitlines()) == 1


def test_an_event_cannot_control_the_terminal(engine: Engine, holdfast: Holdfast) -> None:
    engine.run(emit("order.created", {"x": "\x1b[31mred\nline"}, "a"))

    assert "\x1b" not in holdfast("events", "tail", "--no-follow").stdout


class Process:
    """A command in a process of its own, whose output is read as it comes."""

    def __init__(self, *arguments: str, url: str, directory: Path) -> None:
        self.output = directory / f"{'-'.join(arguments[:2])}.out"
        environment = os.environ | {"DATABASE_URL": url, "HOLDFAST_LOG_FORMAT": "json"}
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [*IGNORING_INTERRUPTS, HOLDFAST, *arguments],
                cwd=directory,
                env=environment,
                stdout=output,
                stderr=output,
            )

    def wait_for(self, text: str) -> str:
        deadline = monotonic() + 60
        while text not in self.output.read_text():
            assert self._process.poll() is None, self.output.read_text()
            assert monotonic() < deadline, self.output.read_text()
            sleep(0.02)
        return self.output.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return self._process.wait(60)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def dispatch(db: Database, tmp_path: Path) -> Iterator[Process]:
    # A lease that is shorter than twice the usual heartbeat, which a dispatcher does not have.
    process = Process("dispatch", "--lease", "5s", "--allow", "127.0.0.1", url=db.dsn, directory=tmp_path)
    try:
        process.wait_for("dispatcher_started")
        yield process
    finally:
        process.close()


def test_a_subscription_is_tried_out_through_a_dispatcher(
    holdfast: Holdfast, shop: str, dispatch: Process, tmp_path: Path
) -> None:
    tried = holdfast("events", "test", shop)
    assert (tried.exit_code, "was delivered" in tried.stdout) == (0, True)
    written = (tmp_path / ".holdfast" / "outbox" / "shop.jsonl").read_text()
    assert json.loads(written)["type"] == "subscription.test"

    holdfast("events", "subscribe", "hook", "--to", "http://127.0.0.1:1/")
    tried = holdfast("events", "test", "hook")
    assert (tried.exit_code, "was not delivered: ConnectError" in tried.stdout) == (1, True)

    holdfast("events", "subscribe", "sick", "--to", "https://169.254.169.254/")
    tried = holdfast("events", "test", "sick")
    assert (tried.exit_code, "internal address 169.254.169.254" in tried.stdout) == (1, True)
    assert "HOLDFAST_OUTBOX_ALLOW" in tried.stdout
    listed = next(line for line in holdfast("events", "list").stdout.splitlines() if line.startswith("sick"))
    assert " broken " in listed

    holdfast("events", "pause", "sick")
    holdfast("events", "pause", shop)
    tried = holdfast("events", "test", shop, "--wait", "0")
    assert f"holdfast events resume {shop}" in tried.stdout

    assert dispatch.end() == 0
    assert "dispatcher_stopped" in dispatch.output.read_text()


def test_without_a_dispatcher_a_test_says_what_to_do(holdfast: Holdfast, shop: str) -> None:
    tried = holdfast("events", "test", shop, "--wait", "0")

    assert (tried.exit_code, "holdfast dispatch" in tried.stdout) == (1, True)


def test_events_are_followed_as_they_come_also_those_that_commit_late(db: Database, tmp_path: Path) -> None:
    late, admin = db.connect(autocommit=False), db.connect()
    tail = Process("events", "tail", "--interval", "0.05", url=db.dsn, directory=tmp_path)
    try:
        Engine(late).run(emit("order.late"))
        Engine(admin).run(emit("order.early"))
        tail.wait_for("order.early")
        late.commit()
        shown = tail.wait_for("order.late")
        Engine(admin).run(emit("order.last"))
        shown = tail.wait_for("order.last")
        assert [shown.count(name) for name in ("order.early", "order.late", "order.last")] == [1, 1, 1]
        assert tail.end(signal.SIGINT) == 0
    finally:
        tail.close()
