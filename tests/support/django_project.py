"""Django without a project: configured once per process, its database chosen by the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    """The connection behind the alias `default`, to this database."""
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "-"}})
        django.setup()
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
