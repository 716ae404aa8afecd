"""The server is there and does not want: too many connections, read-only, a disk that is full."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psycopg
import pytest

from acceptance.ground import NOISE_SECONDS, VERSION, Ground, durable_ground
from acceptance.trial import sized, tell, trial
from acceptance.waiting import wait_for
from holdfast._connections.worker_connection import LONGEST_PAUSE_SECONDS
from support.engine import value
from support.programs import not_tested

SECONDS = sized(3, 6, 15)
WORKERS = {"HOLDFAST_LEASE": 4.0, "HOLDFAST_HEARTBEAT": 1.0, "WORKER_CONCURRENCY": 20}
TIMES = (0.0, 0.005, 0.02, 0.1)
DISK = "400m"
SMALL = {"max_wal_size": "64MB", "min_wal_size": "32MB"}

_CUT = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid()"""


def tries(ground: Ground, since: int = 0) -> int:
    """How often the workers have asked in vain."""
    return sum(len(worker.logged("database_unavailable")) for worker in ground.fleet.all) - since


def wait_for_work(ground: Ground) -> float:
    """Seconds until the next handler starts."""
    began, before = monotonic(), ground.witness.count_starts()
    wait_for("work to go on", lambda: ground.witness.count_starts() > before)
    return monotonic() - began


@trial("P1", "P2", quick=True)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("refuse", "allow"),
    [
        ("alter database holdfast connection limit 0", "alter database holdfast connection limit -1"),
        (
            "alter database holdfast set default_transaction_read_only = on",
            "alter database holdfast reset default_transaction_read_only",
        ),
    ],
    ids=["too many connections", "read only"],
)
def test_workers_wait_for_a_server_that_refuses_them_and_go_on_when_it_does_not(
    ground: Ground, refuse: str, allow: str
) -> None:
    producer = ground.producer(per_second=60, seconds=TIMES)
    workers = ground.fleet.start(2, WORKERS)
    admin = ground.conn
    with producer.producing():
        sleep(1)
        admin.execute(refuse.encode())
        admin.execute(_CUT.encode())
        sleep(3)  # the first pauses are short
        before = tries(ground)
        sleep(SECONDS)
        asked = tries(ground, before) / SECONDS / len(workers)
        with psycopg.connect(ground.database.server.url("postgres"), autocommit=True) as other:
            other.execute(allow.encode())
        waited = wait_for_work(ground)
        sleep(1)
    ground.quiesce()
    verdict = ground.check(producer)
    tell(
        f"{len(producer.acknowledged)} tasks, refused for {SECONDS + 3} s: each worker asked "
        f"{asked:.1f} times a second with all of its connections together; work went on {waited:.1f} s "
        f"after that, {verdict.reruns} handlers ran again"
    )
    assert waited <= LONGEST_PAUSE_SECONDS + NOISE_SECONDS
    assert asked <= 8  # heartbeat and leader included
    assert workers == ground.fleet.running


@contextmanager
def small_disk() -> Iterator[Path]:
    if os.geteuid() != 0:
        not_tested("a full disk is not tested: only root can mount a small one")
    place = Path(tempfile.mkdtemp(prefix="hf-disk-", dir="/tmp"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "holdfast", place], check=False
    )
    if mounted.returncode != 0:
        place.rmdir()
        not_tested("a full disk is not tested: a small one cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()


def keep_full(place: Path, seconds: float) -> None:
    """Not a byte is left, also of what the server gives back meanwhile."""
    filling, until = place / "filling", monotonic() + seconds
    with filling.open("wb", buffering=0) as file:
        while monotonic() < until:
            for size in (2**20, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)
            sleep(0.1)
    filling.unlink()


@pytest.mark.full
@trial("P1", "P2", "P6", quick=True)
@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_the_disk_is_full(tmp_path: Path) -> None:
    seconds = sized(3, 6, 20)
    with small_disk() as place, durable_ground(tmp_path, VERSION, place, SMALL) as ground:
        producer = ground.producer(per_second=100, seconds=TIMES)
        workers = ground.fleet.start(2, WORKERS)
        with producer.producing():
            sleep(2)
            before = len(producer.acknowledged)
            keep_full(place, seconds)
            meanwhile = len(producer.acknowledged) - before
            stopped = not ground.server.running
            ground.server.start()
            waited = wait_for_work(ground)
            sleep(2)
        ground.quiesce()
        verdict = ground.check(producer)
        assert workers == ground.fleet.running
        refused = value(ground.conn, "select count(*) from queues.error where kind = 'result_not_storable'")
    tell(
        f"{len(producer.acknowledged)} tasks, disk full for {seconds} s, {meanwhile} acknowledged meanwhile, "
        f"{producer.repeated} calls of clients repeated, the server "
        f"{'stopped and was started again' if stopped else 'did not stop'}; work went on {waited:.1f} s "
        f"after there was room, {verdict.reruns} handlers ran again"
    )
    assert producer.repeated > 0, "the disk was not full enough to be noticed"
    assert refused == 0
