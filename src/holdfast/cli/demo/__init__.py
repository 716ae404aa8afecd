"""The example application of `holdfast up`. It is in the package because a wheel has no examples/."""

import asyncio

from pydantic import BaseModel

from holdfast import App, Context, messages
from holdfast._engine.events import subscribe

EVENTS_FILE = "example.jsonl"
ORDERS = 10
PIECES = 30
FAILING_ORDER = 4
LARGE_ORDER = 7

tasks = App(name="demo")


@tasks.task("demo.report")
async def report(ctx: Context, pages: int) -> str:
    """Takes a while, and reports its progress."""
    for page in range(1, pages + 1):
        ctx.raise_if_stopped()
        await asyncio.sleep(0.5)
        ctx.progress(page, pages, f"page {page}")
    return f"a report of {pages} pages"


@tasks.schedule(every=60, name="demo.flaky")
@tasks.task("demo.flaky", max_attempts=4)
async def flaky(ctx: Context) -> str:
    """Succeeds at its third attempt."""
    if ctx.attempt < 3:  # noqa: PLR2004 - the attempt that succeeds
        raise ConnectionError("the provider did not respond")
    return f"done at attempt {ctx.attempt}"


@tasks.task("demo.poison", max_attempts=3)
async def poison() -> None:
    """Never succeeds: it becomes a dead letter, which can be retried in the dashboard."""
    raise ValueError("this task always fails")


@tasks.schedule(every=10, name="demo.pulse")
@tasks.task("demo.pulse")
async def pulse() -> str:
    return "alive"


class Decision(BaseModel):
    approved: bool


async def charge(number: int) -> str:
    if number == FAILING_ORDER:
        raise ConnectionError("the bank did not respond")
    return f"receipt-{number}"


async def ask_for_approval(number: int, link: str) -> None:
    await messages.asend_email(
        to="you@example.com",
        subject=f"Approve order {number}",
        text=f"Order {number} is large. Approve or refuse it:\n{link}",
        app=tasks,
    )


@tasks.task("demo.pack")
async def pack(piece: int) -> int:
    await asyncio.sleep(0.2)
    return piece


@tasks.task("demo.order")
async def order(ctx: Context, number: int) -> str:
    """Charges, asks for an approval of the large one, and packs the pieces."""
    receipt = await ctx.step(charge, number, retries=5)
    if number == LARGE_ORDER:
        link = await ctx.callback("approval", question=f"Ship order {number}?")
        await ctx.step(ask_for_approval, number, link)
        if not (await ctx.wait("approval", Decision)).approved:
            return "refused"
    packed = await ctx.map(pack, range(PIECES))
    return f"shipped {len(packed)} pieces, {receipt}"


def start_examples() -> None:
    """Something to see from the start: tasks, an e-mail, and an event with a subscription."""
    subscription = subscribe("example", "file", EVENTS_FILE, ["demo.*", "task.dead_letter"])
    tasks.connect().run(subscription, "start_examples")
    report.enqueue(pages=30)
    flaky.enqueue()
    poison.enqueue()
    messages.send_email(
        to="you@example.com",
        subject="Welcome to Holdfast",
        text="holdfast up sends no e-mail. Messages are stored in the mailbox of the dashboard.",
        app=tasks,
    )
    tasks.emit("demo.started", {"with": "holdfast up"}, "demo")
