"""For tests of the whole: real processes, real signals, and a durable server of the test's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.ground import Ground, durable_ground


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with durable_ground(tmp_path, int(os.environ.get("HOLDFAST_TEST_PG", "18"))) as running:
        yield running
