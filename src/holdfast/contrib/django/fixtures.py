"""A plugin beside pytest-django: `pytest_plugins = ["holdfast.contrib.django.fixtures"]` in conftest.py."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from holdfast.contrib.django.testing import Sandbox


@pytest.fixture
def holdfast(db: Any) -> Iterator[Sandbox]:
    """The tasks of this test: `holdfast.drain()` runs them, `holdfast.assert_enqueued(…)` looks for one."""
    del db
    with closing(Sandbox()) as sandbox:
        yield sandbox
