"""Suspended runs are rows behind everything that is due, which no claim of other tasks reads."""

import pytest

from support import backlog, engine
from support.database import Database
from support.engine import Connection
from support.query_cost import Meter

CLAIMS = 20
MOST = 1.05


def _fill(conn: Connection, queue: str) -> None:
    """Twice what the claims of the test take."""
    for _ in range(2 * CLAIMS):
        engine.enqueue_many(conn, [{"type": "other.work", "queue": queue}] * 60)


def _pages_of_a_claim(meter: Meter, queue: str, size: int) -> float:
    """On average, each of the next tasks."""
    pages = 0
    for _ in range(CLAIMS):
        effort = meter.measure(f"select * from queues.claim('w1', {size}, array['{queue}'])")
        assert effort.answered == size
        assert not effort.read_whole.keys() & {"task", "ready"}
        pages += effort.pages
    return pages / CLAIMS


@pytest.mark.parametrize(("size", "task_type"), [(1, "run.wait"), (50, "run.wait"), (50, "other.work")])
def test_a_claim_beside_100000_suspended_runs_reads_as_many_pages(
    db: Database, size: int, task_type: str
) -> None:
    """A queue has a lane for each type: without merging them, one without due tasks costs a look."""
    conn = db.connect()
    backlog.prepare(conn)
    for queue in ("without", "beside"):
        engine.enqueue(conn, "other.work", queue=queue)
    # A look into one more lane is much for a claim of one task, and little for one of 50.
    for queue in ("without", "beside") if size == 1 else ("beside",):
        engine.enqueue(conn, task_type, queue=queue)
    backlog.load_suspended(conn, "beside", task_type, 100_000)
    for queue in ("without", "beside"):
        _fill(conn, queue)
    conn.execute("vacuum analyze")
    meter = Meter(db.connect())
    for queue in ("without", "beside"):
        _pages_of_a_claim(meter, queue, 1)  # plans, and catalogs

    without, beside = (_pages_of_a_claim(meter, queue, size) for queue in ("without", "beside"))

    assert beside <= MOST * without
