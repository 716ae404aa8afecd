"""docs/explanation/life-of-a-task.md lists the files that an ordinary task crosses; a traced run compares."""

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import App
from holdfast.engine import Engine, Statement, leases, workers
from holdfast.engine.enqueue import NewTask, enqueue_one
from support.database import Database
from support.documents import DOCS
from support.worker_thread import working

PAGE = (DOCS / "explanation" / "life-of-a-task.md").read_text()
SOURCE = Path(holdfast.__file__).parent
MAX_FILES = 20
# What these threads do at their own times is not on the way of a task.
BY_THE_CLOCK = {"holdfast-heartbeat", "holdfast-leader", "holdfast-watchdog"}
CALLS = """
    select n.nspname || '/' || p.proname, s.calls from pg_stat_xact_user_functions s
    join pg_proc p on p.oid = s.funcid join pg_namespace n on n.oid = p.pronamespace"""
# In the query plans of their callers, so that no statistics count them; or called by everything.
INLINED = {"clock", "new_task_id", "nth_task_id"}


def _listed(heading: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


class _Trace:
    """The files of the package whose functions are called, per thread, in the order of their first call."""

    def __init__(self) -> None:
        self.by_thread: dict[int, list[str]] = {}
        self.on = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self.on or event != "call" or threading.current_thread().name in BY_THE_CLOCK:
            return
        code = frame.f_code
        if code.co_name == "<module>" or not code.co_filename.startswith(str(SOURCE)):
            return
        crossed = self.by_thread.setdefault(threading.get_ident(), [])
        name = str(Path(code.co_filename).relative_to(SOURCE))
        if name not in crossed:
            crossed.append(name)


@contextmanager
def _tracing() -> Iterator[_Trace]:
    trace = _Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        threading.setprofile(None)
        sys.setprofile(None)


def _wait_for_outcome(url: str, task_id: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("listen holdfast_done")
        found = "select from queues.outcome where task_id = %s"
        while not connection.execute(found, [task_id]).fetchall():
            list(connection.notifies(timeout=0.05, stop_after=1))


def test_the_page_lists_every_python_file_in_order(db: Database) -> None:
    url = db.dsn
    app = App(url)

    @app.task("billing.invoice_charge.v1")
    def charge(invoice_id: int) -> int:
        return invoice_id

    with _tracing() as trace, working(app, url, worker_queues=["billing"]):
        for _ in range(3):  # the third call of a statement finds it prepared
            _wait_for_outcome(url, charge.enqueue(invoice_id=1).task_id)
        trace.on = True
        _wait_for_outcome(url, charge.enqueue(invoice_id=7).task_id)
        trace.on = False
    app.close()

    listed = _listed("The Python files")
    crossed = {name for names in trace.by_thread.values() for name in names}
    assert crossed == set(listed)
    assert len(listed) <= MAX_FILES
    caller = trace.by_thread[threading.get_ident()]
    assert [name for name in listed if name in caller] == caller, "the order of the caller's files"


def _traced(connection: psycopg.Connection[Any], statement: Statement[Any]) -> set[str]:
    def counts() -> dict[str, int]:
        return dict(connection.execute(CALLS).fetchall())

    before = counts()
    Engine(connection).run(statement)
    return {name for name, calls in counts().items() if calls != before.get(name, 0)}


@pytest.fixture
def tracked(db: Database) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(db.dsn, autocommit=True) as connection:
        connection.execute("set track_functions = 'all'")
        yield connection


def test_the_page_lists_every_sql_function(tracked: psycopg.Connection[Any]) -> None:
    new = NewTask("billing.invoice_charge.v1", {"invoice_id": 7})
    run: Callable[[Statement[Any]], Any] = Engine(tracked).run
    run(enqueue_one(new))  # the first task of a type also makes its lane
    run(workers.register_worker("worker-1", "this-host", queues=["billing"]))
    run(workers.mark_idle("worker-1", True))
    tracked.execute("set role holdfast_client")
    crossed = _traced(tracked, enqueue_one(new))
    tracked.execute("reset role")
    crossed |= _traced(tracked, leases.claim("worker-1", queues=["billing"]))
    row = tracked.execute("select task_id, token from queues.lease").fetchone()
    assert row is not None
    report = leases.result_json(str(row[0]), row[1], "succeeded", result="7")
    crossed |= _traced(tracked, leases.finish("worker-1", [report]))

    functions = {name.removeprefix("queues/") for name in crossed} - INLINED
    assert functions == {Path(name).stem for name in _listed("The SQL functions")}
    assert all((SOURCE / "sql" / name).exists() for name in _listed("The SQL functions"))
