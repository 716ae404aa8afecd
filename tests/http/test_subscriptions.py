"""Subscriptions over HTTP and on their page: deliveries with errors, and sending them again."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from holdfast._engine import Engine, events, health
from holdfast._engine.events import Settlement
from support.visitor import Visitor
from support.web import Web


@pytest.fixture
def anna(web: Web) -> Iterator[Visitor]:
    visitor = Visitor(web)
    assert visitor.log_in("admin").status_code == 303
    yield visitor
    visitor.client.close()


def subscribe(engine: Engine) -> tuple[str, int]:
    """A subscription to events that begin with its name."""
    name = f"shop{uuid4().hex[:8]}"
    return name, engine.run(events.subscribe(name, "console", "-", [f"{name}.*"]))


@pytest.fixture
def shop(engine: Engine) -> tuple[str, int]:
    return subscribe(engine)


def settle(engine: Engine, shop: tuple[str, int], status: Any, error: str | None = None) -> UUID:
    """Emits an event and reports its delivery."""
    name, number = shop
    event_id = engine.run(events.emit(f"{name}.created", {"n": 1}))
    [claimed] = [one for one in engine.run(events.claim_events("d1", number)) if one.event_id == event_id]
    engine.run(events.settle_events("d1", [Settlement(number, event_id, claimed.token, status, error)]))
    return event_id


def statuses(reader: httpx.Client, name: str, status: str) -> list[tuple[str, str]]:
    found = reader.get(f"/v1/subscriptions/{name}/deliveries", params={"status": status}).json()
    return [(one["event_id"], one["status"]) for one in found["deliveries"]]


def test_deliveries_are_listed_by_their_state_with_their_errors(
    engine: Engine, reader: httpx.Client, shop: tuple[str, int]
) -> None:
    name, _ = shop
    dead = settle(engine, shop, "rejected", "410 Gone")
    delivered = settle(engine, shop, "delivered")
    retried = settle(engine, shop, "failed", "503 Busy")
    assert statuses(reader, name, "dead") == [(str(dead), "dead")]
    assert statuses(reader, name, "delivered") == [(str(delivered), "delivered")]
    assert statuses(reader, name, "outstanding") == [(str(retried), "retrying")]
    found = reader.get(f"/v1/subscriptions/{name}/deliveries").json()["deliveries"]
    assert found[0]["last_error"] == "(hidden: text of 8 characters)"
    assert reader.get("/v1/subscriptions/nobody/deliveries").status_code == 404
    known = {one["name"]: one for one in reader.get("/v1/subscriptions").json()["subscriptions"]}
    assert (known[name]["dead"], known[name]["pending"]) == (1, 1)


def test_redelivery_is_counted_first_and_recorded_with_its_reason(
    engine: Engine, admin: httpx.Client, reader: httpx.Client, shop: tuple[str, int]
) -> None:
    name, _ = shop
    for _ in range(3):
        settle(engine, shop, "rejected", "410 Gone")
    path = f"/v1/subscriptions/{name}/redrive"
    assert admin.post(path, json={"dry_run": True}).json() == {"name": name, "events": 3, "dry_run": True}
    assert len(statuses(reader, name, "dead")) == 3
    assert admin.post(path, json={"reason": "it is back"}).json()["events"] == 3
    assert statuses(reader, name, "dead") == []
    [act] = reader.get(f"/v1/subscriptions/{name}").json()["acts"]
    assert (act["act"], act["events"], act["reason"]) == ("redriven", 3, "it is back")
    assert act["actor"].endswith(" for test admin")


def test_one_event_is_sent_again_also_if_it_was_delivered(
    engine: Engine, admin: httpx.Client, reader: httpx.Client, shop: tuple[str, int]
) -> None:
    name, _ = shop
    chosen = settle(engine, shop, "rejected")
    other = settle(engine, shop, "rejected")
    delivered = settle(engine, shop, "delivered")
    for event_id in (chosen, delivered):
        body = {"event_id": str(event_id), "dry_run": True}
        assert admin.post(f"/v1/subscriptions/{name}/redrive", json=body).json()["events"] == 1
        body = {"event_id": str(event_id), "reason": "the receiver lost it"}
        assert admin.post(f"/v1/subscriptions/{name}/redrive", json=body).json()["events"] == 1
    assert statuses(reader, name, "dead") == [(str(other), "dead")]
    assert {event_id for event_id, _ in statuses(reader, name, "outstanding")} == {
        str(chosen),
        str(delivered),
    }


def test_an_event_of_another_subscription_is_not_sent_again(
    engine: Engine, admin: httpx.Client, reader: httpx.Client, shop: tuple[str, int]
) -> None:
    name, _ = shop
    foreign, _ = subscribe(engine)
    event_id = settle(engine, shop, "rejected")
    body = {"event_id": str(event_id), "reason": "mine"}
    assert admin.post(f"/v1/subscriptions/{foreign}/redrive", json=body).status_code == 404
    assert admin.post(f"/v1/subscriptions/{foreign}/redrive", json={"reason": "all"}).json()["events"] == 0
    assert statuses(reader, foreign, "outstanding") == []
    assert statuses(reader, name, "dead") == [(str(event_id), "dead")]
    assert admin.post(f"/v1/subscriptions/{name}/redrive", json=body).json()["events"] == 1


def test_events_that_fail_after_the_preview_are_left_out(
    engine: Engine, anna: Visitor, reader: httpx.Client, shop: tuple[str, int]
) -> None:
    name, _ = shop
    settle(engine, shop, "rejected")
    page = anna.get(f"/outbox/show?name={name}").text
    until = page.partition('name="until" value="')[2].partition('"')[0].replace("&#43;", "+")
    late = settle(engine, shop, "rejected")
    answer = anna.post("/outbox/redrive", name=name, reason="it is back", until=until)
    assert "One event is sent again" in anna.get(answer.headers["Location"]).text
    assert statuses(reader, name, "dead") == [(str(late), "dead")]


def test_what_is_counted_first_is_what_had_failed_by_then(
    engine: Engine, admin: httpx.Client, shop: tuple[str, int]
) -> None:
    name, _ = shop
    settle(engine, shop, "rejected")
    until = engine.run(health.clock()).isoformat()
    late = settle(engine, shop, "rejected")
    path = f"/v1/subscriptions/{name}/redrive"
    of_late = {"until": until, "event_id": str(late), "dry_run": True}
    assert admin.post(path, json=of_late).status_code == 404
    assert admin.post(path, json={"until": until, "dry_run": True}).json()["events"] == 1
    assert admin.post(path, json={"until": until, "reason": "it is back"}).json()["events"] == 1
    assert admin.post(path, json={"until": until, "dry_run": True}).json()["events"] == 0


def test_pause_and_resume_are_recorded(
    engine: Engine, admin: httpx.Client, reader: httpx.Client, shop: tuple[str, int]
) -> None:
    name, _ = shop
    assert admin.post(f"/v1/subscriptions/{name}/pause", json={"reason": "moving"}).json()["changed"]
    assert not admin.post(f"/v1/subscriptions/{name}/pause").json()["changed"]
    assert admin.post(f"/v1/subscriptions/{name}/resume", json={"reason": "moved"}).json()["changed"]
    acts = reader.get(f"/v1/subscriptions/{name}").json()["acts"]
    assert [(act["act"], act["reason"]) for act in acts] == [("resumed", "moved"), ("paused", "moving")]


def test_the_page_of_a_subscription_shows_errors_as_text(
    engine: Engine, anna: Visitor, shop: tuple[str, int]
) -> None:
    name, _ = shop
    event_id = settle(engine, shop, "rejected", "<script>alert(1)</script>")
    page = anna.get(f"/outbox/show?name={name}").text
    assert str(event_id) in page
    assert "<script>alert" not in page
    assert "1 failed event gets" in page
    for status in ("outstanding", "delivered", "odd"):
        assert anna.get(f"/outbox/show?name={name}&status={status}").status_code == 200
    assert anna.get("/outbox/show?name=nobody").status_code == 404
    wrong = anna.post("/outbox/redrive", name=name, reason="x", event_id="odd")
    assert wrong.status_code == 400
