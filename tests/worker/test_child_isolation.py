"""What a handler in a child process is kept from: the account, the variables and the memory of others."""

import os
import pwd
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

import pytest

from support import hostile
from support.documents import ROOT
from support.workshop import Workshop


def _ask(works: Workshop, task_type: str, executor: str | None = None, payload: str = "{}") -> Any:
    """As somebody does who does not have the code of the application."""
    row = works.conn.execute(
        "select queues.enqueue(%s, %s::jsonb, executor => %s)", [task_type, payload, executor]
    ).fetchone()
    assert row
    return row[0]


async def test_the_declaration_of_a_handler_binds_its_isolation_whatever_the_row_says(
    works: Workshop,
) -> None:
    command = {"echo": {"types": ["work."], "argv": ["echo", '{"success": true, "payload": "program"}']}}
    async with works.working(process_pool=1, commands=command):
        for executor in (None, "python", "process", "command"):
            pid, _ = (await works.ended(_ask(works, "work.identity", executor)))["result"]
            assert pid != os.getpid(), executor
            assert (await works.ended(_ask(works, "work.program", executor)))["result"] == "program"
        stricter = await works.ended(_ask(works, "work.here", "process"))
        assert stricter["result"] != os.getpid(), "more isolation than declared may be asked for"
        other = await works.ended(_ask(works, "work.here", "command"))
        assert (other["status"], other["error"]["kind"]) == ("failed", "executor_refused")
        assert "is declared with executor='python'" in other["last_error"]


async def test_a_handler_that_needs_an_authority_is_not_run_for_those_who_have_none(works: Workshop) -> None:
    async with works.working():
        for executor in (None, "process", "command"):
            row = await works.ended(_ask(works, "work.function", executor))
            assert (row["status"], row["error"]["kind"]) == ("failed", "executor_refused")
            assert "enqueue it with the executor db_function" in row["last_error"]


def _packages() -> str:
    return os.pathsep.join([f"{ROOT}/tests", f"{ROOT}/src", sysconfig.get_path("purelib")])


def _python_for_others() -> str | None:
    """A Python that another account can run with our packages: this one, or that of the process_tree."""
    if os.geteuid() != 0:
        return None
    check = f"import sys, holdfast._worker.worker; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            command, environment = [python, "-c", check], {"PYTHONPATH": _packages()}
            if not subprocess.run(
                command, user="nobody", env=environment, check=False, stderr=subprocess.DEVNULL
            ).returncode:
                return python
        except (OSError, KeyError):
            continue
    return None


async def test_a_handler_that_is_declared_so_always_has_the_account_of_runs(works: Workshop) -> None:
    python = _python_for_others()
    if python is None:
        pytest.skip("this needs root, and a Python that the account nobody can run")
    account = pwd.getpwnam("nobody")
    environment = os.environ | {
        "DATABASE_URL": works.db.dsn,
        "HOLDFAST_PROCESS_USER": "nobody",
        "PYTHONPATH": _packages(),
        "WORKER_TYPE_PREFIXES": "work.identity,work.variables",
    }
    run = "from holdfast.cli import main; main()"
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # noqa: PTH101, S103 - the other account works there
        command = [python, "-c", run, "worker", "support.hostile:app"]
        worker = subprocess.Popen(command, env=environment, cwd=directory)  # noqa: ASYNC220 - a worker for the length of the test
        try:
            row = await works.ended(_ask(works, "work.identity"))
            variables = (await works.ended(await hostile.variables.aenqueue()))["result"]
        finally:
            worker.terminate()
            worker.wait()
    assert (row["status"], row["last_error"]) == ("succeeded", None)
    assert row["result"][1] == account.pw_uid
    assert (variables["USER"], variables["HOME"]) == ("nobody", account.pw_dir)


async def test_a_child_gets_the_variables_that_are_chosen_and_no_others(
    works: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("DATABASE_URL", "HOLDFAST_SMTP_PASSWORD", "HOLDFAST_WEB_SECRET", "AWS_SECRET_ACCESS_KEY")
    for name in secrets:
        monkeypatch.setenv(name, "postgresql://secret@nowhere/some_database")
    monkeypatch.setenv("SHOP_REGION", "eu")
    monkeypatch.setenv("SHOP_COLOUR", "red")
    monkeypatch.setenv("SHOPPING", "no")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    async with works.working(process_pool=1):
        plain = (await works.ended(await hostile.variables.aenqueue()))["result"]
        lost = await works.ended(await hostile.enqueue_another.aenqueue())
    async with works.working(process_pool=1, process_env="SHOP_*,AWS_SECRET_ACCESS_KEY,MODE=fast"):
        chosen = (await works.ended(await hostile.variables.aenqueue()))["result"]
    assert not plain.keys() & {*secrets, "SHOP_REGION", "SHOPPING"}
    assert (plain["PATH"], plain["TZ"]) == (os.environ["PATH"], "Europe/Berlin")
    assert not [name for name, value in plain.items() if "secret" in value]
    assert "HOLDFAST_PROCESS_ENV=DATABASE_URL" in lost["last_error"]
    assert {name: chosen.get(name) for name in ("SHOP_REGION", "SHOP_COLOUR", "SHOPPING", "MODE")} == {
        "SHOP_REGION": "eu",
        "SHOP_COLOUR": "red",
        "SHOPPING": None,
        "MODE": "fast",
    }
    assert "AWS_SECRET_ACCESS_KEY" in chosen
    assert "DATABASE_URL" not in chosen


async def test_a_fresh_task_sees_nothing_of_others_and_leaves_nothing_to_them(works: Workshop) -> None:
    async with works.working(process_pool=1, worker_concurrency=1):
        assert (await works.ended(await hostile.plant.aenqueue("a")))["result"] == ["a"]
        assert (await works.ended(await hostile.plant.aenqueue("b")))["result"] == ["a", "b"], "a warm child"
        assert (await works.ended(await hostile.plant_fresh.aenqueue("c")))["result"] == ["c"]
        assert (await works.ended(await hostile.plant_fresh.aenqueue("d")))["result"] == ["d"]
        assert "c" not in (await works.ended(await hostile.plant.aenqueue("e")))["result"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can refuse them")
async def test_a_handler_in_a_child_process_cannot_gain_rights(works: Workshop) -> None:
    async with works.working(process_pool=1):
        assert (await works.ended(await hostile.privileges.aenqueue()))["result"].split() == [
            "NoNewPrivs:",
            "1",
        ]
