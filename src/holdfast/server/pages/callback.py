"""Links of runs that wait for a person: a page that asks, and an answer that becomes a signal.

No login: the link is signed. A GET changes nothing, because mail programs and scanners open links.
"""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from holdfast._engine import callbacks
from holdfast._engine.callbacks import Callback
from holdfast._workflows.callbacks import is_signed
from holdfast.server.pages.page_request import read_form
from holdfast.server.pages.render import environment
from holdfast.server.problem import Problem
from holdfast.server.site import Site, site_of

router = APIRouter(include_in_schema=False)

ACTOR = "callback link"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Robots-Tag": "noindex, nofollow",
}
SAYS = {
    "kept": (200, "Thank you", "Your answer was recorded."),
    "answered": (409, "Already answered", "This link was answered before. Nothing was changed."),
    "expired": (410, "Too late", "This link is no longer valid. Nothing was changed."),
    "ended": (410, "No longer needed", "What this link belongs to has ended. Nothing was changed."),
    "unknown": (404, "Unknown link", "This link is not valid. Check that you copied all of it."),
}


@router.get("/callbacks/{task_id}/{link}")
@router.head("/callbacks/{task_id}/{link}")
async def show_callback(request: Request, task_id: str, link: str) -> Response:
    site = site_of(request)
    run = _signed_run(site, request, task_id, link)
    asked = None if run is None else await _read(site, run, link)
    if run is None or asked is None:
        return _said(request, "unknown")
    if asked.state != "open":
        return _said(request, asked.state)
    expires_at = await site.operate(None, callbacks.expiry_of(run, link))
    return _page(request, "Please confirm", asked.question, asked=asked, expires_at=expires_at)


@router.post("/callbacks/{task_id}/{link}")
async def answer_callback(request: Request, task_id: str, link: str) -> Response:
    site = site_of(request)
    run = _signed_run(site, request, task_id, link)
    form = await read_form(request)
    asked = None if run is None else await _read(site, run, link)
    if run is None or asked is None:
        return _said(request, "unknown")
    choice = form.get("choice", "")
    if choice not in {str(number) for number in range(1, len(asked.labels) + 1)}:
        raise Problem(400, "the form has none of the choices of this page")
    answering = callbacks.answer_callback(run, link, int(choice))
    answer = await site.resources.actions.run(
        "holdfast_operator", lambda engine: engine.run(answering), actor=ACTOR
    )
    return _said(request, answer, asked.labels[int(choice) - 1] if answer == "kept" else "")


def _signed_run(site: Site, request: Request, task_id: str, link: str) -> UUID | None:
    """The id of the run, if the link is signed. Nothing of an unsigned link reaches the database."""
    try:
        run = UUID(task_id)
    except ValueError:
        return None
    signature = request.query_params.get("signature", "")
    return run if is_signed(site.options.secrets, run, link, signature) else None


async def _read(site: Site, run: UUID, link: str) -> Callback | None:
    return await site.operate(None, callbacks.read_callback(run, link))


def _said(request: Request, answer: str, chosen: str = "") -> Response:
    status, title, text = SAYS[answer]
    return _page(request, title, text, status=status, chosen=chosen)


def _page(
    request: Request,
    title: str,
    text: str,
    *,
    status: int = 200,
    chosen: str = "",
    asked: Callback | None = None,
    expires_at: datetime | None = None,
) -> Response:
    html = environment.get_template("callback.html").render(
        root=request.scope.get("root_path", ""),
        name=site_of(request).options.name,
        title=title,
        text=text,
        labels=[] if asked is None else asked.labels,
        expires_at=expires_at,
        signature="" if asked is None else request.query_params.get("signature", ""),
        chosen=chosen,
    )
    return HTMLResponse(html, status, headers=HEADERS)
