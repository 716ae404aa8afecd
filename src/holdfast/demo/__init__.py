"""The example application of `holdfast up`: something of everything, to be watched in the dashboard."""

import asyncio

from holdfast import App, Context, comms
from holdfast.engine.events import subscribe

EVENTS = "example.jsonl"

tasks = App()


@tasks.task("demo.report")
async def report(ctx: Context, pages: int) -> str:
    """Takes a while, and tells how far it is."""
    for page in range(1, pages + 1):
        ctx.check()
        await asyncio.sleep(0.5)
        ctx.progress(page, pages, f"page {page}")
    return f"a report of {pages} pages"


@tasks.schedule(every=60, name="demo.flaky")
@tasks.task("demo.flaky", max_attempts=4)
async def flaky(ctx: Context) -> str:
    """Succeeds at its third attempt."""
    if ctx.attempt < 3:  # noqa: PLR2004 - the attempt that succeeds
        raise ConnectionError("the provider did not answer")
    return f"done at attempt {ctx.attempt}"


@tasks.task("demo.poison", max_attempts=3)
async def poison() -> None:
    """Never succeeds: it ends as a dead letter, to be retried by hand."""
    raise ValueError("this cannot be done")


@tasks.schedule(every=10, name="demo.pulse")
@tasks.task("demo.pulse")
async def pulse() -> str:
    return "still here"


def begin() -> None:
    """Something to look at from the first moment: tasks, a mail, and an event that is sent on."""
    subscription = subscribe("example", "file", EVENTS, ["demo.*", "task.dead_letter"])
    tasks.connect().run(subscription, "begin")
    report.enqueue(pages=30)
    flaky.enqueue()
    poison.enqueue()
    comms.send_email(
        to="you@example.com",
        subject="Welcome to Holdfast",
        text="No mail leaves this machine: it is kept here, for you to read.",
        app=tasks,
    )
    tasks.emit("demo.started", {"with": "holdfast up"}, "demo")
