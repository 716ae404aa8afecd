"""holdfast up, as a newcomer runs it: everything moves, over TLS, and nothing is left."""

import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import trustme

from support.command import HOLDFAST
from support.server import disposable_home

PATIENCE_SECONDS = 90.0
ESTABLISHED = "01"


def until(what: str, look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)
    return found


def connections(port: int) -> list[str]:
    """Those that the kernel knows to this port, seen from the server's side."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [line[2] for line in lines if line[1].endswith(f":{port:04X}") and line[3] == ESTABLISHED]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", ssl.SSLContext, Path]]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with disposable_home() as home:
        inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        with subprocess.Popen(
            [
                HOLDFAST,
                "up",
                "--port",
                "0",
                "--tls-cert",
                tmp_path / "server.pem",
                "--tls-key",
                tmp_path / "server.pem",
            ],
            env=inherited | {"HOLDFAST_HOME": str(home)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                yield process, trust, home
            finally:
                if process.poll() is None:
                    process.kill()


@pytest.mark.timeout(200)
def test_a_newcomer_sees_everything_move_and_nothing_is_left(
    house: tuple["subprocess.Popen[str]", ssl.SSLContext, Path],
) -> None:
    process, trust, home = house
    assert process.stdout
    printed = ""
    for line in process.stdout:
        printed += line
        if "Ctrl-C" in line:
            break
    [(url, token)] = re.findall(r"(https://127\.0\.0\.1:\d+)/login#(hf_\S+)", printed)
    port = urlsplit(url).port
    assert port

    with httpx.Client(base_url=url, verify=trust, timeout=60, headers={"Connection": "close"}) as client:
        bearer = {"Authorization": f"Bearer {token}"}

        def statuses() -> dict[str, str]:
            return {
                task["type"]: task["status"]
                for task in client.get("/v1/tasks", headers=bearer).json()["tasks"]
            }

        until("the report runs", lambda: statuses().get("demo.report") == "running")

        # The front end's one connection: there before the task is done, gone when it is.
        started = client.post("/demo/run/report", headers={"Origin": url}).json()
        with (
            httpx.Client(verify=trust, timeout=60) as page,
            page.stream("GET", started["wait"].replace("/wait?", "/stream?")) as stream,
        ):
            lines = stream.iter_lines()
            assert next(line for line in lines if "claimed" in line)
            own = stream.extensions["network_stream"].get_extra_info("client_addr")[1]
            assert [peer for peer in connections(port) if peer.endswith(f":{own:04X}")], "before it is done"
            assert any("a report of 12 pages" in line for line in lines)
            until(
                "the server closes it",
                lambda: not [p for p in connections(port) if p.endswith(f":{own:04X}")],
            )

        # A login with the code that the mailbox shows, and the facts of the send.
        login = client.post("/demo/logins", data={"email": "you@example.com"}, headers={"Origin": url}).json()
        assert client.get(login["wait"]).json()["result"] == "succeeded"
        logged_in = client.post("/login", data={"token": token, "next": "/"}, headers={"Origin": url})
        cookie = {"Cookie": logged_in.headers["Set-Cookie"].partition(";")[0], "Accept": "text/html"}
        assert logged_in.headers["Set-Cookie"].startswith("__Host-holdfast_session=")
        [code, *_] = re.findall(r"Your code is (\d{6})", client.get("/mailbox", headers=cookie).text)
        told = client.post(f"/demo/logins/{login['login']}", data={"code": code}, headers={"Origin": url})
        assert told.json() == {"email": "you@example.com"}
        send = client.get("/processes/email/1", headers=cookie).text
        assert all(fact in send for fact in ("asked", "attempt scheduled", "attempt succeeded"))

        until("the poison is dead", lambda: statuses().get("demo.poison") == "dead_letter")
        until("the flaky one succeeds", lambda: statuses().get("demo.flaky") == "succeeded")
        until("the schedule fires", lambda: "demo.pulse" in statuses())

    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"host={home}/postgres-18/socket user=postgres dbname=postgres", connect_timeout=3)
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(home) not in left
