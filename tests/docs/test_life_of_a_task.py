"""docs/explanation/life-of-a-task.md lists the files that an ordinary task crosses; a traced run compares."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast._engine import Engine, Statement, leases, steps, workers
from holdfast._engine.enqueue import NewTask, enqueue_one
from support.database import Database
from support.documents import DOCS, ROOT

PAGE = (DOCS / "explanation" / "life-of-a-task.md").read_text()
SOURCE = Path(holdfast.__file__).parent
MAX_FILES = 22
MAX_STEP_FILES = 9
MAX_WAIT_FILES = 13
CALLS = """
    select n.nspname || '/' || p.proname, s.calls from pg_stat_xact_user_functions s
    join pg_proc p on p.oid = s.funcid join pg_namespace n on n.oid = p.pronamespace"""
# In the query plans of their callers, so that no statistics count them; or called by everything.
INLINED = {"clock", "new_task_id"}


def _listed(heading: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def _found_by(program: str, db: Database) -> Any:
    command = [sys.executable, "-m", program, db.dsn]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT / "tests"
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_the_page_lists_every_file_of_an_http_wait_in_order(db: Database) -> None:
    listed = _listed("The files of an HTTP wait")
    assert _found_by("support.traced_wait", db) == listed
    assert len(listed) <= MAX_WAIT_FILES


def test_the_page_lists_every_python_file_in_order(db: Database) -> None:
    traced = _found_by("support.traced_task", db)

    listed = _listed("The Python files")
    assert traced["all"] == sorted(listed)
    assert len(listed) <= MAX_FILES
    assert [name for name in listed if name in traced["caller"]] == traced["caller"]
    step = _listed("The files of a step")
    assert traced["step"] == sorted(step)
    assert len(step) <= MAX_STEP_FILES


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
    listed = dict(re.findall(r"^\d+\. `queues\.(\w+)` in `([^`]+)`", PAGE, re.MULTILINE))
    assert functions == set(listed)
    for name, file in listed.items():
        assert f"function queues.{name}(" in (SOURCE / "sql" / file).read_text()


def test_the_page_follows_a_join_through_two_sql_files(tracked: psycopg.Connection[Any]) -> None:
    run: Callable[[Statement[Any]], Any] = Engine(tracked).run
    run(workers.register_worker("worker-1", "this-host", queues=["run", "work"]))
    crossed: set[str] = set()

    def claimed(queue: str) -> tuple[str, int]:
        tracked.execute("select queues.claim('worker-1', queues => array[%s])", (queue,))
        row = tracked.execute(
            "select task_id, token from queues.lease join queues.task t using (task_id) where t.queue = %s",
            (queue,),
        ).fetchone()
        assert row is not None
        return str(row[0]), row[1]

    def crossing(statement: Statement[Any]) -> None:
        crossed.update(_traced(tracked, statement))

    run(enqueue_one(NewTask("run.parent", {})))
    parent, token = claimed("run")
    step = steps.StartingStep(name="pack", number=1, awaited=True)
    children = '[{"type": "work.pack"}]'
    crossing(steps.start_children("worker-1", parent, token, step=step, tasks=children, payloads=None))
    until = "2100-01-01T00:00:00Z"
    waits = f'"waits":[{{"name":"pack","until":"{until}","policy":"all"}}]'
    crossing(
        leases.finish("worker-1", [leases.result_json(parent, token, "suspend", run_at=until, memo=waits)])
    )
    child, of_child = claimed("work")
    crossing(leases.finish("worker-1", [leases.result_json(child, of_child, "succeeded", result="7")]))
    crossing(steps.wake_joined([child]))
    parent, token = claimed("run")
    crossing(steps.read_steps("worker-1", [steps.read_json(parent, token, [])]))

    listed = dict(re.findall(r"^- `queues\.(\w+)` in `([^`]+)`", PAGE, re.MULTILINE))
    assert listed.keys() - {name.removeprefix("queues/") for name in crossed} == set()
    assert len(set(listed.values())) == 2
    for name, file in listed.items():
        assert f"function queues.{name}(" in (SOURCE / "sql" / file).read_text()
