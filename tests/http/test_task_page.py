"""The page of one task: what it belongs to, where its trace and log lines are, and its attempts."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast._engine import Engine, access, enqueue, health, leases, schedules, steps
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import NewSchedule
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from support.comms import CHANNELS
from support.database import Database
from support.engine import claim_one, end
from support.engine import enqueue as make
from support.leases import ended
from support.visitor import Visitor
from support.web import Web, serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def web(module_db: Database) -> Iterator[Web]:
    traces = "https://traces.example.com/trace/{trace_id}?org=1"
    logs = "https://logs.example.com/?q={task_id}"
    with serving(module_db, trace_url=traces, log_url=logs) as running:
        yield running


@pytest.fixture
def anna(web: Web) -> Iterator[Visitor]:
    visitor = Visitor(web)
    assert visitor.log_in("read").status_code == 303
    yield visitor
    visitor.client.close()


def _enqueue(engine: Engine, task: NewTask) -> UUID:
    return engine.run(enqueue.enqueue(task))


def _related(engine: Engine, task_id: UUID) -> dict[str, steps.RelatedThing]:
    return {one.relation: one for one in engine.run(steps.related_to(task_id))}


def test_the_page_names_the_batch_and_how_far_it_is(anna: Visitor, engine: Engine) -> None:
    members = [
        one.task_id
        for one in engine.run(enqueue.enqueue_many([NewTask("resize.one", {"n": n}) for n in range(3)]))
    ]
    [after] = engine.run(enqueue.enqueue_after([NewTask("resize.publish")], members, None))
    [first] = engine.run(leases.claim("w1", 1, queues=["resize"]))
    engine.run(leases.finish("w1", [ended(first.task_id, first.token, "succeeded")]))

    page = anna.get(f"/tasks/{members[1]}").text
    assert f'<a href="/tasks/{after.task_id}">resize.publish</a>' in page
    assert "1 of 3 tasks ended" in page
    assert "1 of 3 tasks ended" in anna.get(f"/tasks/{after.task_id}").text


def test_the_page_names_the_run_that_started_it_and_where_it_was_forked(
    anna: Visitor, engine: Engine
) -> None:
    parent = _enqueue(engine, NewTask("orders.fulfil"))
    [run] = engine.run(leases.claim("w1", 1, queues=["orders"]))
    starting = steps.start_children(
        "w1",
        run.task_id,
        run.token,
        step=steps.StartingStep("pack", 1, awaited=True),
        tasks='[{"type":"orders.pack"}]',
        payloads=["{}"],
    )
    _, [child] = engine.run(starting)
    fork = engine.run(steps.fork(parent, None, "try again"))

    assert f'<a href="/tasks/{parent}">orders.fulfil</a>' in anna.get(f"/tasks/{child}").text
    assert _related(engine, UUID(child))["parent"].name == "pack"
    assert "Forked from" in anna.get(f"/tasks/{fork}").text


def test_the_page_names_the_process_and_the_schedule(anna: Visitor, engine: Engine) -> None:
    connection = anna.web.database.connect()
    email = CHANNELS[0]
    send = email.kick_off(connection, scheduled_at=engine.run(health.clock()))
    [supervisor] = connection.execute(
        "select task_id from queues.process_status where process = 'comms.send_email' and process_id = %s",
        [send],
    ).fetchall()
    page = anna.get(f"/tasks/{supervisor[0]}").text
    assert f'<a href="/processes/comms.send_email/{send}">comms.send_email {send}</a>' in page
    assert anna.get(f"/processes/comms.send_email/{send}").status_code == 200

    nightly = NewSchedule(name="nightly", task=NewTask("reports.nightly"), cron="0 2 * * *")
    engine.run(schedules.add_schedule(nightly))
    task_id = engine.run(schedules.run_schedule("nightly", "now"))
    page = anna.get(f"/tasks/{task_id}").text
    link = page.partition('<a href="/schedules/show?name=nightly&amp;namespace=')[2].partition(
        '">nightly</a>'
    )
    assert link[0] == engine.run(access.namespace())


def test_the_page_links_to_the_schedule_of_its_own_namespace(anna: Visitor, engine: Engine) -> None:
    client = Engine(anna.web.database.connect("holdfast_client"))
    for own, type_ in ((engine, "reports.mine"), (client, "reports.theirs")):
        every = timedelta(hours=1)
        own.run(schedules.add_schedule(NewSchedule(name="shared", task=NewTask(type_), every=every)))
    for own, type_ in ((engine, "reports.mine"), (client, "reports.theirs")):
        task_id = own.run(schedules.run_schedule("shared", "now", own.run(access.namespace())))
        page = anna.get(f"/tasks/{task_id}").text
        link = page.partition('<a href="/schedules/show?')[2].partition('"')[0].replace("&amp;", "&")
        assert type_ in anna.get(f"/schedules/show?{link}").text
    refused = anna.get("/schedules/show?name=shared")
    assert (refused.status_code, "exists in 2 namespaces" in refused.text) == (400, True)


@pytest.mark.parametrize(
    "metadata",
    [
        {"fork_of": "x", "continues": 7, "replay_of": ["a"], "schedule": {"a": 1}},
        {"fork_of": "00000000-0000-0000-0000-000000000000", "schedule": "'; drop table queues.task"},
    ],
)
def test_what_others_wrote_into_metadata_and_payload_relates_a_task_to_nothing(
    engine: Engine, metadata: Any
) -> None:
    payload = {"send_email_task_id": "9" * 18, "send_task_id": "-1"}
    task_id = _enqueue(engine, NewTask("comms.forged", payload, metadata=metadata))
    assert engine.run(steps.related_to(task_id)) == []


def test_a_task_of_another_schema_is_in_no_process(anna: Visitor, engine: Engine) -> None:
    email = CHANNELS[0]
    send = email.kick_off(anna.web.database.connect(), scheduled_at=engine.run(health.clock()))
    own = {"send_email_task_id": send}
    assert "process" in _related(engine, _enqueue(engine, NewTask("comms.own", own)))
    assert "process" not in _related(engine, _enqueue(engine, NewTask("shop.other", own)))


def test_the_trace_and_the_log_lines_are_linked(anna: Visitor, engine: Engine) -> None:
    task_id = _enqueue(engine, NewTask("a.traced", metadata={"traceparent": PARENT}))
    page = anna.get(f"/tasks/{task_id}").text
    assert f'href="https://traces.example.com/trace/{TRACE}?org=1"' in page
    assert f'href="https://logs.example.com/?q={task_id}"' in page


@pytest.mark.parametrize(
    "given", ["", 7, "00-" + "0" * 32 + "-b7ad6b7169203331-01", f"{PARENT}\n", 'x" onclick="alert(1)']
)
def test_what_is_no_trace_is_not_linked(anna: Visitor, engine: Engine, given: Any) -> None:
    task_id = _enqueue(engine, NewTask("a.traced", metadata={"traceparent": given}))
    assert "traces.example.com" not in anna.get(f"/tasks/{task_id}").text


@pytest.mark.parametrize(
    "address",
    [
        *("javascript:alert('{trace_id}')", "https://{trace_id}.example.com/", "https://a.example.com/"),
        *("https://a.example.com/{trace_id}/{task_id}", "https://a.example.com/ {trace_id}"),
    ],
)
def test_an_address_for_traces_that_cannot_be_one_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="trace_id"):
        Settings.load(trace_url=address)


def test_attempts_are_drawn_and_those_that_failed_are_marked(anna: Visitor, engine: Engine) -> None:
    task_id = _enqueue(engine, NewTask("flaky.call", max_attempts=3))
    for status in ("retry", "succeeded"):
        [run] = engine.run(leases.claim("w1", 1, queues=["flaky"]))
        error = {"kind": "Boom", "message": "it broke"} if status == "retry" else None
        now = engine.run(health.clock())
        word: Any = status
        engine.run(leases.finish("w1", [ended(run.task_id, run.token, word, error=error, run_at=now)]))
    page = anna.get(f"/tasks/{task_id}").text
    assert page.count('class="b-failed"') == 1
    assert page.count('class="b-attempt"') == 1


def test_the_output_of_a_failed_child_process_is_shown_with_its_error(engine: Engine, web: Web) -> None:
    task_id = _enqueue(engine, NewTask("printing.job", max_attempts=1))
    [run] = engine.run(leases.claim("w1", 1, queues=["printing"]))
    error = {"kind": "exited", "message": "exit code 1", "stderr": "no paper left", "traceback": "line 1"}
    engine.run(leases.finish("w1", [ended(run.task_id, run.token, "failed", error=error)]))
    visitor = Visitor(web)
    visitor.log_in("admin")
    assert "no paper left" not in visitor.get(f"/tasks/{task_id}").text
    shown = visitor.post(f"/tasks/{task_id}/reveal", reason="to see why").text
    assert "no paper left" in shown
    assert "Output (stderr)" in shown
    visitor.client.close()


def test_the_sections_have_the_words_that_users_know(anna: Visitor, engine: Engine) -> None:
    task_id = _enqueue(engine, NewTask("a.plain", delay=timedelta(hours=1)))
    admin = Visitor(anna.web)
    admin.log_in("operate")
    page = admin.get(f"/tasks/{task_id}").text
    for word in ("Actions", "Timeline", "Details", "Payload"):
        assert f">{word}</h2>" in page
    admin.client.close()


def test_a_task_is_found_by_the_end_of_its_id_and_by_its_key(anna: Visitor, engine: Engine) -> None:
    first = _enqueue(engine, NewTask("named.one", idempotency_key="order-7"))
    for name in (str(first)[-8:], str(first)[-12:].upper(), "order-7"):
        answer = anna.get(f"/tasks/{name}")
        assert (answer.status_code, answer.headers["location"].rstrip("?")) == (303, f"/tasks/{first}")
    _enqueue(engine, NewTask("named.two", idempotency_key="order-7"))
    listed = anna.get("/tasks/order-7").headers["location"]
    assert listed == "/tasks?search=order-7"
    assert all(name in anna.get(listed).text for name in ("named.one", "named.two"))
    missing = anna.get("/tasks/order-8")
    assert missing.status_code == 404
    assert "no task has the id or the key" in missing.text


def test_a_run_that_waits_for_a_signal_shows_a_button_and_no_command(anna: Visitor, web: Web) -> None:
    assert anna.log_in("operate").status_code == 303
    with web.database.connect() as conn:
        task_id = make(conn, "waits.here")
        until = "2090-01-01 00:00:00.5Z"
        wait = {"name": "ok", "signal": "approval", "until": until}
        end(conn, claim_one(conn, queues=["waits"]), "suspend", waits=[wait], run_at=until)
    page = anna.get(f"/tasks/{task_id}").text
    assert 'datetime="2090-01-01T00:00:00+00:00">2090-01-01 00:00:00 UTC</time>.' in page
    assert "holdfast runs signal" not in page
    assert "Signal…" in page
