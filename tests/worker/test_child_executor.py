"""The executor `process`: whatever a handler does, only its own process ends, and it ends wholly."""

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.isolation import process_tree
from support import hostile
from support.command import holdfast
from support.documents import ROOT
from support.processes import is_ours
from support.workshop import Row, Workshop

MEBIBYTE = 1024 * 1024


def _is_alive(path: Path) -> bool:
    """The process whose number is in this file."""
    try:
        return Path(f"/proc/{int(path.read_text())}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _is_written(path: Path) -> bool:
    return path.exists() and path.read_text() != ""


async def _error(shop: Workshop, task: Any) -> Row:
    await shop.ended(task)
    (error,) = await shop.errors(task)
    return error


async def test_results_exceptions_outcomes_and_progress_are_as_in_process(
    works: Workshop, tmp_path: Path
) -> None:
    async with works.working(process_pool=1, worker_concurrency=1):
        plain = await works.ended(await hostile.add.aenqueue(1, b=2))
        assert (plain["status"], plain["result"]) == ("succeeded", 3)
        assert (await works.ended(await hostile.add_async.aenqueue(4)))["result"] == 5

        failing = await hostile.raise_error.aenqueue("no good")
        await works.becomes(failing, "retrying")
        (error,) = await works.errors(failing)
        assert (error["kind"], error["message"]) == ("handler_error", "ValueError: no good")
        assert error["detail"]["exception"] == "builtins.ValueError"
        assert "raise ValueError(text)" in error["detail"]["traceback"]
        assert error["detail"]["stdout"] == "before no good\n"
        assert error["detail"]["stderr"] == "to stderr\n"
        assert (error["retry_at"] - error["occurred_at"]).total_seconds() == pytest.approx(1000, abs=30)

        assert (await works.becomes(await hostile.outcome.aenqueue("snooze"), "scheduled"))["attempt"] == 0
        cancelled = await works.ended(await hostile.outcome.aenqueue("cancel"))
        assert (cancelled["status"], cancelled["reason"]) == ("cancelled", "no longer wanted")
        failed = await works.ended(await hostile.outcome.aenqueue("fail"))
        assert (failed["status"], failed["error"]["kind"]) == ("failed", "failed_by_handler")
        odd = await works.ended(await hostile.outcome.aenqueue("object"))
        assert (odd["status"], odd["error"]["kind"]) == ("failed", "result_not_serializable")
        assert (await _error(works, _enqueue_text(works)))["kind"] == "invalid_payload"
        refused = await works.ended(await hostile.transaction.aenqueue())
        assert "use the executor python" in refused["last_error"]

        task = await hostile.progress.aenqueue(str(tmp_path / "go"))
        told = await works.until(
            "select progress from queues.task_status where task_id = %s and progress is not null",
            task.task_id,
        )
        assert told["progress"] == {"done": 1, "total": 2, "note": "half of it"}
        (tmp_path / "go").touch()
        assert (await works.ended(task))["status"] == "succeeded"


def _enqueue_text(works: Workshop) -> Any:
    """Where a number is expected, past the checks of the application."""
    row = works.conn.execute(
        "select queues.enqueue('work.add', '{\"a\": \"x\"}', executor => 'process')"
    ).fetchone()
    assert row
    return row[0]


async def test_a_handler_runs_in_a_warm_child_with_a_session_of_its_own(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=1, process_runs=2):
        first = await hostile.whereabouts.using(metadata={"from": "test"}).aenqueue()
        found = (await works.ended(first))["result"]
        again = (await works.ended(await hostile.whereabouts.aenqueue()))["result"]
        another = (await works.ended(await hostile.whereabouts.aenqueue()))["result"]
    assert found == {
        "pid": found["pid"],
        "task_id": str(first.task_id),
        "attempt": 1,
        "session": found["pid"],
        "directory": str(Path.cwd()),
        "metadata": {"from": "test"},
    }
    assert os.getpid() != found["pid"] == again["pid"]
    assert another["pid"] != found["pid"], "a child that has served long enough is replaced"


async def test_what_a_library_logs_in_a_child_names_worker_and_task(
    works: Workshop, capfd: pytest.CaptureFixture[str]
) -> None:
    async with works.working(process_pool=1, log_format="json") as worker:
        task = await hostile.logs.aenqueue()
        await works.ended(task)
    line = next(json.loads(text) for text in capfd.readouterr().err.splitlines() if "from a child" in text)
    assert (line["worker_id"], line["task_id"]) == (worker.worker_id, str(task.task_id))


@pytest.mark.full
async def test_every_hostile_handler_ends_as_its_own_kind_and_touches_nobody_else(
    works: Workshop, tmp_path: Path
) -> None:
    family = tmp_path / "pid"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with works.working(worker_concurrency=20, kill_grace="1s"):
        tasks = {
            "signal": await hostile.abort.aenqueue(),
            "memory_limit": await hostile.allocate.aenqueue(),
            "memory_limit, at once": await hostile.allocate_at_once.aenqueue(),
            "timeout": await hostile.loop_in_c.aenqueue(),
            "timeout, deaf": await hostile.ignore_term.aenqueue(),
            "timeout, with a family": await hostile.leave_grandchild.using(timeout=hostile.LIMIT).aenqueue(
                str(family), and_wait=True
            ),
            "output_limit": await hostile.print_much.aenqueue(),
            "envelope_missing": await hostile.no_envelope.aenqueue(),
            "envelope_malformed": await hostile.bad_envelope.aenqueue(),
            "exit_code": await hostile.exit_at_once.aenqueue(7),
            "cpu_limit": await hostile.spin.aenqueue(),
            "process_limit": await hostile.many_processes.aenqueue(),
            "handler_error": await hostile.nul.aenqueue(),
            "handler_error, of a limit": await hostile.many_files.aenqueue(str(tmp_path / "big")),
        }
        others = [await hostile.here.aenqueue() for _ in range(20)]
        others += await hostile.add.aenqueue_many([(n,) for n in range(20)])
        errors = {kind: await _error(works, task) for kind, task in tasks.items()}
        for task in others:
            row = await works.ended(task)
            assert (row["status"], row["attempt"]) == ("succeeded", 1)
        assert not _is_alive(family)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown < 60, "the worker has taken what a handler printed or allocated"
    assert {kind: error["kind"] for kind, error in errors.items()} == {
        kind: kind.partition(",")[0] for kind in tasks
    }
    details = {kind: error["detail"] for kind, error in errors.items()}
    assert (details["signal"]["signal"], details["signal"]["stdout"]) == ("SIGABRT", "last words\n")
    assert "in abort" in details["signal"]["stderr"], "where it was"
    assert "in loop_in_c" in details["timeout"]["stderr"], "where it was"
    assert details["timeout, deaf"]["signal"] == "SIGKILL"
    assert details["exit_code"]["exit_code"] == 7
    assert 16 * MEBIBYTE < details["output_limit"]["stdout_bytes"] < 32 * MEBIBYTE
    assert len(details["output_limit"]["stdout"]) < 10_000
    assert "bytes left out" in details["output_limit"]["stdout"]
    assert errors["handler_error"]["message"] == "ValueError: a \ufffd and a \ufffd"
    assert details["handler_error"]["stdout"] == "out \ufffd put \\udcff\n"
    assert "File too large" in errors["handler_error, of a limit"]["message"]


@pytest.mark.full
async def test_what_a_run_has_left_behind_ends_with_it(works: Workshop, tmp_path: Path) -> None:
    async with works.working(process_pool=1, worker_concurrency=1):
        row = await works.ended(await hostile.leave_grandchild.aenqueue(str(tmp_path / "one")))
        assert (row["status"], row["result"]) == ("succeeded", "done")
        assert not _is_alive(tmp_path / "one")
        error = await _error(
            works, await hostile.leave_grandchild.aenqueue(str(tmp_path / "two"), and_exit=True)
        )
        assert (error["kind"], error["detail"]["exit_code"]) == ("exit_code", 3)
        assert not _is_alive(tmp_path / "two")
        for copied in [await hostile.fork.aenqueue(), await hostile.fork.aenqueue()]:
            assert (await works.ended(copied))["result"] == "original", "a copy that comes back is not heard"


async def test_a_cancelled_run_may_clean_up_and_its_end_is_kept(works: Workshop, tmp_path: Path) -> None:
    async with works.working(heartbeat="100ms", kill_grace="20s", process_pool=2):
        for task in (hostile.until_stopped, hostile.until_cancelled):
            state = tmp_path / task.type
            handle = await task.aenqueue(str(state))
            await works.sees(state.exists)
            works.conn.execute("select queues.cancel(%s, 'no need')", [handle.task_id])
            error = await works.until("select * from queues.task_error where task_id = %s", handle.task_id)
            row = await works.ended(handle)
            assert state.read_text() == "cleaned up"
            assert (error["kind"], error["detail"]["exit_code"]) == ("killed_on_cancel", 0)
            assert (row["status"], row["reason"]) == ("cancelled", "no need")
            events = works.conn.execute(
                "select event_type from queues.task_event where task_id = %s", [handle.task_id]
            ).fetchall()
            assert [name for (name,) in events][-2:] == ["cancelled", "killed"]


async def test_a_child_process_is_ended_by_the_deadline_of_its_task(works: Workshop, tmp_path: Path) -> None:
    async with works.working(process_pool=1, worker_concurrency=1, kill_grace="1s"):
        task = hostile.loop_in_c.using(timeout=100, deadline=2)
        ended = await works.ended(await task.aenqueue(str(tmp_path / "pid")))
        assert (ended["status"], ended["error"]["kind"]) == ("failed", "deadline_passed")
        await works.sees(lambda: not _is_alive(tmp_path / "pid"))


async def test_a_cancelled_run_that_does_not_end_is_killed(works: Workshop, tmp_path: Path) -> None:
    async with works.working(heartbeat="100ms", kill_grace="200ms", process_pool=1):
        handle = await hostile.loop_in_c.using(timeout=100).aenqueue(str(tmp_path / "pid"))
        await works.sees(lambda: _is_written(tmp_path / "pid"))
        works.conn.execute("select queues.cancel(%s)", [handle.task_id])
        error = await works.until("select * from queues.task_error where task_id = %s", handle.task_id)
        assert not _is_alive(tmp_path / "pid")
    assert (error["kind"], error["detail"]["signal"]) == ("killed_on_cancel", "SIGKILL")


async def test_a_run_that_the_worker_cannot_wait_for_is_killed_and_given_back(
    works: Workshop, tmp_path: Path
) -> None:
    async with works.working(grace="0s", process_pool=1):
        handle = await hostile.loop_in_c.using(timeout=100).aenqueue(str(tmp_path / "pid"))
        await works.sees(lambda: _is_written(tmp_path / "pid"))
    assert not _is_alive(tmp_path / "pid")
    assert (await works.becomes(handle, "pending"))["attempt"] == 0
    (error,) = await works.errors(handle)
    assert (error["kind"], error["attempt"]) == ("killed_on_shutdown", 1)


async def test_an_application_that_no_child_can_import_says_so(shop: Workshop) -> None:
    @shop.task("work.local", executor="process")
    def local() -> None: ...

    async with shop.working():
        await shop.logged("application_not_found")
        handle = await local.aenqueue()
        row = await shop.becomes(handle, "scheduled")
    assert (row["attempt"], row["error"]) == (0, None)
    [(reason,)] = shop.conn.execute("select error from queues.explain(%s)", [handle.task_id]).fetchall()
    assert "global name of a module" in reason


@pytest.mark.full
async def test_a_spawner_that_is_killed_takes_its_runs_along_and_is_replaced(
    works: Workshop, tmp_path: Path
) -> None:
    family = tmp_path / "pid"
    async with works.working(process_pool=1, worker_concurrency=1) as worker:
        handle = await hostile.leave_grandchild.aenqueue(str(family), and_wait=True)
        await works.sees(lambda: _is_written(family))
        spawner = cast("Any", worker._parts.runner._executors.find("process"))._spawner
        os.kill(spawner.pid, 9)
        assert (await _error(works, handle))["kind"] == "spawner_died"
        await works.sees(lambda: not _is_alive(family))
        assert (await works.ended(await hostile.add.aenqueue(1)))["result"] == 2


async def test_nothing_survives_a_worker_that_is_killed(works: Workshop, tmp_path: Path) -> None:
    arguments = ["worker", "support.hostile:app"]
    variables = {
        "DATABASE_URL": works.db.dsn,
        "HOLDFAST_COMMANDS": '{"program": {"argv": ["true"], "types": ["work.program"]}}',
    }
    with holdfast(*arguments, cwd=ROOT / "tests", **variables) as process:
        process.logged("worker_started")
        await hostile.leave_grandchild.aenqueue(str(tmp_path / "grandchild"), and_wait=True)
        await hostile.loop_in_c.using(timeout=100).aenqueue(str(tmp_path / "child"))
        paths = [tmp_path / "grandchild", tmp_path / "child"]
        await works.sees(lambda: all(map(_is_written, paths)))
        started = [pid for pid in process_tree.family_of(process.pid) if is_ours(pid)]
        assert {int(path.read_text()) for path in paths} <= set(started)
        process.send(signal.SIGKILL)
        assert process.ended() == -signal.SIGKILL
    await works.sees(lambda: not any(is_ours(pid) for pid in started))


@pytest.mark.parametrize("kind", ["steps", "steps_async"])
async def test_a_run_in_child_processes_remembers_its_steps(
    works: Workshop, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "effects"
    async with works.working(process_pool=1, worker_concurrency=2):
        handle = await getattr(hostile, kind).aenqueue(str(path))
        await works.until(
            "select from queues.wait_status where task_id = %s and signal = 'decision'", handle.task_id
        )
        await handle.asignal("decision", "yes")
        row = await works.ended(handle)
    assert (row["result"], path.read_text()) == ([1, "yes", 2], "xx")


@pytest.mark.parametrize("kind", ["children", "children_async"])
async def test_a_run_in_child_processes_starts_and_joins_children(works: Workshop, kind: str) -> None:
    async with works.working(process_pool=2, worker_concurrency=2):
        row = await works.ended(await getattr(hostile, kind).aenqueue())
    assert row["result"] == [0, 2, 4]


async def test_a_step_in_a_child_process_has_a_time_limit(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=1):
        error = await _error(works, await hostile.step_timeout.aenqueue())
    assert "took longer than its limit of 0.2 s" in error["message"]
