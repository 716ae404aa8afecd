"""What holds for every request, whoever asks and for what."""

from uuid import UUID

import httpx
import pytest
from fastapi.responses import JSONResponse

from holdfast.errors import ConfigurationError
from holdfast.http.guard import Guard
from holdfast.http.server import Listen, bind, check
from support.web import Web

PATHS = ["/healthz", "/v1/tasks", "/nothing/here", "/openapi.json", "/v1/queues"]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_tells_the_browser_to_be_careful(web: Web, path: str) -> None:
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
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.", "", "127.0.0.1@evil", "[::2]"]
)
def test_a_name_that_is_not_ours_is_refused(web: Web, host: str) -> None:
    answer = web.client("admin").get("/v1/queues", headers={"Host": host})
    assert answer.status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8420", "[::1]:8420"])
def test_this_machine_goes_by_its_usual_names(web: Web, host: str) -> None:
    assert web.client("admin").get("/v1/queues", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(("host", "promised"), [("tasks.example.com", True), ("localhost:8420", False)])
async def test_tls_is_promised_for_names_that_are_ours_alone(host: str, promised: bool) -> None:
    web = Guard(JSONResponse({}), hosts=None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url=f"https://{host}") as client:
        assert ("Strict-Transport-Security" in (await client.get("/")).headers) is promised


def test_probes_are_answered_under_any_name(web: Web) -> None:
    for path in ("/healthz", "/readyz"):
        assert web.client().get(path, headers={"Host": "10.0.0.7"}).status_code == 200


def test_what_is_not_there_is_a_problem_too(web: Web) -> None:
    missing = web.client().get("/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "QF404")
    wrong = web.client("admin").delete("/v1/tasks")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "GET, POST"
    assert web.client("admin").put("/v1/tasks/batch").headers["Allow"] == "POST"
    assert web.client("admin").put(f"/v1/tasks/{UUID(int=7)}/cancel").headers["Allow"] == "POST"


def test_it_listens_publicly_with_logins_and_names_only() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7"):  # noqa: S104 - what is to be refused
        with pytest.raises(ConfigurationError, match="without a login"):
            check(Listen(host, 0), asks_for_login=False, hosts=("a.example",))
        with pytest.raises(ConfigurationError, match="under which names"):
            check(Listen(host, 0), asks_for_login=True, hosts=())
        check(Listen(host, 0), asks_for_login=True, hosts=("a.example",))


def test_on_this_machine_it_may_do_without() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        check(Listen(host, 0), asks_for_login=False, hosts=())


def test_an_address_that_is_none_or_taken_is_explained() -> None:
    with pytest.raises(ConfigurationError, match="no address to listen on"):
        check(Listen("no such host", 0), asks_for_login=True, hosts=())
    with bind(Listen("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="cannot listen"):
        bind(Listen("127.0.0.1", taken.getsockname()[1]))


def test_a_reader_of_the_description_finds_only_what_is_here(web: Web) -> None:
    described = web.client().get("/openapi.json").text
    assert "://" not in described.replace("https://tasks.example.com", "")
    assert httpx.Response(200, text=described).json()["openapi"].startswith("3.")
