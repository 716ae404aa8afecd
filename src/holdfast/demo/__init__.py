"""The example application of `holdfast up`: something of everything, to be watched in the dashboard."""

import asyncio

from holdfast import App, Context, comms

tasks = App()


@tasks.task("demo.report")
async def report(ctx: Context, pages: int) -> str:
    """Takes a while, and tells how far it is."""
    for page in range(1, pages + 1):
        ctx.check()
        await asyncio.sleep(0.5)
        ctx.progress(page, pages, f"page {page}")
    return f"a report of {pages} pages"


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


@tasks.schedule(every=20, name="demo.pulse")
@tasks.task("demo.pulse")
async def pulse() -> str:
    return "still here"


@tasks.task("demo.login")
async def login(send_id: int) -> str:
    """Ends when the mail with the code is on its way: the page waits for it."""
    status = await comms.find_email(send_id, app=tasks).await_end(timeout=60)
    return status.status
