"""The address of a database of Django."""

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict


@pytest.fixture
def address(django: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The address of the default database with other settings."""
    from holdfast.contrib.django.conf import dsn_of

    def read(**given: Any) -> dict[str, Any]:
        monkeypatch.setattr(django, "settings_dict", {"NAME": "shop", "OPTIONS": {}} | given)
        return dict(conninfo_to_dict(dsn_of("default")))

    return read


def test_every_part_of_the_address_is_taken(address: Any) -> None:
    given = {"USER": "o'neill", "PASSWORD": r"a b\c'@:/", "HOST": "/run/pg", "PORT": 6432}
    expected = {"user": "o'neill", "password": r"a b\c'@:/", "host": "/run/pg", "port": "6432"}
    assert address(**given) == {"dbname": "shop", **expected}


def test_options_of_libpq_are_taken_and_those_of_django_are_not(address: Any) -> None:
    options = {
        "sslmode": "require",
        "connect_timeout": 3,
        "pool": True,
        "isolation_level": 2,
        "server_side_binding": True,
        "assume_role": "web app",
    }
    assert address(OPTIONS=options) == {
        "dbname": "shop",
        "sslmode": "require",
        "connect_timeout": "3",
        "options": r"-c role=web\ app",
    }


def test_a_service_needs_no_name(address: Any) -> None:
    assert address(NAME="", OPTIONS={"service": "shop"}) == {"service": "shop"}


def test_another_engine_is_refused(django: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from holdfast.contrib.django.conf import dsn_of

    monkeypatch.setattr(django, "vendor", "sqlite")
    with pytest.raises(ImproperlyConfigured, match=r"PostgreSQL, but DATABASES\['default'\] is sqlite"):
        dsn_of("default")
