"""Logs: fields for machines, colours for people, and the task on every line about one."""

import contextvars
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from holdfast._telemetry import logs
from holdfast._telemetry.current_job import current_job
from holdfast._telemetry.logs import configure, is_verbose, worker_log
from holdfast._worker.jobs import Job
from support.leases import claimed
from support.workshop import Workshop

ABOUT_A_TASK = {"task_started", "task_ended", "attempt_failed", "no_handler_registered"}


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process without configured logs."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    monkeypatch.setattr(logs, "_lines", logs._lines)
    structlog.reset_defaults()
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture(params=["structlog", "no structlog"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """With an application that has loaded structlog, and with one that has not."""
    del fresh
    if request.param == "no structlog":
        monkeypatch.delitem(sys.modules, "structlog")


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job(claimed("some-id", attempt=2), time.monotonic())
    token = current_job.set(job)
    yield job
    current_job.reset(token)


async def test_every_line_about_a_task_names_it(shop: Workshop) -> None:
    @shop.task("work.fail")
    async def fail() -> None:
        raise RuntimeError("no")

    async with shop.working():
        handle = await fail.aenqueue()
        await shop.becomes(handle, "retrying")
        await shop.logged("task_ended")
    lines = [line for line in shop.logs if line["event"] in ABOUT_A_TASK]
    assert {line["event"] for line in lines} == {"task_started", "attempt_failed", "task_ended"}
    assert {(line["task_id"], line["type"], line["attempt"]) for line in lines} == {
        (str(handle.task_id), "work.fail", 1)
    }
    assert shop.lines("attempt_failed")[0]["error"] == "RuntimeError: no"


async def test_every_line_names_the_worker(shop: Workshop) -> None:
    async with shop.working() as worker:
        pass
    assert {line["worker_id"] for line in shop.logs} == {worker.worker_id}


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"worker_log_tasks": "always"}, "info"),
        ({"worker_log_tasks": "never", "log_format": "console"}, "debug"),
        ({"log_format": "console"}, "info"),
        ({"log_format": "json"}, "debug"),
    ],
)
async def test_finished_tasks_are_logged_for_people_or_where_the_settings_say_so(
    shop: Workshop, settings: dict[str, Any], level: str
) -> None:
    @shop.task("work.echo")
    async def echo() -> None:
        pass

    async with shop.working(**settings):
        await shop.ended(await echo.aenqueue())
        line = await shop.logged("task_ended", status="succeeded")
    assert line["level"] == level
    assert ("seconds" in line) == (level == "info")


@pytest.mark.parametrize("wanted", ["always", "never"])
async def test_a_task_that_failed_for_good_is_always_a_warning(shop: Workshop, wanted: str) -> None:
    @shop.task("work.fail", max_attempts=1)
    async def fail() -> None:
        raise RuntimeError("no")

    async with shop.working(worker_log_tasks=wanted):
        await shop.ended(await fail.aenqueue())
        line = await shop.logged("task_ended", status="dead_letter")
    assert line["level"] == "warning"


@pytest.mark.usefixtures("fresh", "job")
def test_json_has_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")
    structlog.get_logger().info("hello", number=7)
    line = json.loads(capsys.readouterr().err)
    assert line.items() >= {"event": "hello", "number": 7, "level": "info", "task_id": "some-id"}.items()
    assert line["timestamp"].endswith("Z")


@pytest.mark.usefixtures("either", "job")
def test_what_is_logged_with_pythons_own_logging_looks_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers.clear()  # those of pytest
    configure("json", "info")
    logging.getLogger("shop.orders").warning("sold %s", "out")
    line = json.loads(capsys.readouterr().err)
    assert (
        line.items()
        >= {
            "event": "sold out",
            "level": "warning",
            "logger": "shop.orders",
            "task_id": "some-id",
            "attempt": 2,
        }.items()
    )


@pytest.mark.usefixtures("either")
def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "warning")
    log = worker_log("w1")
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["loud"]
    assert not is_verbose(log)


@pytest.mark.usefixtures("either")
def test_debug_has_a_line_for_every_task() -> None:
    configure("json", "debug")
    assert is_verbose(worker_log("w1"))


@pytest.mark.usefixtures("either")
def test_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure("console", "info")
    worker_log("w1").info("worker_started", concurrency=10)
    assert "worker_started" in capsys.readouterr().err


@pytest.mark.usefixtures("either")
def test_without_a_terminal_logs_are_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert not sys.stderr.isatty()
    configure(None, "info")
    worker_log("w1").info("worker_started")
    assert json.loads(capsys.readouterr().err)["event"] == "worker_started"


@pytest.mark.usefixtures("fresh")
def test_an_application_that_has_set_up_its_logs_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure(processors=[lambda *_: "mine"], logger_factory=structlog.PrintLoggerFactory())
    logging.basicConfig(format="mine too: %(message)s", stream=sys.stdout, force=True)
    configure(None, "info")
    worker_log("w1").info("worker_started")
    logging.getLogger("x").warning("y")
    assert capsys.readouterr().out.splitlines() == ["mine", "mine too: y"]


@pytest.mark.usefixtures("broken_logs")
def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    log = worker_log("w1")
    for write in (log.debug, log.info, log.warning, log.error, log.critical, log.exception):
        write("hello", number=7)


@pytest.mark.usefixtures("either")
def test_an_exception_is_one_line_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")
    try:
        1 / 0  # noqa: B018 - what is tested
    except ZeroDivisionError:
        worker_log("w1").exception("failed")
    line = json.loads(capsys.readouterr().err)
    assert "ZeroDivisionError" in line["exception"]


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.usefixtures("either")
def test_a_traceback_has_no_values_of_variables(capsys: pytest.CaptureFixture[str], form: Any) -> None:
    def fail(credential: str) -> float:
        return len(credential) / 0

    configure(form, "info")
    try:
        fail("hush" * 2)
    except ZeroDivisionError:
        worker_log("w1").exception("failed")
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert "hushhush" not in shown


@pytest.mark.usefixtures("either", "job")
def test_a_line_of_the_application_names_the_task_and_the_worker(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "info")

    def write() -> None:
        logs.name_worker("w1")
        logs.Log(number=7).bind(colour="red").info("hello", thing=object)

    contextvars.copy_context().run(write)
    line = json.loads(capsys.readouterr().err)
    expected = {"event": "hello", "number": 7, "colour": "red", "worker_id": "w1", "task_id": "some-id"}
    assert line.items() >= expected.items()
    assert line["thing"] == "<class 'object'>"


def test_a_worker_loads_neither_structlog_nor_rich() -> None:
    script = "import sys, holdfast._worker.worker_process; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in ran.stdout.split()}.isdisjoint(
        {"structlog", "rich", "greenlet"}
    )
