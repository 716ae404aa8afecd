"""Login with an access token, and logout."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from holdfast._engine.access import close_session, open_session
from holdfast.server.access import WINDOW_SECONDS, hash_of, looks_like_token, new_session
from holdfast.server.auth import find_caller
from holdfast.server.pages.page_request import (
    cookie_name,
    read_action_form,
    read_form,
    read_page_request,
    safe_path,
)
from holdfast.server.pages.render import environment
from holdfast.server.site import site_of

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def show_login(request: Request) -> Response:
    site = site_of(request)
    if not site.options.asks_for_login:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
    return _form(request, safe_path(request.query_params.get("next", "/")))


@router.post("/login")
async def log_in(request: Request) -> Response:
    site = site_of(request)
    form = await read_form(request)
    wanted = safe_path(form.get("next", "/"))
    address = request.client.host if request.client else ""
    if site.throttle.blocks(address):
        return _form(request, wanted, "Too many failed logins. Wait a minute, then try again.", 429)
    token, session = form.get("token", "").strip(), new_session()
    access = None
    # open_session records failures, too; while there are many, look for the token first, which does not.
    if looks_like_token(token) and (not site.throttle.is_busy or await find_caller(site, token)):
        access = await site.check_access(open_session(hash_of(token), hash_of(session), None, address))
    if access is None:
        site.throttle.failed(address)
        return _form(request, wanted, "This access token is unknown, expired or revoked.", 403)
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}{wanted}", 303)
    response.set_cookie(
        cookie_name(request),
        session,
        path=root or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.post("/logout")
async def log_out(request: Request) -> Response:
    page = await read_page_request(request)
    await read_action_form(page, "read")
    name = cookie_name(request)
    session = request.cookies.get(name, "")
    await page.site.operate(page.caller, close_session(hash_of(session)), repeatable=True)
    response = RedirectResponse(f"{page.root}/login", 303)
    response.delete_cookie(name, path=page.root or "/", httponly=True, samesite="strict")
    return response


def _form(request: Request, wanted: str, error: str = "", status: int = 200) -> Response:
    root = request.scope.get("root_path", "")
    html = environment.get_template("login.html").render(root=root, wanted=wanted, error=error)
    headers = {"Retry-After": f"{WINDOW_SECONDS:.0f}"} if status == 429 else {}  # noqa: PLR2004 - an HTTP status
    return HTMLResponse(html, status, headers=headers)
