"""System checks: what they find, and the hints."""

from typing import Any

import pytest
from django.core import checks
from django.test import override_settings

from support.database import Database

pytestmark = pytest.mark.usefixtures("django")


def found(*, databases: list[str] | None = None) -> dict[str, str]:
    """Our messages by id, with their hints."""
    return {
        str(one.id): f"{one.msg} {one.hint or ''}".strip()
        for one in checks.run_checks(databases=databases)
        if str(one.id).startswith("holdfast.")
    }


def test_a_right_project_has_no_messages() -> None:
    assert found(databases=["default"]) == {}


@pytest.mark.parametrize(
    ("given", "number", "text"),
    [
        ({"WORKER_CONCURENCY": 3}, "E001", "not a setting; did you mean 'WORKER_CONCURRENCY'?"),
        ({"LEASE": "often"}, "E001", "HOLDFAST_LEASE='often' cannot be used"),
        ({"DATABASE": "tasks"}, "E002", "stored in DATABASES['tasks'], and there is only 'default'"),
        ({"APP": "shop"}, "E003", "'shop' is not an application Use MODULE:APP"),
        ({"APP": "nowhere.tasks:app"}, "E003", "No module named 'nowhere'"),
        ({"APP": "support.django_app.tasks:none"}, "E003", "has no attribute 'none'"),
        ({"APP": "support.django_app.tasks:calls"}, "E003", "is a list, not an App"),
    ],
)
def test_a_wrong_setting_is_found(given: dict[str, Any], number: str, text: str) -> None:
    with override_settings(HOLDFAST=given):
        messages = found()
    assert text in messages[f"holdfast.{number}"]


def test_another_engine_is_found(monkeypatch: pytest.MonkeyPatch, django: Any) -> None:
    monkeypatch.setattr(django, "vendor", "sqlite")
    assert "DATABASES['default'] is sqlite" in found()["holdfast.E002"]


def test_a_second_app_and_a_plain_one_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast import App
    from support.django_app import tasks

    other = App(name="other")
    other.task("other.task")(lambda: None)
    monkeypatch.setattr(tasks, "other", other, raising=False)
    assert "support.django_app.tasks:other is a second application" in found()["holdfast.W002"]
    with override_settings(HOLDFAST={"APP": "support.django_app.tasks:other"}):
        messages = found()
    assert "Make it a DjangoApp" in messages["holdfast.W001"]
    assert "because it runs support.django_app.tasks:other" in messages["holdfast.W002"]


def test_a_missing_schema_is_found_with_the_command_that_installs_it(db: Database) -> None:
    db.connect().execute("drop schema queues cascade")
    assert "Run python manage.py migrate" in found(databases=["default"])["holdfast.W003"]
    assert found() == {}


def test_a_backend_without_its_app_or_with_an_unknown_option_is_found() -> None:
    from django.apps import apps

    installed = [one.name for one in apps.get_app_configs() if one.name != "holdfast.contrib.django"]
    backend = {"BACKEND": "holdfast.contrib.django.backend.HoldfastBackend", "OPTIONS": {"RETRIES": 3}}
    with override_settings(TASKS={"default": backend}):
        assert "has no 'RETRIES'. The options are" in found()["holdfast.E005"]
        with override_settings(INSTALLED_APPS=installed):
            assert 'Add "holdfast.contrib.django" to INSTALLED_APPS.' in found()["holdfast.E004"]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"MAX_ATTEMPTS": 0}, "MAX_ATTEMPTS must be a whole number between 1 and 1000"),
        ({"MAX_ATTEMPTS": "3"}, "MAX_ATTEMPTS must be a whole number"),
        ({"TIMEOUT": "1m"}, "TIMEOUT must be a number of seconds"),
    ],
)
def test_a_wrong_option_of_a_backend_is_found(option: dict[str, Any], text: str) -> None:
    backend = {"BACKEND": "holdfast.contrib.django.backend.HoldfastBackend", "OPTIONS": option}
    with override_settings(TASKS={"default": backend}):
        assert text in found()["holdfast.E005"]
