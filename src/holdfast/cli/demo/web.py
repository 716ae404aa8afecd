"""Pages of the example application: login with a code sent by e-mail, and buttons that run the tasks."""

import secrets
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from holdfast import messages
from holdfast.cli import demo
from holdfast.errors import InvalidArgument
from holdfast.handle import Handle
from holdfast.server.pages.page_request import read_form

STATIC = Path(__file__).parent / "static"
VALID_SECONDS = 600
MAX_LOGINS = 1000
MAX_GUESSES = 5

pages = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
pages.mount("/static", StaticFiles(directory=STATIC), name="static")

_logins: OrderedDict[str, dict[str, Any]] = OrderedDict()


@pages.get("/")
async def page() -> Response:
    return FileResponse(STATIC / "page.html")


@pages.post("/logins")
async def begin_login(request: Request) -> Response:
    """Sends a code by e-mail, and returns the URL at which the page waits until it is sent."""
    email = (await read_form(request)).get("email", "")
    code, login_id = f"{secrets.randbelow(1_000_000):06}", secrets.token_urlsafe(16)
    try:
        mail = await messages.asend_email(
            to=email, subject=f"Your code is {code}", text=f"Your code is {code}", app=demo.tasks
        )
    except InvalidArgument as error:
        return JSONResponse({"detail": error.message}, 422)
    _logins[login_id] = {
        "email": email,
        "code": code,
        "guesses": 0,
        "until": time.monotonic() + VALID_SECONDS,
    }
    while len(_logins) > MAX_LOGINS:
        _logins.popitem(last=False)
    return JSONResponse({"login": login_id, "wait": _wait_path(mail)})


@pages.post("/logins/{login_id}")
async def finish_login(request: Request, login_id: str) -> Response:
    """A code is valid once, for ten minutes, and for five guesses."""
    code = (await read_form(request)).get("code", "").strip()
    login = _logins.get(login_id)
    if login is None or login["guesses"] >= MAX_GUESSES or login["until"] < time.monotonic():
        return JSONResponse({"detail": "request a new code"}, 403)
    login["guesses"] += 1
    if not secrets.compare_digest(login["code"].encode(), code.encode()):
        return JSONResponse({"detail": "wrong code"}, 403)
    del _logins[login_id]
    await demo.tasks.aemit("demo.logged_in", {"email": login["email"]}, login["email"])
    return JSONResponse({"email": login["email"]})


@pages.post("/run/{name}")
async def run(request: Request, name: str) -> Response:
    await read_form(request)
    if name == "orders":
        begun = await demo.order.aenqueue_many([(number,) for number in range(1, demo.ORDERS + 1)])
        return JSONResponse({"begun": len(begun)})
    if name == "report":
        handle: Handle[Any] = await demo.report.aenqueue(pages=12)
    elif name == "flaky":
        handle = await demo.flaky.aenqueue()
    elif name == "poison":
        handle = await demo.poison.aenqueue()
    else:
        return JSONResponse({"detail": f"there is no task {name}"}, 404)
    return JSONResponse({"task_id": str(handle.task_id), "wait": _wait_path(handle)})


def _wait_path(begun: Handle[Any] | messages.Sending) -> str:
    """The wait URL without its host: it is this server, under whichever name the browser used."""
    address = urlsplit(begun.wait_url(ttl=VALID_SECONDS))
    return f"{address.path}?{address.query}"
