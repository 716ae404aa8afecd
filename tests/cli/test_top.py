"""holdfast top: one frame, and the live view through a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from datetime import timedelta

import pytest

from holdfast._engine import Engine, enqueue, leases, queues, workers
from holdfast._engine.activity import ActivityCount
from holdfast._engine.enqueue import NewTask
from holdfast.cli.top import Rates, rates_between
from support.clock import NOON
from support.command import HOLDFAST, IGNORING_INTERRUPTS
from support.commands import run
from support.database import Database

PATIENCE_SECONDS = 60


@pytest.fixture
def busy(engine: Engine) -> Engine:
    engine.run(enqueue.enqueue_many([NewTask("billing.charge")] * 3))
    engine.run(workers.register_worker("w1", "host", queues=["billing"], concurrency=5))
    engine.run(leases.claim("w1", queues=["billing"]))
    engine.run(queues.pause("mail", "later"))
    return engine


def test_one_frame(busy: Engine, db: Database) -> None:
    result = run("top", "--once", "--interval", "0.2", url=db.dsn_as("holdfast_reader"))

    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["billing", "2", "0", "1"] in [line[:4] for line in lines]
    assert ["w1", "0/5", "billing"] in [line[:3] for line in lines]
    assert "queue mail was paused" in result.stdout
    assert "AMBER" in result.stdout


def test_one_frame_for_programs(busy: Engine, db: Database) -> None:
    result = run("top", "--json", "--interval", "0.2", url=db.dsn)

    document = json.loads(result.stdout)
    assert {queue["queue"]: queue["due"] for queue in document["queues"]} == {"billing": 2, "mail": 0}
    assert [worker["worker_id"] for worker in document["workers"]] == ["w1"]
    assert document["rates"].keys() == {"enqueued", "finished", "errors"}


def test_nothing_to_show(db: Database) -> None:
    result = run("top", "--once", "--interval", "0.2", url=db.dsn)
    assert "No queues found." in result.stdout
    assert "No workers found." in result.stdout


def test_rates_are_what_came_between_two_looks() -> None:
    first = ActivityCount(NOON, 100, 50, 5)
    assert rates_between(first, ActivityCount(NOON + timedelta(seconds=2), 120, 51, 5)) == Rates(10, 0.5, 0)


def test_statistics_that_began_anew_tell_no_rate() -> None:
    first = ActivityCount(NOON, 100, 50, 5)
    assert rates_between(first, ActivityCount(NOON + timedelta(seconds=2), 3, 51, 0)) == Rates(
        None, 0.5, None
    )
    assert rates_between(first, ActivityCount(NOON, 120, 60, 6)) == Rates(None, None, None)


def read_until(terminal: int, wanted: bytes) -> bytes:
    seen, until = b"", time.monotonic() + PATIENCE_SECONDS
    while wanted not in seen and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError as error:
                raise AssertionError(f"the program ended, and its last words were {seen!r}") from error
    assert wanted in seen, seen
    return seen


@pytest.mark.parametrize("by", ["key", "signal"])
def test_it_is_live_in_a_terminal_until_it_is_ended(busy: Engine, db: Database, by: str) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"DATABASE_URL": db.dsn, "TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
    with subprocess.Popen(
        [*IGNORING_INTERRUPTS, HOLDFAST, "top", "--interval", "0.2"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        try:
            read_until(ours, b"billing")
            busy.run(enqueue.enqueue(NewTask("later.added")))
            read_until(ours, b"later")
            if by == "key":
                os.write(ours, b"q")
            else:
                process.send_signal(signal.SIGINT)
            read_until(ours, b"\x1b[?1049l")  # the screen is given back
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
            os.close(ours)
