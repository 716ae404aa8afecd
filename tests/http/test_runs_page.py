"""The page Runs: which runs it finds, what they wait for, and steps that fail."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from support.engine import claim_one, end, enqueue
from support.visitor import Visitor
from support.web import Web

LATER = "2090-01-01 00:00Z"
MESSAGE = "TLS certificate of bank 77 expired"


@pytest.fixture
def conn(web: Web) -> Iterator[psycopg.Connection]:
    with web.database.connect() as connection:
        yield connection


def _suspend(conn: psycopg.Connection, type_: str, *tries: int, **wait: str) -> UUID:
    task_id = enqueue(conn, type_)
    task = claim_one(conn, queues=[type_.partition(".")[0]])
    failed = [
        {"name": "call_bank", "try": n, "tries": 9, "retry_at": LATER, "error": {"message": MESSAGE}}
        for n in tries
    ]
    waits = [{"name": "call_bank", "until": LATER, **wait}]
    end(conn, task, "suspend", waits=waits, run_at=LATER, steps=[], tries=failed)
    return task_id


def test_it_shows_what_a_run_waits_for_and_the_step_that_fails(
    anna: Visitor, conn: psycopg.Connection
) -> None:
    waiting = _suspend(conn, "bank.ask", signal="approval")
    failing = _suspend(conn, "bank.call", 1, 2)
    page = anna.get("/runs?type=bank.").text
    assert all(f"/tasks/{task_id}" in page for task_id in (waiting, failing))
    assert "signal approval" in page
    assert "failed try 2 of 9" in page
    assert "handler_error" in page
    assert MESSAGE not in page
    anna.post("/values/show", back="/runs", reason="support")
    assert MESSAGE in anna.get("/runs?type=bank.").text
    assert str(waiting) not in anna.get("/runs?type=bank.call").text


def test_a_run_is_found_behind_more_newer_tasks_than_a_search_examines(
    anna: Visitor, conn: psycopg.Connection
) -> None:
    task_id = _suspend(conn, "old.run")
    conn.execute(
        "select count(*) from queues.enqueue_many((select jsonb_agg(jsonb_build_object('type', 'new.task'))"
        " from generate_series(1, 50000)))"
    )
    conn.execute("select queues.enqueue('new.task')")
    assert str(task_id) in anna.get("/runs").text


def test_more_runs_than_a_page_shows_are_on_the_next(
    anna: Visitor, conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.pages.runs.MAX_RUNS", 2)
    first, *_ = [_suspend(conn, "many.runs") for _ in range(3)]
    page = anna.get("/runs?type=many.").text
    assert str(first) not in page
    link = page.partition('class="pager"><a class="button" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert str(first) in anna.get(link).text
