"""Executors of installed packages, ours and those of others."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import App, NoRetry
from holdfast._install import entry_points
from holdfast._worker.executors import check_executors
from holdfast.errors import ConfigurationError, InvalidHandler
from holdfast.options import EXECUTORS
from holdfast.settings import Settings
from support.documents import DOCS
from support.package import install_package, make_importable
from support.workshop import Workshop

PAGE = (DOCS / "howto" / "add-an-executor.md").read_text()
PIGEON = PAGE.partition("```python\n# pigeons.py\n")[2].partition("```")[0]
ADDED = PAGE.partition("```sql\n")[2].partition("```")[0]
POINTS = {"holdfast.executors": {"pigeon": "pigeons:PigeonExecutor", "hawk": "hawks:HawkExecutor [birds]"}}


@pytest.fixture
def pigeons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the page, installed."""
    target = install_package(tmp_path, "pigeons", PIGEON, POINTS)
    make_importable(monkeypatch, target, "pigeons")


def test_ours_are_entry_points_like_those_of_others() -> None:
    assert {"python", *entry_points.installed(entry_points.EXECUTORS)} == set(EXECUTORS)


@pytest.mark.usefixtures("pigeons")
async def test_an_executor_of_another_package_runs_its_tasks(shop: Workshop) -> None:
    shop.conn.execute(ADDED.encode())

    @shop.task("work.letter", executor="pigeon", retry=NoRetry())
    def letter(to: str) -> None: ...

    async with shop.working():
        sent = await shop.ended(await letter.aenqueue("Ada"))
        lost = await shop.ended(await letter.aenqueue("nobody"))
    assert (sent["status"], sent["result"]) == ("succeeded", "coo, Ada")
    assert (lost["status"], lost["error"]["kind"]) == ("failed", "no_such_roof")


@pytest.mark.usefixtures("pigeons")
async def test_an_executor_without_its_library_says_what_to_install(shop: Workshop) -> None:
    app = App(settings=Settings())

    @app.task("birds.hunt", executor="hawk")
    def hunt() -> None: ...

    with pytest.raises(ConfigurationError, match="the executor hawk needs the package hawks") as refused:
        check_executors(Settings(), app)
    assert refused.value.hint == "Run pip install 'pigeons[birds]'."


@pytest.mark.usefixtures("pigeons")
async def test_a_task_whose_executor_cannot_be_imported_is_left_to_other_workers(shop: Workshop) -> None:
    shop.conn.execute("insert into queues.executor values ('hawk', false, 'a hawk')")
    async with shop.working():
        asked = shop.conn.execute("select queues.enqueue('work.hunt', '{}', executor => 'hawk')").fetchone()
        assert asked
        await shop.becomes(asked[0], "scheduled")
        [line] = shop.lines("executor_not_available")
    assert "the executor hawk needs the package hawks" in line["why"]


def test_an_executor_that_no_package_has_is_refused_at_the_decorator() -> None:
    with pytest.raises(
        InvalidHandler, match=r"'owl' is not one of python, .* and no installed package adds it"
    ):
        App().task("work.x", executor="owl")(lambda: None)


@pytest.mark.usefixtures("pigeons")
def test_no_package_replaces_an_executor_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    target = install_package(other, "cuckoo", "", {"holdfast.executors": {"command": "cuckoo:Egg"}})
    make_importable(monkeypatch, target, "cuckoo")
    found = entry_points.installed(entry_points.EXECUTORS)
    assert found["command"].value == "holdfast.isolation.command:CommandExecutor"


def test_an_installation_that_is_older_than_its_entry_points_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry_points, "OURS", "another-name")
    with pytest.raises(ConfigurationError, match=r"no entry points of holdfast\.executors") as refused:
        entry_points.installed(entry_points.EXECUTORS)
    assert "pip install --no-deps --no-build-isolation -e ." in str(refused.value.hint)


def test_a_worker_imports_no_executor_that_it_does_not_need() -> None:
    program = """
import sys
from holdfast import App
import holdfast._worker.worker_process
from holdfast._worker.executors import check_executors
from holdfast.settings import Settings
check_executors(Settings(), App(settings=Settings()))
for name in "isolation messages processes outbox shards server cli contrib testing".split():
    if f"holdfast.{name}" in sys.modules:
        print(name)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
