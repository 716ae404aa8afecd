"""The routes of the dashboard, and what a browser is shown when a request is refused."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from holdfast.server.pages import (
    bulk_actions,
    callback,
    errors,
    login,
    messages,
    outbox,
    overview,
    processes,
    queues,
    runs,
    schedules,
    task_detail,
    tasks,
    tokens,
    values,
    workers,
)
from holdfast.server.pages.page_request import LoginNeeded, redirect_to_login
from holdfast.server.pages.render import environment
from holdfast.server.problem import Problem

__all__ = ["add_pages", "render_problem"]

STATIC = Path(__file__).parent.parent / "static"


def add_pages(web: FastAPI) -> None:
    for module in (
        *(
            login,
            overview,
            tasks,
            bulk_actions,
            errors,
            task_detail,
            runs,
            queues,
            workers,
            schedules,
            processes,
            messages,
            outbox,
            tokens,
        ),
        *(values, callback),
    ):
        web.include_router(module.router)
    web.mount("/static", StaticFiles(directory=STATIC), name="static")

    async def login_needed(request: Request, error: Exception) -> Response:
        del error
        return redirect_to_login(request)

    web.add_exception_handler(LoginNeeded, login_needed)


def render_problem(request: Request, problem: Problem) -> Response:
    """As HTML for a browser, as JSON for API clients."""
    root = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(root)
    if "text/html" not in request.headers.get("accept", "") or path.startswith("/v1/"):
        return problem.response()
    html = environment.get_template("problem.html").render(root=root, problem=problem)
    return HTMLResponse(html, problem.status, headers=problem.headers)
