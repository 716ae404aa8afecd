"""`holdfast worker --processes`: a supervisor that starts, replaces and ends its workers."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast._worker.fleet import Supervisor, single_worker_command
from support.command import holdfast
from support.workshop import Line, Workshop

READY = """
import os, signal, socket, sys
def tell(what):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(what, os.environ["NOTIFY_SOCKET"])
"""


def test_the_single_worker_command_worker_is_ours_without_the_number() -> None:
    one = [sys.executable, "holdfast", "worker", "shop:app", "--queues", "a"]
    assert (
        single_worker_command(["holdfast", "worker", "shop:app", "--processes", "4", "--queues", "a"]) == one
    )
    assert single_worker_command(["holdfast", "worker", "shop:app", "--queues", "a", "--processes=4"]) == one


class Yard:
    """A supervisor in the loop of the test, over processes that do what the test says."""

    def __init__(self, logs: list[Line]) -> None:
        self.logs = logs

    def supervise(self, script: str, count: int = 1, **options: Any) -> tuple[Supervisor, asyncio.Task[int]]:
        command = [sys.executable, "-c", READY + script]
        options = {"grace": 5.0, "log": structlog.get_logger()} | options
        supervisor = Supervisor(command, count, **options)
        return supervisor, asyncio.create_task(supervisor.run())

    async def logged(self, event: str, times: int = 1) -> Line:
        await sees(lambda: len(self.lines(event)) >= times)
        return self.lines(event)[-1]

    def lines(self, event: str) -> list[Line]:
        return [line for line in self.logs if line["event"] == event]


@pytest.fixture
def yard(logs: list[Line]) -> Yard:
    return Yard(logs)


async def sees(look: Callable[[], Any]) -> None:
    """Let the loop come round until it is so: what is waited for are other processes."""
    async with asyncio.timeout(60):
        while not look():  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.001)


async def ready(supervisor: Supervisor, count: int) -> None:
    await sees(lambda: len(supervisor._was_ready) == count)


WORKS = 'signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); tell(b"READY=1"); signal.pause()'


async def test_workers_that_end_in_order_let_the_supervisor_end_with_0(yard: Yard) -> None:
    supervisor, running = yard.supervise(WORKS, 2)
    await ready(supervisor, 2)
    supervisor.received(signal.SIGTERM)
    assert await running == 0


async def test_a_worker_that_does_not_end_in_order_shows_in_the_exit_code(yard: Yard) -> None:
    supervisor, running = yard.supervise('tell(b"READY=1"); signal.pause()')
    await ready(supervisor, 1)
    supervisor.received(signal.SIGTERM)
    assert await running == 1


async def test_a_worker_that_died_is_started_again(yard: Yard) -> None:
    supervisor, running = yard.supervise(WORKS)
    await ready(supervisor, 1)
    first = supervisor._workers[0].process.pid
    os.kill(first, signal.SIGKILL)
    line = await yard.logged("worker_died")
    assert (line["signal"], line["crash_loop"]) == ("SIGKILL", False)
    await sees(lambda: 0 in supervisor._workers and supervisor._workers[0].ready.is_set())
    assert supervisor._workers[0].process.pid != first
    supervisor.received(signal.SIGTERM)
    assert await running == 0


async def test_a_crash_loop_is_told_and_slowed_down(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._worker.fleet.MAX_PAUSE_SECONDS", 0.5)
    supervisor, running = yard.supervise('tell(b"READY=1"); sys.exit(9)')
    await yard.logged("worker_died", times=3)
    lines = yard.lines("worker_died")
    assert [line["crash_loop"] for line in lines[:3]] == [False, False, True]
    assert [line["exit_code"] for line in lines[:3]] == [9, 9, 9]
    supervisor.received(signal.SIGTERM)
    await running


async def test_a_refusal_to_start_is_passed_on(yard: Yard) -> None:
    _, running = yard.supervise("sys.exit(2)", 3)
    assert await running == 2


async def test_a_worker_that_never_gets_ready_is_replaced(yard: Yard) -> None:
    supervisor, running = yard.supervise("signal.pause()", boot_seconds=0.3)
    await yard.logged("worker_not_ready")
    await yard.logged("worker_died")
    supervisor.received(signal.SIGTERM)
    await running


async def test_a_worker_that_says_that_it_waits_is_waited_for(yard: Yard) -> None:
    script = 'import time\nwhile True: tell(b"STATUS=waiting"); time.sleep(0.05)'
    supervisor, running = yard.supervise(script, boot_seconds=3)  # on a busy machine it is silent for a while
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4):
            await yard.logged("worker_not_ready")
    supervisor.received(signal.SIGTERM)
    await running


async def test_the_second_signal_ends_them_at_once(yard: Yard) -> None:
    script = 'signal.signal(signal.SIGTERM, signal.SIG_IGN); tell(b"READY=1")\nwhile True: signal.pause()'
    supervisor, running = yard.supervise(script, 2)
    await ready(supervisor, 2)
    supervisor.received(signal.SIGTERM)
    supervisor.received(signal.SIGINT)  # passed on as SIGQUIT
    assert await running == 128 + signal.SIGINT


async def test_what_does_not_end_in_time_is_killed(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._worker.fleet.STOP_MARGIN_SECONDS", 0.1)
    script = 'signal.signal(signal.SIGTERM, signal.SIG_IGN); tell(b"READY=1")\nwhile True: signal.pause()'
    supervisor, running = yard.supervise(script, grace=0.1)
    await ready(supervisor, 1)
    supervisor.received(signal.SIGTERM)
    assert await running == 1
    await yard.logged("worker_killed")


async def test_each_worker_has_a_metrics_port_of_its_own(yard: Yard) -> None:
    script = WORKS.replace("sys.exit(0)", "sys.exit(int(sys.argv[-1]) - 9000)")
    supervisor, running = yard.supervise(script, 2, metrics_port=9000)
    await ready(supervisor, 2)
    supervisor.received(signal.SIGTERM)
    await running
    assert sorted(supervisor._codes) == [0, 1]


APPLICATION = """
from holdfast import App
app = App()

@app.task("work.echo")
async def echo() -> str:
    return "done"
"""


@pytest.mark.full
async def test_real_workers_are_replaced_and_end_with_their_supervisor(
    shop: Workshop, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    arguments = ["worker", "shop:app", "--queues", "work", "--processes", "2"]
    with holdfast(*arguments, cwd=tmp_path, DATABASE_URL=shop.db.dsn) as process:
        await shop.until("select from queues.worker having count(*) = 2")
        row = await shop.until("select pid, worker_id from queues.worker limit 1")
        os.kill(row["pid"], signal.SIGKILL)
        await shop.until(
            "select from queues.worker where worker_id <> %s having count(*) = 2", row["worker_id"]
        )
        shop.conn.execute("select queues.enqueue('work.echo')")
        await shop.until("select from queues.outcome")
        process.send(signal.SIGTERM)
        assert process.ended() == 0
    left = shop.conn.execute("select worker_id from queues.worker").fetchall()
    assert left == [(row["worker_id"],)]  # the one that could not say farewell


@pytest.mark.full
async def test_no_worker_outlives_a_supervisor_that_was_killed(shop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    arguments = ["worker", "shop:app", "--queues", "work", "--processes", "2"]
    with holdfast(*arguments, cwd=tmp_path, DATABASE_URL=shop.db.dsn) as process:
        await shop.until("select from queues.worker having count(*) = 2")
        process.send(signal.SIGKILL)
        await shop.until("select where not exists (select from queues.worker)")
        process.ended()  # the end of the log: no process holds the pipe any more
