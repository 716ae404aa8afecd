"""POST /v1/tasks and /v1/tasks/batch."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest.mock import ANY
from uuid import UUID

import httpx
import pytest

from holdfast import App
from holdfast._engine import Engine, access, enqueue
from holdfast._engine.enqueue import NewTask
from holdfast._engine.tasks import TaskStatus, task_status
from holdfast.server import request_body as http_body
from holdfast.server.access import hash_of, new_token
from holdfast.server.api import enqueue as http_enqueue
from holdfast.server.problem import Problem
from support.database import Database
from support.web import Web


def test_a_new_task_is_created(shop: httpx.Client, engine: Engine) -> None:
    answer = shop.post("/v1/tasks", json={"type": "billing.charge", "payload": {"amount": 7}, "priority": 3})
    assert answer.status_code == 201
    task = engine.run(task_status(UUID(answer.json()["task_id"])))
    assert task
    assert (task.type, task.queue, task.payload, task.priority) == (
        "billing.charge",
        "billing",
        {"amount": 7},
        3,
    )
    assert answer.headers["Location"] == f"/v1/tasks/{task.task_id}"


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/batch"])
def test_a_delay_is_counted_by_the_engines_clock(web: Web, shop: httpx.Client, path: str) -> None:
    body: Any = {"type": "billing.later", "delay": 3600.0}
    answer = shop.post(path, json=[body, {"type": "billing.later"}] if path.endswith("batch") else body)
    found = answer.raise_for_status().json()
    task_id = UUID((found["tasks"][0] if path.endswith("batch") else found)["task_id"])
    task = web.engine.run(task_status(task_id))
    assert task is not None
    assert task.status == "scheduled"
    assert timedelta(minutes=59) < task.run_at - task.created_at <= timedelta(hours=1)


def test_a_misspelt_member_is_refused_with_the_one_that_was_meant(shop: httpx.Client) -> None:
    body = {"type": "billing.later", "priorty": 3}
    one, many = shop.post("/v1/tasks", json=body), shop.post("/v1/tasks/batch", json=[body])
    expected = "unknown member 'priorty'; did you mean 'priority'?"
    assert (one.status_code, one.json()["detail"]) == (400, expected)
    assert (many.status_code, many.json()["detail"]) == (400, f"[0]: {expected}")


def test_a_delay_and_a_time_are_rejected_together(shop: httpx.Client) -> None:
    body = {"type": "billing.later", "delay": 60, "run_at": "2030-01-31T08:00:00Z"}
    one, many = shop.post("/v1/tasks", json=body), shop.post("/v1/tasks/batch", json=[body])
    assert (one.status_code, one.json()["detail"]) == (400, "give run_at or delay, not both")
    assert (many.status_code, many.json()["detail"]) == (400, "[0]: give run_at or delay, not both")


def test_a_key_creates_one_task_and_conflicts_with_another(shop: httpx.Client) -> None:
    def ask(amount: int) -> httpx.Response:
        body = {"type": "billing.keyed", "payload": {"amount": amount}}
        return shop.post("/v1/tasks", json=body, headers={"Idempotency-Key": "invoice-7"})

    first, again, other = ask(7), ask(7), ask(8)
    assert (first.status_code, first.json()["created"]) == (201, True)
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert again.json()["task_id"] == first.json()["task_id"]
    assert (other.status_code, other.json()["code"]) == (409, "QF409")


def token_client(web: Web, name: str, **more: Any) -> httpx.Client:
    token = new_token()
    web.engine.run(access.create_token(name, ["enqueue"], hash_of(token), **more))
    return httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/batch"])
def test_the_same_key_of_another_token_is_another_task_with_a_ticket_of_its_own(web: Web, path: str) -> None:
    def ask(client: httpx.Client, amount: int) -> dict[str, Any]:
        body = {"type": "billing.tokens", "payload": {"amount": amount}}
        if path.endswith("batch"):
            answer = client.post(path, json=[{**body, "idempotency_key": path}])
            return dict(answer.raise_for_status().json()["tasks"][0])
        answer = client.post(path, json=body, headers={"Idempotency-Key": path})
        return dict(answer.raise_for_status().json())

    with token_client(web, f"alice {path}") as alice, token_client(web, f"bob {path}") as bob:
        mine, theirs = ask(alice, 7), ask(bob, 7)
        assert (theirs["created"], theirs["task_id"] == mine["task_id"]) == (True, False)
        assert mine["task_id"] not in theirs["wait_url"]
        assert ask(alice, 7) == mine | {"created": False, "wait_url": ANY}
    with token_client(web, f"carol {path}") as carol:
        assert ask(carol, 8)["created"], "another payload under another's key is no conflict"


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/batch"])
def test_unique_and_debounced_tasks_and_tasks_after_others_stay_in_the_namespace_of_the_token(
    web: Web, path: str
) -> None:
    def ask(client: httpx.Client, key: str | None = None, **options: Any) -> httpx.Response:
        body = {"type": f"billing.relations{len(path)}", **options}
        if path.endswith("batch"):
            return client.post(path, json=[body if key is None else {**body, "idempotency_key": key}])
        return client.post(path, json=body, headers={} if key is None else {"Idempotency-Key": key})

    def task(response: httpx.Response) -> dict[str, Any]:
        found = response.raise_for_status().json()
        return dict(found["tasks"][0] if path.endswith("batch") else found)

    with token_client(web, f"eve {path}") as eve, token_client(web, f"fay {path}") as fay:
        first, again = (task(ask(eve, "k", unique="waiting")) for _ in range(2))
        theirs = task(ask(fay, "k", unique="waiting"))
        assert (again["task_id"], again["created"]) == (first["task_id"], False)
        assert theirs["created"]
        replaced, last = (task(ask(eve, "d", debounce=60, debounce_max=600)) for _ in range(2))
        assert last["task_id"] != replaced["task_id"]
        assert task(ask(eve, after=[first["task_id"]], when="ended"))["created"]
        assert ask(eve, after=[theirs["task_id"]]).status_code == 404
        assert ask(eve, unique="waiting").status_code in (400, 422)
        assert ask(eve, "d", debounce=60, debounce_max=6).status_code == 422
        assert ask(eve, unique="never").status_code in (400, 422)


def test_an_open_transaction_of_another_namespace_keeps_no_token_waiting(web: Web) -> None:
    other = web.database.connect("holdfast_client", autocommit=False)
    Engine(other).run(enqueue.enqueue(NewTask("billing.open", idempotency_key="k")))
    with token_client(web, "dora") as dora:
        body = {"type": "billing.open", "payload": {}}
        answer = dora.post("/v1/tasks", json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 201
    other.rollback()


def test_a_token_may_be_bound_to_the_namespace_of_a_login(web: Web, engine: Engine) -> None:
    client = Engine(web.database.connect("holdfast_client"))
    with token_client(web, "bound", namespace="holdfast_client_login") as bound:
        answer = bound.post("/v1/tasks", json={"type": "billing.bound"}, headers={"Idempotency-Key": "b"})
    task_id = UUID(answer.json()["task_id"])
    task = client.run(task_status(task_id))
    assert task
    assert (task.namespace, task.enqueued_by) == ("holdfast_client_login", "holdfast_web_login")
    assert (
        client.run(enqueue.enqueue_one(NewTask("billing.bound", {}, idempotency_key="b"))).task_id == task_id
    )


def test_a_token_created_over_http_has_its_namespace(admin: httpx.Client) -> None:
    def make(**more: str) -> httpx.Response:
        return admin.post("/v1/tokens", json={"name": "made", "scopes": ["enqueue"], **more})

    made = make().raise_for_status().json()["token_id"]
    listed = admin.get("/v1/tokens").json()["tokens"]
    assert [token["namespace"] for token in listed if token["token_id"] == made] == ["token:made"]
    assert make(namespace="somebody_elses").status_code == 403


def test_a_concurrency_key_is_stored(shop: httpx.Client, engine: Engine) -> None:
    asked = {"type": "billing.in_turn", "concurrency_key": "customer-7"}
    one = shop.post("/v1/tasks", json=asked).json()
    [other] = shop.post("/v1/tasks/batch", json=[asked]).json()["tasks"]
    tasks = [engine.run(task_status(UUID(task["task_id"]))) for task in (one, other)]
    assert [task.concurrency_key for task in tasks if task] == ["customer-7"] * 2
    refused = shop.post("/v1/tasks", json=asked | {"concurrency_key": "k" * 201})
    assert refused.status_code == 400


def test_a_number_keeps_every_digit(shop: httpx.Client, web: Web) -> None:
    digits = "0.1000000000000000055511151231257827021181583404541015625"
    written = f'{{"type": "digits.kept", "payload": [{digits}, 1.0, 1e2]}}'
    answer = shop.post("/v1/tasks", content=written, headers={"Content-Type": "application/json"})
    stored = web.database.connect().execute(
        "select payload::text from queues.task_status where task_id = %s", [answer.json()["task_id"]]
    )
    assert stored.fetchone() == (f"[{digits}, 1.0, 100]",)


def test_the_response_to_a_batch_has_its_order(shop: httpx.Client, engine: Engine) -> None:
    body = [{"type": "batch.one", "payload": n, "idempotency_key": f"k{n}"} for n in range(5)]
    answer = shop.post("/v1/tasks/batch", json=body)
    assert answer.status_code == 201
    tasks = [engine.run(task_status(UUID(one["task_id"]))) for one in answer.json()["tasks"]]
    assert [task.payload for task in tasks if task] == [0, 1, 2, 3, 4]
    assert [one["created"] for one in shop.post("/v1/tasks/batch", json=body).json()["tasks"]] == [False] * 5


def test_a_batch_is_all_or_nothing_and_names_the_rejected_task(
    shop: httpx.Client, reader: httpx.Client
) -> None:
    answer = shop.post("/v1/tasks/batch", json=[{"type": "whole.good"}, {"type": "whole..bad"}])
    assert answer.status_code == 400
    assert answer.json()["detail"] == 'tasks[1].type "whole..bad" is malformed'
    assert reader.get("/v1/tasks", params={"queue": "whole"}).json()["tasks"] == []


@pytest.mark.parametrize(
    ("body", "status", "code", "part"),
    [
        ("", 400, "QF400", "not valid JSON"),
        ("{", 400, "QF400", "not valid JSON"),
        ("[]", 400, "QF400", "the body"),
        ("{}", 400, "QF400", "type"),
        ('{"type": "a", "payload": NaN}', 400, "QF400", "NaN is not a JSON number"),
        ('{"type": "a", "odd": 1}', 400, "QF400", "odd"),
        ('{"type": 7}', 400, "QF400", "type"),
        ('{"type": "a", "priority": "7"}', 400, "QF400", "priority"),
        ('{"type": "a", "run_at": "soon"}', 400, "QF400", "run_at"),
        ('{"type": "a", "payload": null}', 400, "QF400", "payload must not be null"),
        ('{"type": "a", "executor": "db_function"}', 400, "QF400", "executor"),
        ('{"type": "a", "payload": {"task_type": "db_function"}}', 403, "QF403", "holdfast_process"),
        (f'{{"type": "a", "payload": {"[" * 66}{"]" * 66}}}', 422, "QF422", "nested deeper than 64 levels"),
        (f'{{"type": "a", "payload": {"[" * 9000}{"]" * 9000}}}', 422, "QF422", "nested deeper"),
        (f'{{"type": "a", "payload": {"9" * 5000}}}', 400, "QF400", "digits"),
        ('{"type": "a", "payload": 1e999}', 422, "QF422", "number"),
        (f'{{"type": "a", "payload": "{"x" * 300_000}"}}', 413, "QF413", "262144"),
        (f'{{"type": "a", "payload": "{"x" * 2_000_000}"}}', 413, "QF413", "the body is larger"),
        (r'{"type": "a", "payload": "\u0000"}', 422, "QF422", r"\u0000"),
        (r'{"type": "a", "payload": "\ud800"}', 400, "QF400", ""),
        (b"\xff", 400, "QF400", "UTF-8"),
    ],
)
def test_an_invalid_task_is_rejected_with_a_problem(
    shop: httpx.Client, body: str | bytes, status: int, code: str, part: str
) -> None:
    answer = shop.post("/v1/tasks", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert part in answer.json()["detail"]


@pytest.mark.parametrize("media_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_without_the_json_content_type_is_rejected(shop: httpx.Client, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    assert shop.post("/v1/tasks", content=b'{"type": "a"}', headers=headers).status_code == 415


@pytest.mark.parametrize("body", [[], [{"type": "a"}] * 1001])
def test_a_batch_has_1_to_1000_tasks(shop: httpx.Client, body: list[Any]) -> None:
    answer = shop.post("/v1/tasks/batch", json=body)
    assert answer.status_code == 400
    assert "1 to 1000" in answer.json()["detail"]


def test_the_same_spec_has_one_hash_from_psql_python_and_http(
    shop: httpx.Client, web: Web, module_db: Database
) -> None:
    app = App(module_db.dsn)

    @app.task("billing.same")
    def same(a: int, text: str) -> None: ...

    asked = (
        module_db.connect()
        .execute("""select queues.enqueue('billing.same', ' {"text" : "\\u00e9/", "a":1} ')""")
        .fetchone()
    )
    assert asked
    from_http = shop.post(
        "/v1/tasks",
        content=rb'{"type":"billing.same","payload":{"a":1,"text":"\u00e9\/"}}',
        headers={"Content-Type": "application/json"},
    )
    other = shop.post("/v1/tasks", json={"type": "billing.same", "payload": {"a": 1.5, "text": "é/"}})
    ids = [asked[0], same.enqueue(1, text="é/").task_id, UUID(from_http.json()["task_id"])]
    hashes = {_status(web, task_id).spec_hash for task_id in ids}
    app.close()
    assert len(hashes) == 1
    assert _status(web, UUID(other.json()["task_id"])).spec_hash not in hashes


def _status(web: Web, task_id: UUID) -> TaskStatus:
    task = web.engine.run(task_status(task_id))
    assert task is not None
    return task


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "reader", "text"),
    [
        ("/v1/tasks", "read_one", '{"type": "large.one", "payload": "%s"}'),
        ("/v1/tasks/batch", "_read_batch", '[{"type": "large.one", "payload": "%s"}]'),
    ],
)
def test_other_requests_are_served_while_a_large_body_is_parsed(
    web: Web, monkeypatch: pytest.MonkeyPatch, path: str, reader: str, text: str
) -> None:
    shop = web.client("enqueue")
    begun, over = threading.Event(), threading.Event()
    real: Callable[..., Any] = getattr(http_enqueue, reader)

    def read(*given: Any) -> Any:
        begun.set()
        assert over.wait(30)
        return real(*given)

    monkeypatch.setattr(http_enqueue, reader, read)
    with ThreadPoolExecutor() as pool:
        large = pool.submit(shop.post, path, content=text % ("x" * 100_000), headers=JSON)
        assert begun.wait(30)
        try:
            assert httpx.get(f"{web.url}/healthz", timeout=20).status_code == 200
            assert not large.done()
        finally:
            over.set()
        assert large.result(30).status_code == 201


def test_a_batch_is_parsed_task_by_task_up_to_the_first_invalid_one() -> None:
    read = http_body.elements(' [ {"type": "a.b", "payload": "]"} , [1], nonsense')
    assert next(read) == ({"type": "a.b", "payload": "]"}, '{"type": "a.b", "payload": "]"}')
    assert next(read) == ([1], "[1]")
    with pytest.raises(Problem, match="not valid JSON"):
        next(read)


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("[" + ",".join(["[1]"] * 100_000) + "]", 400, "[0]: Input should be a valid dict"),
        ("[" + ",".join(['{"type": "a.b"}'] * 1001) + "]", 400, "and this one has more"),
        ('[{"type": "a.b", "payload": "' + "x" * 1_100_000 + '"}]', 413, "larger than 1048576"),
        ('[{"type": "a.b", "payload": ' + "[" * 90 + "]" * 90 + "}]", 422, "nested deeper"),
        ('[{"type": "a.b", "payload": ' + "[" * 90_000 + "]" * 90_000 + "}]", 422, "nested deeper"),
        ("{" + ",".join(f'"m{n}": 1' for n in range(200)) + "}", 400, "must be an array"),
        ("[{" + ",".join(f'"m{n}": 1' for n in range(200)) + "}]", 400, "200 members; at most 100"),
        ('[{"type": "a.b"},]', 400, "not valid JSON"),
        ('[{"type": "a.b"}', 400, "not valid JSON"),
        ('[{"type": "a.b"}] x', 400, "not valid JSON"),
        ("[]", 400, "this one has none"),
    ],
)
def test_a_hostile_batch_is_rejected_and_nothing_is_enqueued(
    shop: httpx.Client, text: str, status: int, words: str
) -> None:
    answer = shop.post("/v1/tasks/batch", content=text, headers=JSON)
    assert answer.status_code == status, answer.text[:300]
    assert words in answer.json()["detail"]


def test_brackets_in_strings_and_many_shallow_ones_are_not_depth(shop: httpx.Client) -> None:
    payload = [["[" * 200, '"]', "\\"], *([{}] * 200)]
    answer = shop.post("/v1/tasks/batch", json=[{"type": "shallow.one", "payload": payload}])
    assert answer.status_code == 201
