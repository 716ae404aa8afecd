"""The settings for nginx on the page about systemd, in a real nginx."""

import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast._connections.wait_ticket import issue
from holdfast._engine import enqueue, leases
from holdfast._engine.enqueue import NewTask
from holdfast.server.certificate import OwnCertificate, own_certificate
from support.database import Database
from support.documents import DOCS, code
from support.leases import ended
from support.programs import needed
from support.web import SECRET, Web, serving

NAME = "tasks.example.com"
PATIENCE_SECONDS = 30.0
BURST, PER_SECOND = 40, 20

pytestmark = pytest.mark.full


def configuration(directory: Path, own: OwnCertificate, listen: int, web: Web) -> str:
    """The blocks of the page, with the addresses of this test."""
    page = code((DOCS / "howto" / "deploy-with-systemd.md").read_text(), "text")
    [server] = [block for block in page if "proxy_pass" in block]
    [limits] = [block for block in page if "limit_conn" in block]
    zones, _, inside = limits.partition("server {")
    server = server.replace("server {", "server {" + inside.rpartition("}")[0], 1)
    for given, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{listen} ssl"),
        ("/etc/ssl/tasks.pem", str(own.with_key)),
        ("/etc/ssl/tasks.key", str(own.with_key)),
        ("127.0.0.1:8420", urlsplit(web.url).netloc),
    ):
        assert given in server
        server = server.replace(given, here)
    own_files = "".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"pid {directory}/pid; error_log {directory}/errors; user root; events {{}}\n"
        f"http {{ access_log off; {own_files}\n{zones}\n{server} }}"
    )


@pytest.fixture
def proxied(module_db: Database, tmp_path: Path) -> Iterator[tuple[Web, httpx.Client]]:
    program = needed("nginx", "ensure-nginx")
    own = own_certificate(tmp_path / "tls")
    with serving(module_db, hosts=(NAME,), web_proxies="127.0.0.1") as web:
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = free.getsockname()[1]
        file = tmp_path / "nginx.conf"
        file.write_text(configuration(tmp_path, own, listen, web))
        with nginx(program, file, listen), client(own, listen) as found:
            yield web, found


@contextmanager
def nginx(program: Path, file: Path, listen: int) -> Iterator[None]:
    with subprocess.Popen([program, "-c", file, "-p", file.parent, "-g", "daemon off;"]) as process:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not answers(listen):
                assert process.poll() is None, (file.parent / "errors").read_text()
                assert time.monotonic() < deadline
                threading.Event().wait(0.02)
            yield
        finally:
            process.terminate()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def client(own: OwnCertificate, listen: int) -> httpx.Client:
    return httpx.Client(
        base_url=f"https://localhost:{listen}",
        headers={"Host": NAME},
        verify=ssl.create_default_context(cafile=own.certificate),
        timeout=PATIENCE_SECONDS,
    )


def waiting_path(web: Web, kind: str, way: str) -> str:
    task_id = web.engine.run(enqueue.enqueue(NewTask(kind)))
    ticket = issue([SECRET], task_id, timedelta(hours=1), time.time())
    return f"/v1/tasks/{task_id}/{way}?ticket={ticket}"


def test_a_stream_comes_through_while_the_task_runs(proxied: tuple[Web, httpx.Client]) -> None:
    web, through = proxied
    with through.stream("GET", waiting_path(web, "proxied.one", "stream")) as answer:
        lines = answer.iter_lines()
        assert any(line.startswith("data:") for line in lines)  # before it ends, so nothing is buffered
        [task] = web.engine.run(leases.claim("w1", queues=["proxied"]))
        web.engine.run(leases.finish("w1", [ended(task.task_id, task.token, "succeeded", {"the": "result"})]))
        assert any('"the": "result"' in line or '"the":"result"' in line for line in lines)


def test_one_address_makes_no_more_requests_than_the_proxy_allows(proxied: tuple[Web, httpx.Client]) -> None:
    _, through = proxied
    began = time.monotonic()
    asked = Counter(through.get("/healthz").status_code for _ in range(10 * BURST))
    assert set(asked) == {200, 503}
    assert asked[200] <= 1 + BURST + PER_SECOND * (time.monotonic() - began) + 1
