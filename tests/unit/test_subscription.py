from typing import Any

import pytest

from holdfast.handler import Handler, build_handler
from holdfast.settings import Settings
from holdfast.worker.subscription import queue_of, unserved_queues


def handlers(*types: str, **options: Any) -> dict[str, Handler]:
    def handle() -> None:
        pass

    return {name: build_handler(name, handle, **options) for name in types}


@pytest.mark.parametrize(
    ("task_type", "queue"),
    [("billing.charge.v1", "billing"), ("service:nextjs", "service"), ("plain", "plain"), ("a.b:c", "a")],
)
def test_the_queue_of_a_type_is_its_first_segment(task_type: str, queue: str) -> None:
    assert queue_of(handlers(task_type)[task_type]) == queue


def test_queues_that_no_subscription_covers_are_told() -> None:
    settings = Settings(worker_queues=("mail",), worker_type_prefixes=("billing.",))
    app = handlers("mail.send", "billing.charge", "shop.order", "shop.refund", "default.x")
    assert unserved_queues(app, settings) == ["default", "shop"]


def test_without_subscriptions_only_the_queue_default_is_served() -> None:
    assert unserved_queues(handlers("default.x", "mail.send"), Settings()) == ["mail"]


def test_a_queue_that_a_handler_names_counts() -> None:
    assert unserved_queues(handlers("mail.send", queue="default"), Settings()) == []
