"""holdfast dev: the program of its page, edited while it runs; and what watches code and child processes."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.cli import code_changes, local_processes
from holdfast.cli.code_changes import CodeChanges
from holdfast.cli.dev import ask_application
from holdfast.cli.local_processes import LocalProcesses, Log, Part
from support.command import HOLDFAST, IGNORING_INTERRUPTS
from support.commands import run
from support.database import Database
from support.documents import DOCS, code
from support.processes import descendants, processes

PATIENCE_SECONDS = 60.0
RESTARTED = re.compile(r"worker +\|.*worker_started")


class Developed:
    """A running holdfast dev, and its log as far as it was read."""

    def __init__(self, process: "subprocess.Popen[str]", directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.program = directory / "shop.py"
        self.text = ""
        self._seen = 0
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def logged(self, pattern: str) -> str:
        """Wait until a line after the last one that was asked for matches."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._more:
            while not (found := re.compile(pattern).search(self.text, self._seen)):
                assert self._more.wait(deadline - time.monotonic()), f"{pattern} not in:\n{self.text}"
            self._seen = found.end()
            return found[0]

    def edit(self, old: str, new: str) -> None:
        text = self.program.read_text()
        assert old in text
        self.program.write_text(text.replace(old, new))

    def run_program(self, **variables: str) -> str:
        """Run the program as the reader does; it enqueues a task and waits for its result."""
        program = [sys.executable, str(self.program)]
        done = subprocess.run(
            program, check=True, capture_output=True, text=True, env=os.environ | variables, timeout=60
        )
        return done.stdout.strip()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._more:
                self.text += line
                self._more.notify_all()


@contextmanager
def developing(directory: Path, *arguments: str, **variables: str) -> Iterator[Developed]:
    [program] = code((DOCS / "howto" / "develop.md").read_text(), "python")
    (directory / "shop.py").write_text(program)
    inherited = {name: value for name, value in os.environ.items() if name != "HOLDFAST_LOG_LEVEL"}
    with subprocess.Popen(
        [*IGNORING_INTERRUPTS, HOLDFAST, "dev", "shop:app", "--port", "0", *arguments],
        env=inherited | {"HOLDFAST_HOME": str(directory / ".holdfast")} | variables,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Developed(process, directory)
        finally:
            process.terminate()


def address_of(developed: Developed) -> tuple[str, str]:
    printed = ""
    assert developed.process.stdout
    for line in developed.process.stdout:
        printed += line
        if "Ctrl-C" in line:
            break
    [found] = re.findall(r"(http://127\.0\.0\.1:\d+)/login#(hf_\S+)", printed)
    return str(found[0]), str(found[1])


@pytest.mark.full
@pytest.mark.timeout(200)
def test_the_next_task_runs_the_edited_code_and_ctrl_c_leaves_nothing(db: Database, tmp_path: Path) -> None:
    with developing(tmp_path, DATABASE_URL=db.dsn) as it:
        url, token = address_of(it)
        assert it.run_program(DATABASE_URL=db.dsn) == "charged 9.50 for invoice 7"
        it.logged(r"worker +\|.*task_ended.*status=succeeded")

        it.edit("charged {amount}", "CHARGED {amount}")
        it.edit("invoice-7", "invoice-8")
        it.logged(r"worker +\| shop\.py changed: the worker is started again\.")
        assert it.run_program(DATABASE_URL=db.dsn) == "CHARGED 9.50 for invoice 7"

        it.edit("CHARGED {amount}", "CHARGED {amount")
        it.logged(r"worker +\|.*SyntaxError")
        it.logged(r"worker +\| The worker exited \(exit code 1\)\. No worker runs until you change a file\.")
        it.edit("CHARGED {amount", "paid {amount}")
        it.edit("invoice-8", "invoice-9")
        assert it.run_program(DATABASE_URL=db.dsn) == "paid 9.50 for invoice 7"

        tasks = httpx.get(f"{url}/v1/tasks", headers={"Authorization": f"Bearer {token}"}).json()["tasks"]
        assert [task["status"] for task in tasks] == ["succeeded"] * 3
        started = descendants(it.process.pid)
        assert len(started) >= 3
        it.process.send_signal(signal.SIGINT)
        assert it.process.wait(60) == 0
        assert [line for pid, _, line in processes() if pid in started] == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))


LONG = """
import asyncio, pathlib

@app.task("billing.long", max_attempts=3)
async def long() -> str:
    pathlib.Path("begun").touch()
    await asyncio.sleep(600)
    return "old"
"""


@pytest.mark.full
@pytest.mark.timeout(300)
def test_on_an_embedded_server_a_running_task_is_given_back_and_runs_the_new_code(tmp_path: Path) -> None:
    with developing(tmp_path, DATABASE_URL="", HOLDFAST_GRACE="200ms") as it:
        it.program.write_text(it.program.read_text().replace("if __name__", f"{LONG}\n\nif __name__"))
        address_of(it)
        until(lambda: RESTARTED.search(it.text))
        enqueue = "import shop; print(shop.long.enqueue().result(timeout=90)); shop.app.close()"
        with subprocess.Popen(
            [sys.executable, "-c", enqueue],
            cwd=tmp_path,
            env={**os.environ, "HOLDFAST_HOME": str(tmp_path / ".holdfast")},
            stdout=subprocess.PIPE,
            text=True,
        ) as waiting:
            until((tmp_path / "begun").exists)
            it.edit("await asyncio.sleep(600)\n    return 'old'".replace("'", '"'), 'return "new"')
            assert waiting.communicate(timeout=90)[0] == "new\n"
        started = descendants(it.process.pid)
        it.process.send_signal(signal.SIGINT)
        assert it.process.wait(60) == 0
        left = [line for pid, _, line in processes() if pid in started or str(tmp_path) in line]
        assert left == []


def test_missing_packages_are_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version

    def version(package: str) -> str:
        if package in ("watchfiles", "uvicorn"):
            raise metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.chdir(tmp_path)
    refused = run("dev", "shop:app", url="")
    assert refused.exit_code == 2
    [line] = refused.stderr.splitlines()
    assert "uvicorn, watchfiles" in line
    assert "pip install 'holdfast-pg[dev]'" in line
    assert list(tmp_path.iterdir()) == []


def test_packages_of_the_tests_are_not_needed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    installed = metadata.version

    def version(package: str) -> str:
        if package == "pytest":
            raise metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr(metadata, "version", version)
    run("dev", "no_such_module:app", url="")
    assert "there is no module 'no_such_module'" in capfd.readouterr().err


def test_the_database_of_the_application_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "more.py").write_text("")
    here = tmp_path / "here"
    here.mkdir()
    program = "import more\nfrom holdfast import App\nprint('loaded')\napp = App('postgresql://x/shop')\n"
    (here / "shop.py").write_text(program)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    found = ask_application("shop:app")
    assert found["database_url"] == "postgresql://x/shop"
    assert str(tmp_path / "elsewhere") in found["directories"]
    assert str(here) not in found["directories"]


def test_an_application_that_cannot_be_loaded_is_reported_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text("def (\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / ".holdfast"))
    assert run("dev", "shop:app", "--port", "0", url="").exit_code == 1
    assert "SyntaxError" in capfd.readouterr().err
    assert run("dev", "shop:nothing", "--port", "0", url="").exit_code == 1
    assert not (tmp_path / ".holdfast").exists()


class Watching:
    """The changes that a CodeChanges yields."""

    def __init__(self, changes: CodeChanges) -> None:
        self.seen: list[str] = []
        self.changes = changes
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self) -> None:
        for paths in self.changes:
            self.seen += [Path(path).name for path in paths]


@contextmanager
def watching(below: Path, *others: str) -> Iterator[list[str]]:
    watch = Watching(CodeChanges(below, others))
    try:
        yield watch.seen
    finally:
        watch.changes.stop()
        watch.thread.join(30)
        assert not watch.thread.is_alive()


def until(look: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_changes_of_code_are_noticed_also_in_directories_that_are_new(tmp_path: Path) -> None:
    for ignored in (".hidden", "node_modules", "environment"):
        (tmp_path / ignored).mkdir()
    (tmp_path / "environment" / "pyvenv.cfg").touch()
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.mkdir()
    with watching(tmp_path, str(other)) as seen:
        (tmp_path / "a.py").write_text("1")
        until(lambda: "a.py" in seen)
        (tmp_path / "package").mkdir()
        (tmp_path / "package" / "b.py").write_text("1")
        until(lambda: "b.py" in seen)
        (tmp_path / "package" / "b.py").write_text("2")
        until(lambda: seen.count("b.py") >= 2)
        (other / "c.py").write_text("1")
        until(lambda: "c.py" in seen)
        for ignored in (".hidden", "node_modules", "environment"):
            (tmp_path / ignored / "never.py").write_text("1")
        (tmp_path / "data.txt").write_text("1")
        (tmp_path / "a.py").unlink()
        until(lambda: seen.count("a.py") >= 2)
        assert not {"never.py", "data.txt"} & set(seen)


def test_without_events_the_files_are_compared_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Iterator[Any]:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr("watchfiles.watch", refuse)
    with watching(tmp_path) as seen:
        (tmp_path / "a.py").write_text("1")
        until(lambda: "a.py" in seen)


def test_of_too_many_directories_only_the_first_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_changes, "MAX_DIRECTORIES", 3)
    for number in range(5):
        (tmp_path / f"d{number}").mkdir()
    changes = CodeChanges(tmp_path)
    assert not changes.complete
    assert len(changes.directories) == 3


@contextmanager
def supervised(
    monkeypatch: pytest.MonkeyPatch, script: Path, *, reloads: bool = True
) -> Iterator[tuple[LocalProcesses, io.StringIO, threading.Event]]:
    monkeypatch.setattr(local_processes, "_COMMAND", [sys.executable])
    monkeypatch.setattr(local_processes, "RESTART_SECONDS", 0.0)
    log, stopped = io.StringIO(), threading.Event()
    parts = (Part("worker", (str(script),), reloads=reloads),)
    children = LocalProcesses(parts, Log(log), stop_all=stopped.set, stop_seconds=1.0)
    with children.running():
        yield children, log, stopped


WAITS = "import os, time; print('\\x1b[1mpid', os.getpid(), flush=True); time.sleep(600)"


def pids(log: io.StringIO) -> list[int]:
    """Without colours, and with the name of the part."""
    return [int(pid) for pid in re.findall(r"(?m)^worker   \| pid (\d+)$", log.getvalue())]


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script := tmp_path / "script.py").write_text(WAITS)
    with supervised(monkeypatch, script) as (_, log, stopped):
        until(lambda: pids(log))
        os.kill(pids(log)[0], signal.SIGKILL)
        until(lambda: len(pids(log)) == 2)
        assert not stopped.is_set()
    assert "exited (SIGKILL) and is started again" in log.getvalue()
    for pid in pids(log):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_worker_that_ignores_the_end_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script := tmp_path / "script.py").write_text(
        f"import signal; signal.signal(15, signal.SIG_IGN); {WAITS}"
    )
    with supervised(monkeypatch, script) as (children, log, _):
        until(lambda: pids(log))
        children.changed(["shop.py"])
        until(lambda: len(pids(log)) == 2)
    assert "did not end in time and is killed" in log.getvalue()


def test_a_part_that_is_not_reloaded_and_ends_stops_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script := tmp_path / "script.py").write_text("raise SystemExit(3)")
    with supervised(monkeypatch, script, reloads=False) as (children, _, stopped):
        assert stopped.wait(30)
    assert re.fullmatch(r"holdfast \S+ exited \(exit code 3\)", children.lost[0])
