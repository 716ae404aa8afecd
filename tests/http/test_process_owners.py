"""The owner of a process gets no rights of those who look at it, start it, cancel it and run its tasks."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from holdfast import App
from holdfast.errors import InvalidState, UnexpectedDatabaseError
from support.business import ask
from support.commands import app as command
from support.database import Database
from support.hostile_owner import Thief
from support.visitor import Visitor
from support.web import Web, serving
from support.worker_thread import working


@pytest.fixture(scope="module")
def web(module_db: Database) -> Iterator[Web]:
    with serving(module_db) as running:
        yield running


@pytest.fixture(scope="module")
def thief(module_db: Database) -> Thief:
    return Thief(module_db)


@pytest.fixture
def calls(web: Web, thief: Thief, anna: Visitor) -> dict[str, Callable[[], object]]:
    """All ways in which others call the functions of a process, none of which is told how the call ended."""
    admin, reader, url = web.client("admin"), web.client("read"), web.database.dsn
    handle = App(database_url=url).process("heist", 1)

    def run(*words: str) -> object:
        return CliRunner().invoke(command, ["process", *words, "--database-url", url])

    def cancel() -> None:
        with contextlib.suppress(InvalidState, UnexpectedDatabaseError):
            handle.cancel("a test")

    return {
        "api show": lambda: reader.get("/v1/processes/heist/1"),
        "api start": lambda: admin.post("/v1/processes/heist", json={"input": {}}),
        "api cancel": lambda: admin.post("/v1/processes/heist/1/cancel", json={"reason": "a test"}),
        "page show": lambda: anna.get("/processes/heist/1"),
        "page start": lambda: anna.post("/processes/heist/start", input="{}"),
        "page cancel": lambda: anna.post("/processes/heist/1/cancel", reason="a test"),
        "command show": lambda: run("show", "heist", "1"),
        "command start": lambda: run("start", "heist", "{}"),
        "command cancel": lambda: run("cancel", "heist", "1"),
        "command plan": lambda: run("plan", "heist", "1"),
        "client cancel": cancel,
        "worker": lambda: ask(
            thief.admin, {"task_type": "db_function", "db_function": "heist.heist_supervisor"}
        ),
    }


def steal(thief: Thief, web: Web, calls: dict[str, Callable[[], object]], seconds: float) -> None:
    with working(App(), web.database.dsn, worker_queues=["work"]), thief.toggling():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for call in calls.values():
                call()


def test_each_way_calls_the_functions_and_gives_them_no_rights(
    thief: Thief, web: Web, calls: dict[str, Callable[[], object]]
) -> None:
    before = thief.stolen
    for call in calls.values():
        call()

    assert calls["api show"]().status_code == 200  # type: ignore[attr-defined]
    assert calls["api start"]().status_code == 201  # type: ignore[attr-defined]
    assert calls["api cancel"]().status_code == 200  # type: ignore[attr-defined]
    assert calls["command show"]().exit_code == 0  # type: ignore[attr-defined]
    assert thief.stolen == before == 0


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.full)])
def test_an_owner_that_replaces_its_functions_all_the_time_gets_no_rights(
    thief: Thief, web: Web, calls: dict[str, Callable[[], object]], seconds: float
) -> None:
    steal(thief, web, calls, seconds)

    assert thief.stolen == 0
    assert thief.without_rights > 0 or seconds < 60, "no call was made between two replacements"
    assert thief.admin.execute("select from queues.access_token_status where name = 'heist'").rowcount == 0
    assert thief.admin.execute("select from pg_roles where rolname = 'heist_gain'").rowcount == 0
