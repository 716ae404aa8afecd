"""Workers of one shard, and of all shards under one command."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import App
from holdfast.errors import ConfigurationError
from support.command import HOLDFAST
from support.sharded import FrontDatabase

APPLICATION = """
from datetime import timedelta
from holdfast import App
app = App(name="shop")

@app.schedule(every=timedelta(seconds=1))
@app.task("billing.report")
def report() -> None:
    pass

@app.task("billing.charge")
def charge(n: int) -> int:
    return n * 2

@app.task("billing.order")
def order(n: int) -> str:
    return str(charge.using(key=f"order-{n}").enqueue(n).task_id)
"""


def test_workers_of_all_shards_run_what_clients_enqueue_and_are_stopped_together(
    front: FrontDatabase, tmp_path: Path
) -> None:
    """A handler enqueues through the front, so that its keys are where other callers look for them."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    environment = (
        os.environ | front.environment | {"PYTHONPATH": str(tmp_path), "HOLDFAST_LOG_FORMAT": "json"}
    )
    command = [str(HOLDFAST), "worker", "shop:app", "--all-shards"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as worker:
        try:
            sys.path.insert(0, str(tmp_path))
            app = App(front.dsn, name="shop")

            @app.task("billing.charge")
            def charge(n: int) -> int:
                return n * 2

            @app.task("billing.order")
            def order(n: int) -> str:
                return str(n)

            handles = [charge.using(key=f"k{n}").enqueue(n) for n in range(16)]
            assert [handle.result(90) for handle in handles] == [n * 2 for n in range(16)]
            assert {handle.task_id.bytes[11] for handle in handles} == {0, 1, 2, 3}
            ordered = [order.using(key=f"o{n}").enqueue(n).result(90) for n in range(4)]
            assert ordered == [str(charge.using(key=f"order-{n}").enqueue(n).task_id) for n in range(4)]
            app.close()
        finally:
            sys.path.remove(str(tmp_path))
            worker.terminate()
        assert worker.wait(60) == 0


def test_a_schedule_fires_once_whatever_number_of_shards_have_a_worker(
    front: FrontDatabase, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    environment = os.environ | front.environment | {"PYTHONPATH": str(tmp_path)}
    command = [str(HOLDFAST), "worker", "shop:app", "--all-shards"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as worker:
        try:
            _wait_until(front, "select count(distinct w.worker_id) >= 4 from queues.worker_status w")
            _wait_until(
                front, "select s.last_nominal_at > s.created_at + '2 seconds' from queues.schedule_status s"
            )
        finally:
            worker.terminate()
        assert worker.wait(60) == 0
    counted = [
        shard.connect().execute("select count(*) from queues.schedule").fetchone() for shard in front.shards
    ]
    assert counted == [(1,), (0,), (0,), (0,)]
    times = [
        time
        for shard in front.shards
        for (time,) in shard.connect()
        .execute("select metadata ->> 'nominal_at' from queues.task where type = 'billing.report'")
        .fetchall()
    ]
    assert len(times) == len(set(times)) >= 2


def _wait_until(front: FrontDatabase, query: str) -> None:
    connection = front.connect()
    deadline = time.monotonic() + 90
    while connection.execute(query).fetchone() != (True,):
        assert time.monotonic() < deadline, query
        time.sleep(0.2)


def test_a_shard_that_is_not_in_the_settings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SHARDS", "s00=postgresql://a/b s01=postgresql://a/c")

    with pytest.raises(ConfigurationError, match="there is no shard 's02'"):
        App("postgresql://a/front").run_worker(shard="s02")
