"""A project of Django on the database of each test."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from support.database import Database
from support.django_project import django_project


@pytest.fixture
def django(db: Database) -> Iterator[Any]:
    """Django's connection to the database of this test."""
    with django_project(db.dsn) as connection:
        yield connection


@pytest.fixture
def sandbox(django: Any) -> Iterator[Any]:
    """What the fixture `holdfast` of holdfast.contrib.django.fixtures gives to a test that commits."""
    from holdfast.contrib.django.testing import Sandbox
    from support.django_app import tasks

    tasks.calls.clear()
    tasks.connected.clear()
    with closing(Sandbox()) as found:
        yield found
