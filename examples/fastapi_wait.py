"""FastAPI: a page that waits for its report on one connection, and the dashboard mounted beside it.

Run it so:

    export HOLDFAST_WEB_SECRET=$(openssl rand -hex 32) HOLDFAST_WEB_URL=http://127.0.0.1:8000/holdfast
    holdfast worker fastapi_wait:tasks
    uvicorn fastapi_wait:web
    holdfast tokens create me --scope operate       # to log in at /holdfast/
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from holdfast import App, Context
from holdfast.http import create_app

tasks = App()
house = create_app(tasks)

PAGE = """<!doctype html>
<title>A report</title>
<script src="/holdfast/static/holdfast.js"></script>
<button>Make a report</button> <progress hidden></progress> <p></p>
<script>
  const [button, bar, told] = ["button", "progress", "p"].map((name) => document.querySelector(name))
  button.onclick = async () => {
    const { wait } = await (await fetch("/reports", { method: "POST" })).json()
    const onProgress = ({ done, total }) => { bar.hidden = false; bar.max = total; bar.value = done }
    told.textContent = await holdfast.wait(wait, { onProgress }).catch((error) => `It ended: ${error.status}`)
  }
</script>"""


@tasks.task("reports.yearly")
async def make_report(ctx: Context, year: int) -> str:
    for month in range(1, 13):
        ctx.progress(month, 12, f"month {month}")
    return f"the report of {year}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    # A server runs the lifespan of the outer application only.
    async with house.router.lifespan_context(house):
        yield
    tasks.close()


web = FastAPI(lifespan=lifespan)
web.mount("/holdfast", house)


@web.get("/", response_class=HTMLResponse)
async def page() -> str:
    return PAGE


@web.post("/reports")
async def begin() -> dict[str, str]:
    handle = await make_report.aenqueue(year=2026)
    return {"wait": handle.wait_url(ttl=600)}
