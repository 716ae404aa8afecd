"""No clock but the database's is ever stored or compared with it, whatever this machine's says."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast._worker.report import DatabaseClock
from support.command import holdfast
from support.programs import needed
from support.workshop import Workshop

APPLICATION = """
import asyncio
from holdfast import App, Linear, Snooze
app = App()

@app.task("work.second", retry=Linear(step=0.2))
async def second(ctx) -> None:
    await asyncio.sleep(0.05)
    if ctx.attempt == 1:
        raise RuntimeError
"""


@pytest.fixture
def faketime() -> str:
    """The library that lies to a process about the time."""
    needed("faketime", "ensure-faketime")
    return str(next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")))


@pytest.mark.parametrize("shift", ["+1h", "-1h", "+0 x3"])
async def test_a_worker_with_a_wrong_clock_works_as_any_other(
    shop: Workshop, tmp_path: Path, faketime: str, shift: str
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    variables = {"DATABASE_URL": shop.db.dsn, "LD_PRELOAD": faketime, "FAKETIME": shift}
    with holdfast("worker", "shop:app", "--queues", "work", cwd=tmp_path, **variables) as process:
        process.logged("worker_started")
        row = await shop.until("select queues.enqueue('work.second') as task_id")
        row = await shop.ended(row["task_id"])
        process.send(signal.SIGTERM)
        assert process.ended() == 0
    (error,) = await shop.errors(row["task_id"])
    assert row["attempt"] == 2
    assert error["claimed_at"] <= error["started_at"] <= error["occurred_at"]
    assert timedelta(0) <= row["finished_at"] - row["created_at"] < timedelta(minutes=5)
    assert (
        error["occurred_at"]
        <= error["retry_at"]
        <= row["claimed_at"]
        <= row["started_at"]
        <= row["finished_at"]
    )


def test_a_moment_of_ours_is_read_as_one_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [500.0]
    monkeypatch.setattr("holdfast._worker.report.time.monotonic", lambda: now[0])
    clock = DatabaseClock()
    assert clock.now() is None
    clock.heard(1_000_000_000.25)
    now[0] += 2
    assert clock.now() == "2001-09-09T01:46:42.250000+00:00"
    assert clock.at(500.0) == "2001-09-09T01:46:40.250000+00:00"
    assert clock.now(delay=60) == "2001-09-09T01:47:42.250000+00:00"
