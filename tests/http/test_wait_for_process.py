"""Waiting for the end of a process, on one connection and without a slot of a worker."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast import App, messages
from holdfast._connections.wait_ticket import issue
from holdfast.errors import NotFound
from holdfast.settings import Settings
from support.comms import CHANNELS, Channel
from support.web import SECRET, Web
from support.worker_thread import working

EMAIL = CHANNELS[0]
LOGINS = 25


def ticket(process: str, process_id: int) -> str:
    return issue([SECRET], (process, process_id), timedelta(hours=1), time.time())


def when_waiting(web: Web, count: int) -> None:
    deadline = time.monotonic() + 30
    while web.site.waiting != count:
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.fixture
def app(web: Web) -> Iterator[App]:
    found = App(settings=Settings.load(database_url=web.database.dsn, web_secret=SECRET, web_url=web.url))
    yield found
    found.close()


@pytest.fixture
def send(web: Web) -> int:
    return EMAIL.kick_off(web.database.connect())


def end(web: Web, send: int) -> None:
    conn = web.database.connect()
    EMAIL.supervise(conn, send)
    EMAIL.succeed(conn, send)
    EMAIL.supervise(conn, send)


def test_the_response_comes_when_the_process_ends(web: Web, app: App, send: int) -> None:
    url = messages.find_email(send, app=app).wait_url()
    assert urlsplit(url).path == f"/v1/processes/comms.send_email/{send}/wait"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(web.client().get, f"{url}&timeout=60")
        when_waiting(web, 1)
        assert not waiting.done()
        end(web, send)
        told = waiting.result(timeout=30)
    assert told.status_code == 200
    assert told.json() | {"ended_at": None} == {
        "process": "comms.send_email",
        "process_id": send,
        "status": "succeeded",
        "ended_at": None,
        "next": None,
    }
    assert web.client().get(url).json() == told.json()
    when_waiting(web, 0)


def test_after_the_timeout_the_response_has_the_next_url(web: Web, app: App, send: int) -> None:
    answer = web.client().get(f"{messages.find_email(send, app=app).wait_url()}&timeout=0.01")
    assert (answer.status_code, answer.json()["status"]) == (202, "scheduled")
    end(web, send)
    assert web.client().get(answer.json()["next"]).status_code == 200


def test_a_stream_ends_with_the_process(web: Web, send: int) -> None:
    path = f"/v1/processes/comms.send_email/{send}/stream"
    with (
        httpx.Client(base_url=web.url, timeout=30) as client,
        client.stream("GET", path, params={"ticket": ticket("comms.send_email", send)}) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        end(web, send)
        told = [line for line in lines if line and not line.startswith(":")]
    place, event, data = told
    assert event == "event: end"
    assert json.loads(data.removeprefix("data: "))["status"] == "succeeded"
    known = web.client().get(
        path, params={"ticket": ticket("comms.send_email", send), "after": place.removeprefix("id: ")}
    )
    assert known.status_code == 204


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_a_ticket_is_valid_for_one_process_only(web: Web, send: int, channel: Channel) -> None:
    good = ticket("comms.send_email", send)
    for process, process_id in ((f"comms.send_{channel.name}", send + 1), ("comms.send_sms", send)):
        refused = web.client().get(f"/v1/processes/{process}/{process_id}/wait", params={"ticket": good})
        assert (refused.status_code, refused.json()["code"]) == (401, "ticket_not_good")


def test_who_may_read_needs_no_ticket_and_others_do(web: Web, send: int, reader: httpx.Client) -> None:
    path = f"/v1/processes/comms.send_email/{send}/wait?timeout=0"
    assert reader.get(path).status_code == 202
    assert web.client().get(path).status_code == 401
    assert web.client("enqueue").get(path).status_code == 403


def test_a_missing_process_is_not_found(web: Web, app: App, reader: httpx.Client) -> None:
    assert reader.get("/v1/processes/comms.send_email/999999/wait").json()["detail"] == (
        "there is no comms.send_email 999999"
    )
    assert reader.get("/v1/processes/Bad-Name/1/wait").status_code == 400
    with pytest.raises(NotFound, match=r"there is no comms\.send_email 999999"):
        app.process("comms.send_email", 999999).status()


def test_an_application_waits_for_a_process_and_cancels_it(web: Web, app: App, send: int) -> None:
    mail = messages.find_email(send, app=app)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(mail.wait_end, 30)
        assert app.process("comms.send_email", send).status().status == "scheduled"
        assert mail.cancel("never mind") == "cancelled"
        assert waiting.result(timeout=30).status == "cancelled"
    assert app.process("comms.send_email", send).wait_end(1).reason == "cancelled by postgres: never mind"
    with pytest.raises(NotFound, match=r"there is no process comms\.letters"):
        app.process("comms.letters", 1).cancel()


def test_many_pages_wait_for_their_mail_and_none_uses_a_slot(web: Web, app: App) -> None:
    """More pages than a worker has slots: only the sends themselves run in the worker."""
    conn = web.database.connect()
    with ThreadPoolExecutor(LOGINS) as pool, httpx.Client(timeout=90, limits=httpx.Limits()) as client:
        mails = [
            messages.send_email(to=f"user{n}@example.com", subject="Your code", text="123456", app=app)
            for n in range(LOGINS)
        ]
        waiting = [pool.submit(client.get, f"{mail.wait_url()}&timeout=60") for mail in mails]
        when_waiting(web, LOGINS)
        with working(app, web.database.dsn, worker_queues="comms", worker_concurrency=2):
            told = [one.result(timeout=60).json()["status"] for one in waiting]
    assert told == ["succeeded"] * LOGINS
    found = conn.execute("select distinct type from queues.task where executor = 'python'").fetchall()
    assert found == []
