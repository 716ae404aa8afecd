"""The HTTP server on a database without the optional units: it starts, and says what is missing."""

from uuid import uuid4

import httpx

from holdfast.server.access import new_token
from support.database import Database
from support.web import TRUST, serving


def test_without_logins_it_serves_tasks_and_names_the_unit_that_a_request_lacks(core_db: Database) -> None:
    with serving(core_db, asks_for_login=False) as web:
        client = web.client()
        assert client.get("/readyz").status_code == 200
        enqueued = client.post("/v1/tasks", json={"type": "demo.echo", "payload": {}})
        assert enqueued.status_code in (200, 201), enqueued.text
        task_id = enqueued.json()["task_id"]
        assert client.get(f"/v1/tasks/{task_id}").status_code == 200
        assert client.get("/v1/health").status_code == 200
        for page in ("/", "/tasks", f"/tasks/{task_id}", "/queues", "/workers", "/schedules"):
            assert client.get(page, follow_redirects=True).status_code == 200, page
        unknown = client.get(f"/v1/tasks/{uuid4()}/wait", params={"timeout": 1})
        assert unknown.status_code == 404
        problem = client.get("/v1/subscriptions")
        assert (problem.status_code, problem.json()["code"]) == (503, "unit_not_installed")
        assert problem.json()["hint"] == "Run holdfast migrate --with events."


def test_with_logins_every_request_says_that_there_can_be_no_tokens(core_db: Database) -> None:
    with serving(core_db) as web:
        bearer = {"Authorization": f"Bearer {new_token()}"}
        refused = httpx.get(f"{web.url}/v1/tasks", headers=bearer, verify=TRUST)
        assert (refused.status_code, refused.json()["code"]) == (503, "unit_not_installed")
        assert refused.json()["hint"] == "Run holdfast migrate --with web."
