"""Django without a project: configured once per process, its database chosen by the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections
from django.test.utils import setup_test_environment, teardown_test_environment
from psycopg.conninfo import conninfo_to_dict

from holdfast.settings import loading

HOLDFAST: dict[str, Any] = {"NAME": "django_tests", "WORKER_CONCURRENCY": 7}


def _configure() -> None:
    if settings.configured:
        return
    settings.configure(
        TIME_ZONE="UTC",  # Django sets TZ of the whole process
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "-"}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            *(["django_tasks"] if django.VERSION < (6, 0) else []),
            "holdfast.contrib.django",
            "support.django_app",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        ROOT_URLCONF="support.django_app.urls",
        SECRET_KEY="of a test",  # noqa: S106 - guards nothing
        USE_TZ=True,
        HOLDFAST=HOLDFAST,
        TASKS={"default": {"BACKEND": "holdfast.contrib.django.backend.HoldfastBackend"}},
    )
    django.setup()
    loading._provided.clear()  # other tests of this process do without Django


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    """The connection behind the alias `default`, to this database."""
    _configure()
    parts = conninfo_to_dict(dsn)
    connection = connections["default"]
    connection.settings_dict |= {
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
        "PORT": parts["port"],
    }
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def django_project(dsn: str) -> Iterator[Any]:
    """A project with holdfast.contrib.django, as in a test of Django."""
    with django_connection(dsn) as connection:
        from holdfast.contrib.django.conf import provided_settings

        loading.provide_settings(provided_settings)
        setup_test_environment()
        try:
            yield connection
        finally:
            teardown_test_environment()
            loading._provided.clear()
