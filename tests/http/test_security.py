"""The checks on every request: host, origin, proxy, and the security headers."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest
from fastapi.responses import JSONResponse
from structlog.testing import capture_logs

from holdfast._engine import access, enqueue, queues
from holdfast._engine.enqueue import NewTask
from holdfast.errors import ConfigurationError
from holdfast.server import create_app
from holdfast.server.access import MAX_RECORDED
from holdfast.server.security import SecurityMiddleware, TrustedProxies
from holdfast.server.web_server import ListenAddress, bind, check_exposure, serves_this_machine_only
from holdfast.settings import Settings
from support.commands import run
from support.database import Database
from support.web import Web, serving

PATHS = ["/healthz", "/v1/tasks", "/nothing/here", "/openapi.json", "/v1/queues"]


@pytest.mark.parametrize("path", PATHS)
def test_every_response_has_the_security_headers(web: Web, path: str) -> None:
    headers = web.client().get(path).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert "no-store" in headers["Cache-Control"]
    assert "server" not in headers


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.", "", "127.0.0.1@evil", "[::2]", "[::1].evil"],
)
def test_an_unknown_host_name_is_rejected(web: Web, host: str) -> None:
    answer = web.client("admin").get("/v1/queues", headers={"Host": host})
    assert answer.status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8420", "[::1]:8420"])
def test_the_host_names_of_this_machine_are_accepted(web: Web, host: str) -> None:
    assert web.client("admin").get("/v1/queues", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(("host", "promised"), [("tasks.example.com", True), ("localhost:8420", False)])
async def test_hsts_is_not_sent_for_the_names_of_this_machine(host: str, promised: bool) -> None:
    web = SecurityMiddleware(JSONResponse({}), hosts=None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url=f"https://{host}") as client:
        assert ("Strict-Transport-Security" in (await client.get("/")).headers) is promised


def test_probes_are_served_under_any_host_name(web: Web) -> None:
    for path in ("/healthz", "/readyz"):
        assert web.client().get(path, headers={"Host": "10.0.0.7"}).status_code == 200


def test_a_missing_path_is_a_problem_too(web: Web) -> None:
    missing = web.client().get("/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "QF404")
    wrong = web.client("admin").delete("/v1/tasks")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "GET, POST"
    assert web.client("admin").put("/v1/tasks/batch").headers["Allow"] == "POST"
    assert web.client("admin").put(f"/v1/tasks/{UUID(int=7)}/cancel").headers["Allow"] == "POST"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])  # noqa: S104 - what is to be refused
def test_it_listens_publicly_only_with_logins_host_names_and_tls(host: str) -> None:
    names, own = ("a.example",), ListenAddress(host, 0, Path("a.pem"), Path("a.pem"))
    with pytest.raises(ConfigurationError, match="without a login"):
        check_exposure(own, asks_for_login=False, hosts=())
    with pytest.raises(ConfigurationError, match="needs the host names"):
        check_exposure(own, asks_for_login=True, hosts=())
    with pytest.raises(ConfigurationError, match="without TLS access tokens could be read in transit"):
        check_exposure(ListenAddress(host, 0), asks_for_login=True, hosts=names)
    check_exposure(own, asks_for_login=True, hosts=names)
    check_exposure(ListenAddress(host, 0), asks_for_login=True, hosts=names, proxies=("10.0.0.0/8",))


def test_the_command_rejects_a_public_address_without_tls() -> None:
    refused = run("serve", "--host", "0.0.0.0", "--host-name", "a.example", url="postgresql:///x")  # noqa: S104 - as above
    assert refused.exit_code == 2
    assert "--behind-proxy" in refused.output
    wrong = run("serve", "--behind-proxy", "proxy.example", url="postgresql:///x")
    assert "HOLDFAST_WEB_PROXIES" in wrong.output
    assert "10.0.0.0/8" in wrong.output


def test_without_a_login_only_the_names_of_this_machine_are_accepted() -> None:
    local = ListenAddress("127.0.0.1", 0)
    for more in ({"hosts": ("a.example",)}, {"hosts": (), "proxies": ("127.0.0.1",)}):
        with pytest.raises(ConfigurationError, match="--no-login is for this machine only"):
            check_exposure(local, asks_for_login=False, **more)
    with pytest.raises(ConfigurationError, match="behind a proxy needs the host names"):
        check_exposure(local, asks_for_login=True, hosts=(), proxies=("127.0.0.1",))
    for hosts in (None, ["a.example"]):
        with pytest.raises(ConfigurationError, match="host names of this machine"):
            create_app("postgresql:///x", hosts=hosts, asks_for_login=False)


@pytest.fixture(scope="module")
def unlocked(module_db: Database) -> Iterator[Web]:
    """A server without logins."""
    with serving(module_db, asks_for_login=False) as running:
        yield running


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize(
    "path", ["/v1/queues/forged/pause", "/v1/tasks", "/queues/pause", "/v1/tokens", "/login"]
)
def test_a_page_of_another_origin_changes_nothing(
    unlocked: Web, web: Web, path: str, headers: dict[str, str]
) -> None:
    for client in (unlocked.client(), web.client("admin")):
        answer = client.post(path, json={"type": "forged.one"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")
    assert "forged" not in [queue.queue for queue in web.engine.run(queues.queue_status())]


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}])
def test_without_a_login_every_action_needs_the_json_content_type(
    unlocked: Web, headers: dict[str, str]
) -> None:
    refused = unlocked.client().post("/v1/queues/forged/pause", headers=headers)
    assert refused.status_code == 415
    assert "forged" not in [queue.queue for queue in unlocked.engine.run(queues.queue_status())]


def test_without_a_login_programs_and_own_pages_may_act(unlocked: Web) -> None:
    own = {"Origin": unlocked.url, "Sec-Fetch-Site": "same-origin"}
    for headers in ({}, own):
        answer = unlocked.client().post("/v1/queues/quiet/pause", json={}, headers=headers)
        assert answer.status_code == 200


def test_without_a_login_dns_rebinding_is_rejected(unlocked: Web) -> None:
    for path in ("/", "/v1/queues", "/mailbox"):
        assert unlocked.client().get(path, headers={"Host": "evil.example"}).status_code == 421


def test_a_page_of_another_origin_cannot_reveal_values(unlocked: Web) -> None:
    task_id = unlocked.engine.run(enqueue.enqueue(NewTask("feigned.one", {"card": 1})))
    for path in (f"/v1/tasks/{task_id}", f"/v1/tasks/{task_id}/errors"):
        foreign = {"Sec-Fetch-Site": "cross-site"}
        answer = unlocked.client().get(path, params={"reveal": "true"}, headers=foreign)
        assert answer.status_code == 403
    assert unlocked.engine.run(access.reveals_of(task_id)) == []


NAME = "tasks.example.com"


@pytest.fixture(scope="module")
def proxied(module_db: Database) -> Iterator[Web]:
    """A server behind two proxies, of which one is this machine."""
    with serving(module_db, hosts=(NAME,), web_proxies="127.0.0.1,10.0.0.0/8") as running:
        yield running


def log_in(web: Web, token: str, **headers: str) -> httpx.Response:
    own = {"Host": NAME, "Origin": f"https://{NAME}"}
    headers = own | {name.replace("_", "-"): value for name, value in headers.items()}
    return web.client().post("/login", data={"token": token}, headers=headers)


def test_behind_a_proxy_cookies_are_secure_and_hsts_is_sent(proxied: Web) -> None:
    answer = log_in(proxied, proxied.token("read"))
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie
    assert "Strict-Transport-Security" in answer.headers


def test_failed_logins_block_their_own_address_only(proxied: Web) -> None:
    for number in range(12):
        hostile = (
            f"203.0.113.{number}, 198.51.100.7, 10.1.2.3"  # only the last two were added by trusted proxies
        )
        refused = log_in(proxied, "hf_wrong", X_Forwarded_For=hostile)
        assert refused.status_code == (403 if number < 10 else 429)
    good = proxied.token("read")
    assert log_in(proxied, good, X_Forwarded_For="198.51.100.7").status_code == 429
    assert log_in(proxied, good, X_Forwarded_For="198.51.100.8").status_code == 303
    assert proxied.engine.run(access.access_events(1))[0].address == "198.51.100.8"


def test_a_valid_token_logs_in_however_many_addresses_fail(proxied: Web) -> None:
    for number in range(MAX_RECORDED + 5):
        log_in(proxied, "hf_" + "A" * 43, X_Forwarded_For=f"203.0.113.{number}")
    recorded = [event.act for event in proxied.engine.run(access.access_events(500))].count("login_refused")
    assert recorded <= MAX_RECORDED
    assert log_in(proxied, proxied.token("read"), X_Forwarded_For="192.0.2.9").status_code == 303


@pytest.mark.parametrize(
    ("peer", "given", "client"),
    [
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.7", "10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", ["1.1.1.1, bogus"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.9"], "10.0.0.9"),
        ("::ffff:10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
    ],
)
def test_x_forwarded_for_counts_only_from_proxies(peer: str, given: list[str], client: str) -> None:
    headers = [(b"x-forwarded-for", value.encode()) for value in given]
    scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}
    found = TrustedProxies(["10.0.0.0/8"]).resolve(scope)
    assert found["client"][0] == client
    assert found["scheme"] == ("http" if peer == "192.0.2.1" else "https")


async def test_requests_that_bypass_the_proxy_are_rejected() -> None:
    web = SecurityMiddleware(JSONResponse({}), hosts=None, proxies=["10.0.0.0/8"])
    for peer, path, status in [
        ("192.0.2.1", "/v1/queues", 421),
        ("192.0.2.1", "/healthz", 200),
        ("10.0.0.1", "/v1/queues", 200),
        ("127.0.0.1", "/v1/queues", 200),
    ]:
        transport = httpx.ASGITransport(web, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://any") as client:
            assert (await client.get(path)).status_code == status, (peer, path)


def test_a_request_with_two_lengths_is_rejected_and_its_connection_closed(web: Web) -> None:
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", urlsplit(web.url).port or 0), timeout=30) as raw:
        raw.sendall(
            b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
        )
        answered = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert answered.count(b"HTTP/1.1") == 1


def test_a_request_of_http_1_0_with_chunks_is_rejected(web: Web) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(web.url).port or 0), timeout=30) as raw:
        raw.sendall(
            b"POST /v1/tasks HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        answered = b"".join(iter(lambda: raw.recv(65536), b""))
    assert b" 400 " in answered.splitlines()[0]


def test_a_client_that_disconnects_during_a_login_causes_no_traceback(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as logs, caplog.at_level(logging.DEBUG):
        for path in ("/login", "/v1/tasks"):
            bearer = f"Authorization: Bearer {web.token('enqueue')}"
            with socket.create_connection(("127.0.0.1", urlsplit(web.url).port or 0), timeout=30) as raw:
                raw.sendall(
                    f"POST {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n{bearer}\r\n"
                    "Content-Type: application/json\r\nContent-Length: 100\r\n\r\ntoken=".encode()
                )
        with socket.create_connection(("127.0.0.1", urlsplit(web.url).port or 0), timeout=30) as raw:
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"".join(iter(lambda: raw.recv(65536), b"")).startswith(b"HTTP/1.1 200")
        until_none_is_left(web)
    assert [line for line in logs if line["log_level"] == "error"] == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def until_none_is_left(web: Web) -> None:
    """Waits until the server has noticed the disconnects and finished the requests."""
    deadline = time.monotonic() + 30
    server = web.server.server_state
    while server.tasks:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_a_local_address_needs_neither_login_nor_tls() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        check_exposure(ListenAddress(host, 0), asks_for_login=False, hosts=())


def test_an_invalid_or_used_address_is_explained() -> None:
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        check_exposure(ListenAddress("no such host", 0), asks_for_login=True, hosts=())
    with (
        bind(ListenAddress("127.0.0.1", 0), Settings()) as taken,
        pytest.raises(ConfigurationError, match="cannot listen"),
    ):
        bind(ListenAddress("127.0.0.1", taken.getsockname()[1]), Settings())


def test_the_openapi_document_refers_to_no_other_host(web: Web) -> None:
    described = web.client().get("/openapi.json").text
    assert "://" not in described.replace("https://tasks.example.com", "")
    assert httpx.Response(200, text=described).json()["openapi"].startswith("3.")


@pytest.mark.parametrize(
    ("listen", "hosts", "url", "proxies", "local"),
    [
        ("127.0.0.1", (), None, (), True),
        ("127.0.0.1", ("localhost",), "http://127.0.0.1:8080", (), True),
        ("127.0.0.1", (), "http://[::1]:8080/tasks", (), True),
        ("127.0.0.1", (), "https://tasks.example.com", (), False),
        ("127.0.0.1", (), "http://localhost@tasks.example.com", (), False),
        ("127.0.0.1", ("tasks.example.com",), None, (), False),
        ("127.0.0.1", (), None, ("10.0.0.1",), False),
        ("0.0.0.0", (), None, (), False),  # noqa: S104 - nothing listens
    ],
)
def test_values_are_shown_by_default_only_if_nobody_else_reaches_the_server(
    listen: str, hosts: tuple[str, ...], url: str | None, proxies: tuple[str, ...], local: bool
) -> None:
    assert serves_this_machine_only(ListenAddress(listen, 0), hosts, url, proxies) is local
