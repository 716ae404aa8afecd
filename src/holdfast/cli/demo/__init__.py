"""The example application of `holdfast up`. It is in the package because a wheel has no examples/."""

import asyncio

from holdfast import App, Context, messages
from holdfast._engine.events import subscribe

EVENTS_FILE = "example.jsonl"

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
