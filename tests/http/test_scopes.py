"""The table in docs/reference/http.md, endpoint by endpoint and scope by scope."""

import time
from datetime import timedelta
from uuid import UUID

import httpx
import pytest

from holdfast._connections.wait_ticket import issue
from holdfast._engine import enqueue
from holdfast._engine.enqueue import NewTask
from holdfast.server.wait_responses import StreamPosition
from support.documents import REFERENCE, rows, sections
from support.web import SECRET, Web

COLUMNS = ("anyone", "ticket", "enqueue", "read", "operate", "admin")
TABLE = {
    cells[0]: dict(zip(COLUMNS, cells[1:], strict=True))
    for cells in rows(sections(REFERENCE / "http.md")["Endpoints"])
}
BODIES = {
    "POST /v1/tasks": {"type": "scopes.any"},
    "POST /v1/tasks/batch": [{"type": "scopes.any"}],
    "POST /v1/processes/{process}": {"input": {}},
    "POST /v1/tokens": {"name": "any", "scopes": ["read"]},
}
SEND = ("comms.send_email", 17)
REFUSED = {401, 403}
_HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def task_id(web: Web) -> UUID:
    return web.engine.run(enqueue.enqueue(NewTask("scopes.subject")))


def _ask(client: httpx.Client, endpoint: str, task_id: UUID, ticket: str | None = None) -> httpx.Response:
    method, path = endpoint.split(" ")
    named = {
        "queue": "scopes",
        "token_id": 999_999,
        "provider": "resend",
        "name": "nobody",
        "worker_id": "nobody",
    }
    path = path.format(task_id=task_id, process=SEND[0], process_id=SEND[1], **named)
    params = {"timeout": "0"} if path.endswith("/wait") else {}
    if ticket:
        params["ticket"] = ticket
    headers = {"Last-Event-ID": str(StreamPosition(end=True))} if path.endswith("/stream") else {}
    url = httpx.URL(path).copy_merge_params(params)
    body = BODIES.get(endpoint, {}) if method == "POST" else None
    return client.request(method, url, json=body, headers=headers)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("endpoint", TABLE)
def test_an_endpoint_accepts_the_credentials_of_the_table(
    web: Web, task_id: UUID, endpoint: str, column: str
) -> None:
    scopes = () if column in ("anyone", "ticket") else (column,)
    subject = SEND if "/processes/" in endpoint else task_id
    ticket = str(issue([SECRET], subject, _HOUR, time.time())) if column == "ticket" else None
    answer = _ask(web.client(*scopes), endpoint, task_id, ticket)
    if TABLE[endpoint][column]:
        assert answer.status_code not in REFUSED, answer.text
        assert answer.status_code < 500
    else:
        assert answer.status_code == (403 if scopes else 401), answer.text


def test_the_table_has_every_endpoint_of_the_openapi_document(web: Web) -> None:
    described = web.client().get("/openapi.json").json()["paths"]
    real = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    assert {endpoint.partition("?")[0] for endpoint in TABLE} == real | {"GET /openapi.json"}


@pytest.mark.parametrize("token", ["x", "hf_" + "A" * 43, "hf_é", "Basic", "hf_" + "A" * 5000])
def test_an_unknown_token_is_rejected(web: Web, token: str) -> None:
    answer = web.client().get("/v1/queues", headers={b"Authorization": f"Bearer {token}".encode()})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_in_the_url_is_ignored(web: Web) -> None:
    assert web.client().get("/v1/queues", params={"token": web.token("admin")}).status_code == 401


def test_a_revoked_token_ends_at_the_next_request(web: Web, admin: httpx.Client) -> None:
    made = admin.post("/v1/tokens", json={"name": "short", "scopes": ["read"], "days": 1}).json()
    client = httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {made['token']}"})
    with client:
        assert client.get("/v1/queues").status_code == 200
        assert admin.post(f"/v1/tokens/{made['token_id']}/revoke").json()["changed"] is True
        assert client.get("/v1/queues").status_code == 401
    assert admin.post(f"/v1/tokens/{made['token_id']}/revoke").json()["changed"] is False


def test_the_list_of_tokens_contains_no_secret(web: Web, admin: httpx.Client) -> None:
    token = web.token("read")
    listed = admin.get("/v1/tokens").text
    assert token not in listed
    assert "hash" not in listed
