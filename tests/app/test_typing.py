"""mypy and pyright check the arguments of enqueue against the function, and the options of using."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HANDLERS = '''
from datetime import timedelta
from decimal import Decimal
from typing import Any

from typing_extensions import assert_type

from holdfast import App, Context, Fail, Handle, Snooze, SyncContext

app = App()


@app.task("billing.charge")
def charge(invoice_id: int, amount: Decimal = Decimal(0)) -> str:
    return ""


@app.task("billing.refund")
async def refund(invoice_id: int, amount: Decimal) -> str:
    return ""


@app.task("files.copy")
def copy(ctx: SyncContext, key: str, queue: int) -> int | Snooze | Fail:
    """Its parameters have the names of options."""
    return 1


@app.task("files.move")
async def move(ctx: Context, key: str, queue: int) -> int:
    return 1


@app.task("index.documents", batch=100, batch_wait=0.2)
async def index(documents: list[Decimal]) -> list[str | Fail]:
    return []


@app.task("index.words", batch=100, max_attempts=5)
def words(found: list[str]) -> list[int]:
    return []


@app.task("index.nothing", batch=100)
async def nothing(found: list[str]) -> None: ...


def pay(invoice_id: int, amount: Decimal = Decimal(0)) -> str:
    return ""


async def pay_back(invoice_id: int, amount: Decimal) -> str:
    return ""


@app.task("orders.fulfil")
async def fulfil(ctx: Context, order: int) -> bool:
    assert_type(await ctx.step(pay, 7), str)
    assert_type(await ctx.step(pay, 7, Decimal(1), key=7, retries=3, timeout=timedelta(1)), str)
    assert_type(await ctx.step(pay_back, order, Decimal(1)), str)
    assert_type(await ctx.wait("approval", bool, timeout=60), bool)
    assert_type(await ctx.wait("word"), Any)
    assert_type(await ctx.sleep(1), None)
    assert_type(await ctx.start(charge, 7), Handle[str])
    assert_type(await ctx.map(words, ["a"]), list[int])
    assert_type(await ctx.map(words, ["a"], return_exceptions=True), list[int | Exception])
    assert_type(await ctx.callback("ok"), str)
    async with ctx.step_transaction("pay") as db:
        await db.execute("select 1")
    return True


@app.task("orders.print")
def label(ctx: SyncContext, order: int) -> str:
    assert_type(ctx.step(pay, 7), str)
    assert_type(ctx.step(pay, 7, Decimal(1), key=7), str)
    assert_type(ctx.wait("approval", bool), bool)
    assert_type(ctx.start(charge.using(priority=1), 7), Handle[str])
    assert_type(ctx.map(words, ["a"]), list[int])
    with ctx.transaction() as db:
        db.execute("select 1")
    return ""


@app.task("any.thing")
def anything(document: Any, times: int = 1) -> None: ...
'''
RIGHT = """
assert_type(charge.enqueue(7), Handle[str])
assert_type(charge.enqueue(invoice_id=7, amount=Decimal("9.50")), Handle[str])
assert_type(refund.enqueue(7, amount=Decimal("9.50")), Handle[str])
assert_type(copy.enqueue(key="a", queue=3), Handle[int | Snooze | Fail])
assert_type(copy.using(key="k", queue="slow").enqueue(key="a", queue=3).result(), int)
assert_type(move.using(priority=5, tx=object()).enqueue("a", queue=3), Handle[int])
anything.enqueue(document=1, times=2)
anything.enqueue(1)
urgent = charge.using(
    priority=5, queue="q", max_attempts=1, timeout=3.5, concurrency_key="c", metadata={}, delay=timedelta(1)
)
assert_type(urgent.using(key="k", run_at=None).enqueue(8), Handle[str])
charge.enqueue_many([(1,), {"invoice_id": 2}, charge.build(3), charge.using(key="4").build(invoice_id=4)])
assert_type(charge(7), str)
assert_type(index.enqueue(Decimal(1)), Handle[str | Fail])
assert_type(index.using(key="k").enqueue(Decimal(1)).result(), str)
assert_type(words.enqueue("a"), Handle[int])
assert_type(nothing.enqueue("a"), Handle[None])


async def event_loop() -> None:
    assert_type(await move.aenqueue("a", 1), Handle[int])
    assert_type(await copy.using(key="k").aenqueue(key="a", queue=1), Handle[int | Snooze | Fail])
    assert_type(await refund(7, Decimal(1)), str)
    await urgent.aenqueue_many([(1,)])
    assert_type((await urgent.aenqueue(7)).created, bool | None)
"""
WRONG = {
    "a wrong name": "charge.enqueue(invoiceid=7)",
    "a wrong type": 'charge.enqueue(invoice_id="7")',
    "a missing argument": "refund.enqueue(7)",
    "one argument too many": "charge.enqueue(7, Decimal(1), 2)",
    "an option among the arguments": 'charge.enqueue(7, key="k")',
    "an unknown option": 'charge.using(kee="k").enqueue(7)',
    "an option of a wrong type": 'charge.using(priority="high").enqueue(7)',
    "an option that the decorator decides": "charge.using(lease=3).enqueue(7)",
    "the context as an argument": 'copy.enqueue(ctx=1, key="a", queue=3)',
    "an argument named as an option, of the option's type": 'copy.enqueue(key="a", queue="slow")',
    "an option instead of the argument of its name": 'copy.using(key="a").enqueue(queue=3)',
    "an option of the argument's type": 'copy.using(queue=3).enqueue(key="a", queue=3)',
    "a wrong argument in an event loop": "async def loop() -> None: await move.aenqueue(key=1, queue=3)",
    "a wrong argument for a batch": 'move.build(key="a")',
    "a list for a task of a batch": 'words.enqueue(["a"])',
    "an item of another type": "words.enqueue(1)",
    "a batch without a list of results": 'app.task("x.y", batch=3)(len)',
    "a wrong argument of a step": 'async def run_1(ctx: Context) -> None: await ctx.step(pay, "7")',
    "a missing argument of a step": "async def run_2(ctx: Context) -> None: await ctx.step(pay_back, 7)",
    "an unknown option of a step": "async def run_3(ctx: Context) -> None: await ctx.step(pay, tries=2)",
    "a result of a step of another type": "def run_4(ctx: SyncContext) -> int: return ctx.step(pay, 7)",
    "a forgotten await of a step": "async def run_5(ctx: Context) -> str: return ctx.step(pay, 7)",
    "a wrong argument of a child": 'async def run_6(ctx: Context) -> None: await ctx.start(charge, "7")',
    "a signal of another type": 'def run_7(ctx: SyncContext) -> str: return ctx.wait("approval", bool)',
    "with in an async handler": "def run_8(ctx: Context) -> Any: return ctx.transaction().__enter__()",
    "a result of another type": "number: int = charge.enqueue(7).result()",
}
CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-error-summary", "--show-column-numbers"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}
pytestmark = pytest.mark.full


def lines_with_errors(checker: str, path: Path) -> set[int]:
    """The lines of a program that a type checker rejects."""
    command = [str(Path(sys.executable).with_name(CHECKERS[checker][0])), *CHECKERS[checker][1:], path.name]
    ran = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return {int(line) for line in re.findall(rf"{path.name}:(\d+):\d+\D*? error:", ran.stdout)}


@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checkers_accept_right_calls_and_reject_each_wrong_one(checker: str, tmp_path: Path) -> None:
    program = tmp_path / "calls.py"
    program.write_text(HANDLERS + RIGHT + "\n" + "\n".join(WRONG.values()) + "\n")
    before = (HANDLERS + RIGHT).count("\n") + 1
    expected = {before + n: why for n, why in enumerate(WRONG, start=1)}
    found = lines_with_errors(checker, program)
    assert {why for line, why in expected.items() if line not in found} == set(), "accepted"
    assert found - expected.keys() == set(), "rejected although it is right"
