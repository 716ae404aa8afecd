"""The executor `ray`, on a cluster of this machine: attempts end as elsewhere, and leave nothing behind."""

import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast._worker.executors import check_executors
from holdfast._worker.handler import build_handler
from holdfast.errors import ConfigurationError, InvalidHandler
from holdfast.settings import Settings
from support import on_ray
from support.workshop import Workshop


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """The variables of a worker that uses it."""
    # A short path: Ray makes sockets in it, and the names of sockets are limited.
    with tempfile.TemporaryDirectory(prefix="hf-ray-", dir="/tmp") as directory:
        variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        with on_ray.cluster(Path(directory), variables) as address:
            yield {"RAY_ADDRESS": address, **variables}
        assert _processes(directory) == {}


def _processes(directory: str) -> dict[int, str]:
    """The command lines of all processes that use this directory."""
    found = {}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if directory in line and str(os.getpid()) != process.parent.name:
            found[int(process.parent.name)] = line
    return found


@pytest.fixture
async def works(
    shop: Workshop, cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Workshop]:
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    shop.app = on_ray.app
    with on_ray.app.at(shop.db.dsn):
        yield shop


def _is_alive(marker: Path) -> bool:
    return Path(f"/proc/{marker.read_text()}").exists()


@pytest.mark.full
async def test_results_errors_output_and_progress_are_as_in_a_child_process(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=2):
        assert (await works.ended(await on_ray.add.aenqueue(1, b=2)))["result"] == 3

        failed = await on_ray.measure.aenqueue("no good")
        ended = await works.ended(failed)
        (error,) = await works.errors(failed)
        assert ended["status"] == "failed"
        assert (error["kind"], error["message"]) == ("handler_error", "ValueError: no good")
        assert "raise ValueError(text)" in error["detail"]["traceback"]
        assert error["detail"]["stdout"] == "measuring no good\nby a program\n"

        refused = await works.ended(await on_ray.step.aenqueue())
        assert "use the executor python or process" in refused["last_error"]


@pytest.mark.full
async def test_a_run_that_is_cancelled_or_past_its_time_is_ended_on_its_node(
    works: Workshop, tmp_path: Path
) -> None:
    first, second = tmp_path / "hang", tmp_path / "deaf"
    async with works.working(process_pool=2, worker_concurrency=2, kill_grace="5s"):
        for task, marker, printed in ((on_ray.hang, first, "hanging\n"), (on_ray.deaf, second, "deaf\n")):
            handle = await task.aenqueue(str(marker))
            await works.sees(marker.exists)
            await handle.acancel("no longer wanted")
            error = await works.until("select * from queues.task_error where task_id = %s", handle.task_id)
            assert (error["kind"], error["detail"]["stdout"]) == ("killed_on_cancel", printed)
        # The process that runs other attempts may live on; the one that heard nothing does not.
        await works.sees(lambda: not _is_alive(second))

        past_its_time = await works.ended(await on_ray.late.aenqueue())
        assert (past_its_time["status"], past_its_time["error"]["kind"]) == ("failed", "timeout")
        late = await works.ended(await on_ray.hang.using(deadline=3).aenqueue(str(tmp_path / "late")))
        assert (late["status"], late["error"]["kind"]) == ("failed", "deadline_passed")
        assert (await works.ended(await on_ray.add.aenqueue(1, b=2)))["result"] == 3


@pytest.mark.full
async def test_a_process_that_dies_on_its_node_is_told(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=1):
        crashed = await on_ray.crash.aenqueue()
        await works.ended(crashed)
        (error,) = await works.errors(crashed)

    assert error["kind"] == "executor_failed"
    assert "WorkerCrashedError" in error["message"]


@pytest.mark.full
async def test_a_cluster_that_cannot_be_reached_costs_the_attempt_and_not_the_worker(
    works: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    async with works.working(process_pool=1, worker_concurrency=1):
        lost = await on_ray.add.aenqueue(1, b=2)
        await works.ended(lost)
        (error,) = await works.errors(lost)

    assert error["kind"] == "executor_failed"
    assert "127.0.0.1:9" in error["message"]


@pytest.mark.full
async def test_a_cluster_that_is_lost_during_a_run_costs_the_attempt_and_the_task_is_retried(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shop.app = on_ray.app
    marker = tmp_path / "stay"
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with (
        tempfile.TemporaryDirectory(prefix="hf-ray-", dir="/tmp") as directory,
        on_ray.cluster(Path(directory), variables) as address,
        on_ray.app.at(shop.db.dsn),
    ):
        quickly = {"RAY_gcs_rpc_server_reconnect_timeout_s": "3"}  # 60 by default
        for name, value in {"RAY_ADDRESS": address, **quickly, **variables}.items():
            monkeypatch.setenv(name, value)
        async with shop.working(process_pool=1, worker_concurrency=1):
            lost = await on_ray.stay.aenqueue(str(marker))
            await shop.sees(marker.exists)
            for process in _processes(directory):
                os.kill(process, signal.SIGKILL)
            ended = await shop.ended(lost)
        errors = await shop.errors(lost)

    assert (ended["status"], ended["attempt"]) == ("dead_letter", 2)
    assert [(error["attempt"], error["kind"]) for error in errors] == [
        (1, "executor_failed"),
        (2, "executor_failed"),
    ]
    assert address in errors[1]["message"]


def test_a_worker_without_ray_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match="Ray is not installed") as refused:
        check_executors(Settings(), on_ray.app)
    assert "holdfast-pg[ray]" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ray": {"num_gpus": 1}}, 'Add executor="ray"'),
        ({"executor": "ray", "ray": {"num_gpu": 1}}, "did you mean 'num_gpus'"),
        ({"executor": "ray", "ray": {"max_retries": 3}}, "no option 'max_retries'"),
        ({"executor": "ray", "memory": "1G"}, "need a child process"),
    ],
)
def test_what_ray_does_not_take_is_refused_at_the_decorator(options: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidHandler) as refused:
        build_handler("work.add", lambda: None, **options)
    assert match in f"{refused.value} {refused.value.hint}"
