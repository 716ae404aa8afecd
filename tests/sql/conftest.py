"""For tests of single SQL functions."""

from collections.abc import Iterator

import pytest

from support.clock import Clock
from support.engine import Connection
from support.invariant import assert_invariant


@pytest.fixture
def tx(tx: Connection) -> Iterator[Connection]:
    """Whatever a test did in its transaction, every task still stands in exactly one place."""
    yield tx
    assert_invariant(tx)


@pytest.fixture
def clock(tx: Connection) -> Clock:
    """The clock of `tx`, which stands at noon."""
    return Clock(tx)
