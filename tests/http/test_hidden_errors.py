"""What supervisors, receivers and handlers say may quote values: it is hidden wherever it is shown."""

from uuid import UUID

import pytest

from support.engine import claim_one, end, enqueue, rows
from support.quoted_errors import CANARY, CHECKS, QUOTE, fail_all
from support.visitor import Visitor
from support.web import Web

HIDDEN = f"(hidden: text of {len(QUOTE)} characters)"


@pytest.fixture(scope="module")
def refused(web: Web) -> UUID:
    return fail_all(web.database.connect())


def test_health_hides_what_supervisors_and_receivers_said(web: Web, refused: UUID) -> None:
    del refused
    with web.database.connect() as conn:
        told = rows(conn, "select check_name from queues.health() where error like %s", [f"%{CANARY}%"])
    assert {line["check_name"] for line in told} == CHECKS
    answer = web.client("read").get("/v1/health")
    assert CANARY not in answer.text
    lines = [line for line in answer.json()["lines"] if line["error"] is not None]
    assert {line["check_name"] for line in lines} == CHECKS
    assert HIDDEN in [line["error"] for line in lines]


@pytest.mark.parametrize("path", ["/", "/health", "/outbox", "/outbox/show?name=crm&status=outstanding"])
def test_pages_hide_what_supervisors_and_receivers_said(anna: Visitor, refused: UUID, path: str) -> None:
    del refused
    shown = anna.get(path).text
    assert CANARY not in shown
    assert "(hidden: text of" in shown


def test_why_a_task_waits_is_told_without_what_its_receiver_said(
    web: Web, anna: Visitor, refused: UUID
) -> None:
    shown = web.client("read").get(f"/v1/tasks/{refused}").json()
    assert shown["why"].endswith("delivery failed.")
    assert [reason["error"] for reason in shown["reasons"]] == [None, HIDDEN]
    page = anna.get(f"/tasks/{refused}").text
    assert (CANARY in page, HIDDEN in page) == (False, True)


def test_no_fact_quotes_what_supervisors_and_receivers_said(web: Web, refused: UUID) -> None:
    del refused
    with web.database.connect() as conn:
        assert rows(conn, "select code from queues.health() where facts::text like %s", [f"%{CANARY}%"]) == []
        told = """select e.code, e.facts, e.error from queues.task_status t, queues.explain(t.task_id) e"""
        found = rows(conn, told)
    assert [row for row in found if CANARY in str(row["facts"])] == []
    assert [row for row in found if CANARY in str(row["error"])]


def test_deliveries_are_listed_without_what_their_receiver_said(web: Web, refused: UUID) -> None:
    del refused
    found = web.client("read").get("/v1/subscriptions/crm/deliveries", params={"status": "outstanding"})
    assert [one["last_error"] for one in found.json()["deliveries"]] == [HIDDEN] * 5


def test_the_events_of_a_task_hide_what_its_handler_said(web: Web, anna: Visitor) -> None:
    conn = web.database.connect()
    task_id = enqueue(conn, "cancelled.one")
    end(conn, claim_one(conn, queues=["cancelled"]), "cancelled", error={"kind": "Cancel", "message": QUOTE})
    events = web.client("read").get(f"/v1/tasks/{task_id}/events")
    assert (CANARY in events.text, HIDDEN in events.text) == (False, True)
    page = anna.get(f"/tasks/{task_id}").text
    assert (CANARY in page, HIDDEN in page) == (False, True)
