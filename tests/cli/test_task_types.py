import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from support.commands import Holdfast, answer, run

SHOP = """
    from __future__ import annotations
    from decimal import Decimal
    from holdfast import App, NoRetry, SyncContext

    app = App()
    empty = App()

    @app.task("billing.charge", timeout=30, retry=NoRetry())
    def charge(ctx: SyncContext, invoice_id: int, amount: Decimal = Decimal("1.5"), **others) -> str:
        '''Take the money.'''

    @app.task("mail.send", queue="slow", max_attempts=9)
    async def send(to: str) -> None: ...
"""


@pytest.fixture
def holdfast(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """Run a command where there is an application, and no database."""
    (elsewhere / "shop_of_test_tasks.py").write_text(dedent(SHOP))
    monkeypatch.syspath_prepend(elsewhere)
    yield partial(run, url="postgresql://nowhere.invalid/none")
    monkeypatch.delitem(sys.modules, "shop_of_test_tasks")


def test_the_tasks_of_an_application_are_listed_as_they_are_called(holdfast: Holdfast) -> None:
    header, charge, send = holdfast("tasks", "shop_of_test_tasks:app").stdout.splitlines()
    assert header.split() == ["type", "queue", "signature", "max_attempts", "retry", "timeout", "executor"]
    assert (
        "billing.charge  billing  (invoice_id: int, amount: Decimal = Decimal('1.5'), **others) -> str"
        in charge
    )
    assert charge.split()[-4:] == ["3", "NoRetry()", "30s", "python"]
    assert send.startswith("mail.send       slow     (to: str) -> None")


def test_as_json_they_have_a_schema(holdfast: Holdfast) -> None:
    described = answer(holdfast("tasks", "shop_of_test_tasks:app", "--json"))
    assert described["billing.charge"]["description"] == "Take the money."
    assert described["billing.charge"]["arguments"]["properties"].keys() == {"invoice_id", "amount"}
    assert described["mail.send"]["result"] == {"type": "null"}


def test_an_application_without_tasks_says_so(holdfast: Holdfast) -> None:
    result = holdfast("tasks", "shop_of_test_tasks:empty")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no task" in result.stderr
