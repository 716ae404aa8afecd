import sys
from typing import Any

import pytest

from holdfast import App
from holdfast._worker.subscription import describe, queue_of, subscribed, unserved
from holdfast.messages import send_email
from holdfast.settings import Settings


def application(*types: str, **options: Any) -> App:
    app = App()
    for name in types:
        app.task(name, **options)(lambda: None)
    return app


@pytest.mark.parametrize(
    ("task_type", "queue"),
    [("billing.charge.v1", "billing"), ("service:nextjs", "service"), ("plain", "plain"), ("a.b:c", "a")],
)
def test_the_queue_of_a_type_is_its_first_segment(task_type: str, queue: str) -> None:
    assert queue_of(task_type, None) == queue


def test_queues_that_no_subscription_covers_are_told_with_what_goes_there() -> None:
    settings = Settings(worker_queues=("mail",), worker_type_prefixes=("billing.",))
    app = application("mail.send", "billing.charge", "shop.order", "shop.refund", "default.x")
    app.schedule("0 9 * * *", name="nightly")(app.tasks["shop.order"])
    assert unserved(app, settings) == {
        "default": ["default.x"],
        "shop": ["schedule nightly", "shop.order", "shop.refund"],
    }


def test_without_subscriptions_the_queues_of_the_application_are_served() -> None:
    app = application("billing.charge", "mail.send")
    app.task("shop.order", queue="orders")(lambda: None)
    settings = subscribed(app, Settings())
    assert settings.worker_queues == ("billing", "mail", "orders")
    assert unserved(app, settings) == {}
    assert describe(app, settings)["types"] == ["billing.charge", "mail.send", "shop.order"]


def test_the_queues_of_schedules_are_served_too() -> None:
    app = application("shop.order")
    app.schedule("0 9 * * *", name="nightly")(application("reports.nightly").tasks["reports.nightly"])
    settings = subscribed(app, Settings())
    assert settings.worker_queues == ("reports", "shop")
    assert unserved(app, settings) == {}


def test_an_application_without_tasks_gets_the_queue_default() -> None:
    assert subscribed(application(), Settings()).worker_queues == ("default",)


@pytest.mark.parametrize("given", [{"worker_queues": ("a",)}, {"worker_type_prefixes": ("a.",)}])
def test_what_the_settings_name_is_all_that_is_served(given: dict[str, Any]) -> None:
    settings = Settings(**given)
    assert subscribed(application("billing.charge"), settings) is settings
    assert describe(application("billing.charge"), settings)["types"] == []


def test_the_queue_of_messages_is_served_where_a_provider_is_set() -> None:
    settings = subscribed(application("shop.order"), Settings(email_provider="smtp"))
    assert settings.worker_queues == ("comms", "shop")
    assert describe(application("shop.order"), settings)["email_provider"] == "smtp"


def test_the_queue_of_messages_is_served_where_the_application_says_that_it_sends() -> None:
    shop = App(sends_messages=True)
    assert subscribed(shop, Settings()).worker_queues == ("comms",)
    shop.task("shop.order")(lambda: None)
    assert subscribed(shop, Settings()).worker_queues == ("comms", "shop")


def test_what_a_module_imports_does_not_decide_what_is_served() -> None:
    assert vars(sys.modules[__name__])["send_email"] is send_email
    assert subscribed(application("shop.order"), Settings()).worker_queues == ("shop",)
