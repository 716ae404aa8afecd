"""Business processes over HTTP and on their pages: every kind, its facts, and start, nudge and cancel."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import App
from holdfast._engine import Engine, tasks
from holdfast.errors import InvalidState
from holdfast.processes.scaffold import Kind, scaffold
from holdfast.settings import Settings
from support.comms import run
from support.engine import value
from support.visitor import Visitor
from support.web import Web, serving

KINDS: dict[str, Kind] = {"parcels": "attempts", "refunds": "decision", "errands": "python"}


@pytest.fixture(scope="module")
def web(module_db: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """With a process of each kind."""
    where: Path = tmp_path_factory.mktemp("processes")
    for name, kind in KINDS.items():
        scaffold(name, where / name, kind).create(module_db.connect())
    with serving(module_db) as running:
        yield running


@pytest.fixture
def anna(web: Web) -> Iterator[Visitor]:
    visitor = Visitor(web)
    assert visitor.log_in("admin").status_code == 303
    yield visitor
    visitor.client.close()


def start(admin: httpx.Client, name: str, given: Any = None) -> int:
    answer = admin.post(f"/v1/processes/{name}", json={"input": given or {"card": "4242"}})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["process_id"])


def supervise(web: Web, name: str, process_id: int) -> None:
    """A run of the supervisor as a worker makes it; an attempt is then outstanding."""
    run(web.database.connect(), f"{name}.{name}_supervisor", {f"{name}_task_id": process_id})


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_started_read_and_cancelled(
    admin: httpx.Client, reader: httpx.Client, name: str
) -> None:
    process_id = start(admin, name)
    found = reader.get(f"/v1/processes/{name}/{process_id}").json()
    assert found["status"]["status"] in ("scheduled", "running")
    assert found["status"]["created_by"].endswith(" for test admin")
    assert found["timeline"][0]["what"] == "kicked off"
    assert found["timeline"][-1]["what"].startswith("next: ")
    assert found["supervisor"]["task_id"] == found["status"]["task_id"]

    path = f"/v1/processes/{name}/{process_id}/cancel"
    assert admin.post(path, json={"reason": "a duplicate"}).json()["decision"] == "cancelled"
    ended = reader.get(f"/v1/processes/{name}/{process_id}").json()
    assert ended["status"]["status"] == "cancelled"
    assert ended["timeline"][-1]["reason"].endswith(" for test admin: a duplicate")
    assert admin.post(path, json={"reason": "again"}).json()["decision"] == "cancelled"


def test_processes_and_their_instances_are_listed_a_page_at_a_time(
    admin: httpx.Client, reader: httpx.Client
) -> None:
    started = [start(admin, "parcels") for _ in range(3)]
    known = {one["process"]: one for one in reader.get("/v1/processes").json()["processes"]}
    assert known.keys() >= {*KINDS, "comms.send_email", "comms.send_sms"}
    assert {name: known[name]["kind"] for name in KINDS} == KINDS
    assert known["parcels"]["unfinished"] >= 3
    assert known["parcels"]["can_start"]
    assert not known["comms.send_sms"]["can_start"]

    first = reader.get("/v1/processes/parcels?limit=2&state=unfinished").json()
    assert [one["process_id"] for one in first["instances"]] == started[:0:-1]
    rest = reader.get(f"/v1/processes/parcels?limit=2&state=unfinished&before={first['next']}").json()
    assert rest["instances"][0]["process_id"] == started[0]
    assert reader.get("/v1/processes/parcels?state=trouble").json()["instances"] == []
    assert reader.get("/v1/processes/nowhere").json()["instances"] == []


def test_an_outstanding_attempt_and_the_runs_of_the_supervisor_are_shown(
    web: Web, admin: httpx.Client, reader: httpx.Client
) -> None:
    process_id = start(admin, "parcels")
    supervise(web, "parcels", process_id)
    found = reader.get(f"/v1/processes/parcels/{process_id}").json()
    assert [one["type"] for one in found["outstanding"]] == ["parcels.attempt"]
    assert [(one["run"], one["decision"]) for one in found["runs"]] == [(1, "attempt")]


def test_a_nudge_lets_the_supervisor_run_now_and_is_recorded(
    web: Web, admin: httpx.Client, reader: httpx.Client, engine: Engine
) -> None:
    process_id = start(admin, "parcels")
    path = f"/v1/processes/parcels/{process_id}/nudge"
    assert admin.post(path, json={"reason": "early"}).json()["changed"] is False
    supervise(web, "parcels", process_id)
    assert admin.post(path, json={"reason": "the carrier called"}).json()["changed"] is True

    found = reader.get(f"/v1/processes/parcels/{process_id}").json()
    task = engine.run(tasks.task_status(found["supervisor"]["task_id"]))
    assert task is not None
    assert task.status == "pending"
    [nudge] = [one for one in found["timeline"] if one["what"].startswith("nudged by ")]
    assert nudge["what"].endswith(" for test admin")
    assert nudge["reason"] == "the carrier called"


def test_an_ended_or_unknown_instance_is_not_nudged(admin: httpx.Client) -> None:
    process_id = start(admin, "refunds")
    admin.post(f"/v1/processes/refunds/{process_id}/cancel")
    assert admin.post(f"/v1/processes/refunds/{process_id}/nudge").status_code == 412
    assert admin.post("/v1/processes/refunds/999999/nudge").status_code == 404
    assert admin.post("/v1/processes/refunds/999999/cancel").status_code == 404
    assert admin.post("/v1/processes/nowhere", json={"input": {}}).status_code == 404
    assert admin.post("/v1/processes/comms.send_email", json={"input": {}}).status_code == 412


def test_a_supervisor_that_is_missing_is_not_nudged(
    admin: httpx.Client, reader: httpx.Client, engine: Engine
) -> None:
    process_id = start(admin, "parcels")
    supervisor = reader.get(f"/v1/processes/parcels/{process_id}").json()["supervisor"]["task_id"]
    engine.run(tasks.cancel(supervisor, "by mistake"))
    refused = admin.post(f"/v1/processes/parcels/{process_id}/nudge")
    assert refused.status_code == 412
    assert "has no supervisor" in refused.json()["detail"]
    found = reader.get(f"/v1/processes/parcels/{process_id}").json()
    assert found["timeline"][-1]["what"] == "no supervisor"


def test_no_digit_of_the_input_is_lost(web: Web, admin: httpx.Client) -> None:
    body = '{"input": {"amount": 1.10000000000000000001}}'
    answer = admin.post("/v1/processes/parcels", content=body, headers={"Content-Type": "application/json"})
    stored = "select input ->> 'amount' from parcels.parcels_task where parcels_task_id = %s"
    assert value(web.database.connect(), stored, [answer.json()["process_id"]]) == "1.10000000000000000001"


def test_the_facts_are_hidden_where_values_are(module_db: Any, web: Web, admin: httpx.Client) -> None:
    process_id = start(admin, "parcels", {"card": "4242-4242", "note": "<script>alert(1)</script>"})
    supervise(web, "parcels", process_id)
    admin.post(f"/v1/processes/parcels/{process_id}/nudge", json={"reason": "the carrier called"})
    with serving(module_db, web_values="hidden") as hiding:
        shown = hiding.client("admin").get(f"/v1/processes/parcels/{process_id}")
        assert "4242" not in shown.text
        assert "the carrier called" in shown.text
        visitor = Visitor(hiding)
        visitor.log_in("admin")
        path = f"/processes/parcels/{process_id}"
        assert "4242" not in visitor.get(path).text
        visitor.post("/values/show", back=path, reason="support")
        page = visitor.get(path).text
        assert "4242-4242" in page
        assert "<script>alert" not in page
        visitor.client.close()


def test_a_function_that_its_owner_has_weakened_is_not_called(
    web: Web, admin: httpx.Client, reader: httpx.Client
) -> None:
    """It would run with the rights of the server, which could then set another role."""
    process_id = start(admin, "refunds")
    owner = web.database.connect()
    owner.execute("alter function refunds.refunds_history(bigint) security invoker")
    owner.execute("alter function refunds.cancel_refunds_task(bigint, text) security invoker")
    try:
        assert reader.get(f"/v1/processes/refunds/{process_id}").status_code == 412
        assert admin.post(f"/v1/processes/refunds/{process_id}/cancel").status_code == 412
        handle = App(settings=Settings.load(database_url=web.database.dsn)).process("refunds", process_id)
        with pytest.raises(InvalidState, match="was dropped or changed since"):
            handle.cancel("a duplicate")
        with pytest.raises(InvalidState, match="was dropped or changed since"):
            asyncio.run(handle.acancel("a duplicate"))
    finally:
        owner.execute("alter function refunds.refunds_history(bigint) security definer")
        owner.execute("alter function refunds.cancel_refunds_task(bigint, text) security definer")
    assert reader.get(f"/v1/processes/refunds/{process_id}").status_code == 200
    assert handle.cancel("a duplicate") == "cancelled"


@pytest.fixture
def own_kickoff(web: Web) -> Iterator[Callable[..., None]]:
    """Replaces the kickoff of parcels, with a further argument and a body."""
    owner = web.database.connect()
    kickoff = "parcels.kickoff_parcels_task"
    before = value(owner, "select pg_get_functiondef(%s::regproc)", [kickoff])

    def replace(body: str, default: str = "2") -> None:
        owner.execute(
            f"""create or replace function {kickoff}(
                  input jsonb, scheduled_at timestamptz default null, max_attempts integer default {default})
                returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp
                as $$ begin {body}; end $$""".encode()
        )

    yield replace
    owner.execute(before)


def test_a_default_of_a_kickoff_does_not_run_with_the_rights_of_the_server(
    web: Web, admin: httpx.Client, reader: httpx.Client, own_kickoff: Callable[..., None]
) -> None:
    process_id = start(admin, "parcels")
    owner = web.database.connect()
    owner.execute("create sequence parcels.called")
    owner.execute("grant usage on sequence parcels.called to public")
    own_kickoff("return 1", "nextval('parcels.called')::integer")

    refused = admin.post("/v1/processes/parcels", json={"input": {}})
    assert (refused.status_code, refused.json()["code"]) == (412, "QF412")
    assert "a constant of its own type" in refused.json()["hint"]
    assert value(owner, "select is_called from parcels.called") is False
    known = {one["process"]: one for one in reader.get("/v1/processes").json()["processes"]}
    assert known["parcels"]["can_start"] is False
    # Instances are shown and cancelled nevertheless.
    assert reader.get(f"/v1/processes/parcels/{process_id}").status_code == 200
    assert admin.post(f"/v1/processes/parcels/{process_id}/cancel").status_code == 200


def test_a_column_of_the_history_is_not_a_function_of_the_path(
    web: Web, admin: httpx.Client, reader: httpx.Client
) -> None:
    process_id = start(admin, "parcels")
    owner = web.database.connect()
    before = value(owner, "select pg_get_functiondef('parcels.parcels_history'::regproc)")
    owner.execute("create type parcels.fact as (what text, reason text, task_id uuid)")
    owner.execute("create sequence public.read")
    owner.execute("grant usage on sequence public.read to public")
    owner.execute(
        """create function public.at(parcels.fact) returns timestamptz language sql
           as $$ select now() from nextval('public.read') $$"""
    )
    owner.execute("drop function parcels.parcels_history(bigint)")
    owner.execute(
        """create function parcels.parcels_history(parcels_task_id bigint) returns setof parcels.fact
           language sql security definer set search_path = pg_catalog, pg_temp
           as $$ select 'kicked off', 'x', null::uuid $$"""
    )
    grants = """alter function parcels.parcels_history(bigint) owner to parcels_owner;
        revoke all on function parcels.parcels_history(bigint) from public;
        grant execute on function parcels.parcels_history(bigint) to holdfast_caller"""
    owner.execute(grants)
    try:
        refused = reader.get(f"/v1/processes/parcels/{process_id}")
        assert (refused.status_code, refused.json()["code"]) == (412, "QF412")
        assert value(owner, "select is_called from public.read") is False
    finally:
        owner.execute("drop function parcels.parcels_history(bigint), public.at(parcels.fact)")
        owner.execute("drop sequence public.read")
        owner.execute(before)
        owner.execute(grants)
    assert reader.get(f"/v1/processes/parcels/{process_id}").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ("raise exception 'the card is not known'", 422, "the card is not known"),
        ("raise check_violation using message = 'too little'", 422, "too little"),
        ("raise exception using errcode = 'QF400', message = 'a bad card'", 400, "a bad card"),
        ("return null", 412, "the kickoff of parcels returned null"),
        ("raise exception using errcode = 'XX000', message = 'secret'", 500, "see the log of the server"),
    ],
)
def test_a_kickoff_that_refuses_its_input_says_why(
    admin: httpx.Client, own_kickoff: Callable[..., None], body: str, status: int, detail: str
) -> None:
    own_kickoff(body)
    answer = admin.post("/v1/processes/parcels", json={"input": {"card": "1"}})
    assert (answer.status_code, detail in answer.json()["detail"]) == (status, True), answer.text


@pytest.mark.parametrize("name", KINDS)
def test_an_instance_is_started_nudged_and_cancelled_on_its_page(
    anna: Visitor, reader: httpx.Client, name: str
) -> None:
    answer = anna.post(f"/processes/{name}/start", input='{"n": 1}')
    path = answer.headers["Location"].partition("?")[0]
    assert "The instance is started." in anna.get(answer.headers["Location"]).text
    assert anna.post(f"{path}/nudge", reason="why wait").headers["Location"].endswith("done=due")
    assert anna.post(f"{path}/nudge").status_code == 400
    assert anna.post(f"{path}/explode", reason="x").status_code == 404
    assert anna.post(f"{path}/cancel", reason="a duplicate").headers["Location"].endswith("done=cancelled")
    page = anna.get(path).text
    assert "a duplicate" in page
    assert "Nudge…" not in page
    assert path in anna.get("/processes").text
    assert path in anna.get(f"/processes/{name}").text
    assert path not in anna.get(f"/processes/{name}?state=unfinished").text
    assert reader.get(f"/v1{path}").json()["status"]["decision"] == "cancelled"


def test_an_input_that_is_not_json_starts_nothing(anna: Visitor) -> None:
    for given in ('{"a": 1}, "b": 2', "{", "NaN", '"\\u0000"'):
        assert anna.post("/processes/parcels/start", input=given).status_code in (400, 422)


def test_a_reader_sees_no_actions_and_can_do_none(web: Web, admin: httpx.Client) -> None:
    process_id = start(admin, "parcels")
    visitor = Visitor(web)
    visitor.log_in("read")
    path = f"/processes/parcels/{process_id}"
    assert "Nudge…" not in visitor.get(path).text
    assert "Start…" not in visitor.get("/processes/parcels").text
    assert visitor.post(f"{path}/nudge", reason="x").status_code == 403
    assert visitor.post("/processes/parcels/start", input="{}").status_code == 403
    visitor.client.close()
