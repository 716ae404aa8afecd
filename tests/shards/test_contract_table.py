"""The page about shards lists the tests of one database that a front does not pass, and no others fail."""

import re
from pathlib import Path

import pytest

from support.contract import PAGE, TESTS, listed_differences
from support.named_tests import named_tests

HERE = Path(__file__).parent
BORROWED = {
    found[1]
    for path in HERE.glob("test_contract_*.py")
    if (found := re.search(r'borrow\("([a-z_/]+)"', path.read_text()))
}
WITHOUT_A_DATABASE = {
    f"app/test_{name}"
    for name in ("acknowledged", "codec", "decoration", "outcome", "retry", "trace", "typing")
}
OF_ONE_SERVER = {
    f"app/test_{name}" for name in ("call_timeout", "transaction", "pool", "pipelining", "units", "waiting")
}
"""test_transaction is about tx=, which a front refuses: see test_routing.py. The others watch one server or
one connection, or install a database of their own."""


@pytest.mark.parametrize("test", sorted(listed_differences()))
def test_a_listed_test_is_run_on_a_front(test: str) -> None:
    module, _, name = test.partition("::")

    assert module in BORROWED
    assert name in named_tests(TESTS / f"{module}.py")


def test_what_differs_is_in_the_table_of_guarantees() -> None:
    _, _, rest = PAGE.read_text().partition("| guarantee |")
    table, _, _ = rest.partition("\n\n")
    guarantees = {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]}

    assert listed_differences()
    assert set(listed_differences().values()) <= guarantees


def test_every_test_of_the_client_is_run_on_a_front() -> None:
    client = {f"app/{path.stem}" for path in (TESTS / "app").glob("test_*.py")}

    assert client - BORROWED == WITHOUT_A_DATABASE | OF_ONE_SERVER
