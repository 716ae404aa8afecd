"""Servers that examples talk to."""

from collections.abc import Iterator

import pytest

from support.resend_server import ResendServer


@pytest.fixture
def resend() -> Iterator[ResendServer]:
    with ResendServer().running() as server:
        yield server
