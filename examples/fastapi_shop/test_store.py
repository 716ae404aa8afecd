"""Tests of the store, with the plugin of Holdfast: `pytest -p holdfast.testing test_store.py`."""

from collections.abc import Iterator
from typing import Any

import pytest
import store
from fastapi.testclient import TestClient

from holdfast.testing import Sandbox


@pytest.fixture
def client(holdfast: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("HOLDFAST_WEB_SECRET", "s" * 64)
    holdfast.use(store.tasks)
    with TestClient(store.web, base_url="http://localhost") as client:
        yield client


def order(client: TestClient, item: str) -> Any:
    return client.post("/orders", data={"item": item, "email": "ada@example.com"})


def test_an_order_is_shipped_and_confirmed(client: TestClient, holdfast: Sandbox) -> None:
    page = order(client, "lamp")
    assert page.url.path == "/orders/1"
    assert "data-wait" in page.text
    results = {ran.type: ran.result for ran in holdfast.drain()}
    assert results["shop.ship"] == "Order 1: lamp is on its way."
    [mail] = holdfast.mailbox()
    assert (mail.recipient, mail.subject) == ("ada@example.com", "Your order")


def test_an_order_that_is_refused_ships_nothing(client: TestClient, holdfast: Sandbox) -> None:
    refused = client.post("/orders", data={"item": "lamp", "email": "not an address"})
    assert refused.status_code == 422
    holdfast.assert_not_enqueued(store.ship)


def test_the_report_counts_the_orders(client: TestClient, holdfast: Sandbox) -> None:
    order(client, "lamp")
    order(client, "chair")
    assert holdfast.run_task(store.report) == 2
