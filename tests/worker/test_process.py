"""`holdfast worker` as a process: signals, exit codes, and handlers that would end or block it."""

import os
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support.command import holdfast
from support.database import Database
from support.engine import explain
from support.workshop import Workshop

APPLICATION = """
import asyncio, logging, os, sys, time
from holdfast import App, NoRetry
from holdfast._worker import watchdog, worker_process

watchdog.STUCK_SECONDS = 0.5
worker_process.AT_ONCE_SECONDS = 3.0
app = App()

@app.task("work.echo")
async def echo() -> str:
    logging.getLogger("shop").warning("from the handler")
    return "done"

@app.task("work.brief")
async def brief() -> None:
    logging.getLogger("shop").warning("begun")
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)

@app.task("work.long")
async def long() -> None:
    await asyncio.Event().wait()

@app.task("work.block")
async def block() -> None:
    time.sleep(1000)

@app.task("work.stuck", timeout=0.5, retry=NoRetry())
async def stuck() -> None:
    time.sleep(1000)

@app.task("work.leave", retry=NoRetry())
async def leave() -> None:
    async def exit() -> None:
        sys.exit(3)
    asyncio.get_running_loop().call_soon(sys.exit, 4)
    await asyncio.create_task(exit())

@app.task("work.thread")
async def thread() -> None:
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 1000)

@app.task("other.echo")
async def other() -> None:
    pass
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APPLICATION)
    return tmp_path


def enqueue(db: Database, task_type: str) -> UUID:
    row = db.connect().execute("select queues.enqueue(%s)", [task_type]).fetchone()
    assert row
    return UUID(str(row[0]))


def worker(db: Database, directory: Path, *options: str, **variables: str) -> Any:
    arguments = ["worker", "shop:app", "--queues", "work", *options]
    return holdfast(*arguments, cwd=directory, DATABASE_URL=db.dsn, **variables)


async def test_sigterm_ends_a_worker_in_order(shop: Workshop, directory: Path) -> None:
    with worker(shop.db, directory, "--metrics-port", "0") as process:
        port = process.logged("metrics_served")["port"]
        process.logged("worker_started", concurrency=10)
        assert (
            process.logged("app_queue_not_served").items()
            >= {"queue": "other", "used_by": ["other.echo"]}.items()
        )
        task_id = enqueue(shop.db, "work.echo")
        line = process.logged("from the handler")
        assert line.items() >= {"task_id": str(task_id), "type": "work.echo", "attempt": 1}.items()
        assert line["worker_id"].startswith(socket.gethostname()), "also where a library logs"
        await shop.ended(task_id)
        assert b"holdfast_claimed_total 1.0" in _read(f"http://127.0.0.1:{port}/metrics")
        process.send(signal.SIGTERM)
        assert process.ended() == 0
    assert process.lines("worker_stopped")


async def test_a_worker_says_what_it_serves_and_what_waits_for_nobody(
    shop: Workshop, directory: Path
) -> None:
    (directory / "mailing.py").write_text("from shop import app\napp.sends_messages = True\n")
    waiting = enqueue(shop.db, "reports.render")
    arguments = ["worker", "mailing:app"]
    with holdfast(*arguments, cwd=directory, DATABASE_URL=shop.db.dsn) as process:
        started = process.logged("worker_started")
        assert (started["queues"], started["prefixes"]) == (["comms", "other", "work"], [])
        assert set(started["types"]) >= {"work.echo", "other.echo"}
        assert set(started["executors"]) == {"python", "process", "db_function", "email", "sms"}
        assert started["email_provider"] == "mailbox"
        unserved = process.logged("queue_has_no_worker")
        assert (unserved["queue"], unserved["hint"]) == (
            "reports",
            "Start one: holdfast worker … --queues reports",
        )
        await shop.ended(enqueue(shop.db, "other.echo"))
        process.send(signal.SIGTERM)
        assert process.ended() == 0
    assert not process.lines("app_queue_not_served")
    assert len(process.lines("queue_has_no_worker")) == 1, "once is enough"
    assert "no live worker subscribes to queue reports" in explain(shop.conn, waiting)


async def test_what_is_declared_holds_for_tasks_from_the_command_line(
    shop: Workshop, directory: Path
) -> None:
    (directory / "declared.py").write_text(
        "from holdfast import App\napp = App()\n"
        "@app.task('billing.charge', queue='slow', max_attempts=9, lease=120, priority=2)\n"
        "def charge() -> str: return 'charged'\n"
    )
    arguments = ["worker", "declared:app"]
    with holdfast(*arguments, cwd=directory, DATABASE_URL=shop.db.dsn) as process:
        process.logged("worker_started", queues=["slow"])
        with holdfast("enqueue", "billing.charge", cwd=directory, DATABASE_URL=shop.db.dsn) as command:
            assert command.ended() == 0
        row = await shop.until("select * from queues.task_status where status = 'succeeded'")
    assert (row["type"], row["queue"], row["max_attempts"], row["priority"]) == (
        "billing.charge",
        "slow",
        9,
        2,
    )


async def test_what_runs_may_end_after_an_interrupt_and_the_exit_code_is_0(
    shop: Workshop, directory: Path
) -> None:
    with worker(shop.db, directory, "--grace", "1h") as process:
        process.logged("worker_started")
        task_id = enqueue(shop.db, "work.brief")
        process.logged("begun")
        process.send(signal.SIGINT)
        process.logged("worker_stopping", running=1)
        later = enqueue(shop.db, "work.brief")
        (directory / "go").touch()
        assert process.ended() == 0
    assert (await shop.ended(task_id))["status"] == "succeeded"
    assert (await shop.becomes(later, "pending"))["attempt"] == 0


async def test_the_second_signal_ends_it_at_once(shop: Workshop, directory: Path) -> None:
    with worker(shop.db, directory, "--grace", "1h") as process:
        process.logged("worker_started")
        task_id = enqueue(shop.db, "work.long")
        await shop.until("select from queues.lease")
        process.send(signal.SIGTERM)
        process.logged("worker_stopping")
        process.send(signal.SIGINT)
        assert process.ended() == 128 + signal.SIGINT
    assert (await shop.becomes(task_id, "pending"))["attempt"] == 0


@pytest.mark.full
async def test_signals_are_obeyed_while_a_handler_blocks_the_event_loop(
    shop: Workshop, directory: Path
) -> None:
    with worker(shop.db, directory) as process:
        process.logged("worker_started")
        task_id = enqueue(shop.db, "work.block")
        process.logged("event_loop_blocked", task_id=str(task_id))
        process.send(signal.SIGTERM)
        process.send(signal.SIGQUIT)
        assert process.ended() in (128 + signal.SIGTERM, 128 + signal.SIGQUIT)
    assert (await shop.becomes(task_id, "pending"))["attempt"] == 0


@pytest.mark.full
async def test_a_worker_that_a_handler_blocks_past_its_limit_fails_the_task_and_ends(
    shop: Workshop, directory: Path
) -> None:
    with worker(shop.db, directory) as process:
        process.logged("worker_started")
        task_id = enqueue(shop.db, "work.stuck")
        process.logged("worker_stuck", task_id=str(task_id))
        assert process.ended() == 70
    row = await shop.ended(task_id)
    assert (row["status"], row["error"]["kind"]) == ("failed", "timeout")
    assert "in stuck" in "".join(process.read)  # where it hangs


@pytest.mark.full
async def test_sys_exit_in_a_task_of_a_handlers_own_does_not_end_the_worker(
    shop: Workshop, directory: Path
) -> None:
    with worker(shop.db, directory) as process:
        process.logged("worker_started")
        row = await shop.ended(enqueue(shop.db, "work.leave"))
        assert (await shop.ended(enqueue(shop.db, "work.echo")))["status"] == "succeeded"
        process.send(signal.SIGTERM)
        assert process.ended() == 0
    assert "SystemExit: 3" in row["last_error"]
    assert process.lines("exit_ignored")


@pytest.mark.full
async def test_threads_that_a_handler_has_left_behind_do_not_keep_the_process(
    shop: Workshop, directory: Path
) -> None:
    with worker(shop.db, directory) as process:
        process.logged("worker_started")
        await shop.ended(enqueue(shop.db, "work.thread"))
        process.send(signal.SIGTERM)
        assert process.ended() == 0


async def test_whoever_started_it_is_told_when_it_is_ready(shop: Workshop, directory: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0holdfast-test-" + str(os.getpid()))
        with worker(shop.db, directory, NOTIFY_SOCKET=f"@holdfast-test-{os.getpid()}") as process:
            assert systemd.recv(100) == b"READY=1"
            process.send(signal.SIGTERM)
            assert systemd.recv(100) == b"STOPPING=1"
            assert process.ended() == 0


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - of this machine
        return bytes(answer.read())
