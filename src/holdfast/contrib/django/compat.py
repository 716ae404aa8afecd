"""`django.tasks`, or the backport `django-tasks` where Django is older than 6.0."""

from importlib import import_module
from typing import Any

import django

IS_NATIVE = django.VERSION >= (6, 0)
_PACKAGE = "django.tasks" if IS_NATIVE else "django_tasks"


def load(name: str = "") -> Any:
    """A module of it, for example `load(".base")`."""
    try:
        return import_module(f"{_PACKAGE}{name}")
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise ModuleNotFoundError(
            "django.tasks came with Django 6.0: install the package django-tasks for this version",
            name=error.name,
        ) from None


def is_available() -> bool:
    """Whether this project can use `django.tasks` at all."""
    try:
        load()
    except ModuleNotFoundError:
        return False
    return True


def invalid_task(message: str) -> Exception:
    """The exception for a task that cannot be enqueued, which has another name in the backport."""
    kind: type[Exception] = getattr(load(".exceptions"), "InvalidTask" if IS_NATIVE else "InvalidTaskError")
    return kind(message)


def normalize_json(value: Any) -> Any:
    return import_module("django.utils.json" if IS_NATIVE else "django_tasks.utils").normalize_json(value)
