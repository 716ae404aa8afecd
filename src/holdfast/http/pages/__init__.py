"""The dashboard: pages from the server, each with a living part."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from holdfast.http.pages import login, others, outbox, overview, queues, task, tasks
from holdfast.http.pages.page_request import LoginNeeded, send_to_login
from holdfast.http.pages.render import environment
from holdfast.http.problem import Problem

__all__ = ["add_pages", "respond"]

STATIC = Path(__file__).parent.parent / "static"


def add_pages(web: FastAPI) -> None:
    for part in (login, overview, queues, tasks, task, outbox, others):
        web.include_router(part.router)
    web.mount("/static", StaticFiles(directory=STATIC), name="static")

    async def login_needed(request: Request, error: Exception) -> Response:
        del error
        return send_to_login(request)

    web.add_exception_handler(LoginNeeded, login_needed)


def respond(request: Request, problem: Problem) -> Response:
    """A problem, as a page where a person asks with a browser."""
    root = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(root)
    if "text/html" not in request.headers.get("accept", "") or path.startswith("/v1/"):
        return problem.response()
    html = environment.get_template("problem.html").render(root=root, problem=problem)
    return HTMLResponse(html, problem.status, headers=problem.headers)
