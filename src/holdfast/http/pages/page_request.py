"""Who visits the dashboard: by a session's cookie, or anybody where no login is asked for."""

import secrets
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from holdfast.engine.access import Scope, check_session
from holdfast.http.access import ANONYMOUS, Caller, caller_of, csrf_of, hash_of, same_secret
from holdfast.http.problem import Problem
from holdfast.http.site import Site, site_of

MAX_FORM_BYTES = 64 * 1024
COOKIE = "holdfast_session"

_process_secret = secrets.token_urlsafe(32)


class LoginNeeded(Exception):
    """Answered by sending the visitor to the login."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request of somebody who is logged in."""

    request: Request
    site: Site
    caller: Caller
    csrf: str

    @property
    def root(self) -> str:
        return str(self.request.scope.get("root_path", ""))

    @property
    def address(self) -> str | None:
        return self.request.client.host if self.request.client else None

    def asked(self, name: str) -> str:
        """A parameter of the query; empty if it is not there."""
        return self.request.query_params.get(name, "").strip()


def cookie_name(request: Request) -> str:
    """Where only TLS can have set it, the name says so to the browser."""
    secure = request.url.scheme == "https" and not request.scope.get("root_path")
    return f"__Host-{COOKIE}" if secure else COOKIE


async def read_page_request(request: Request) -> PageRequest:
    site = site_of(request)
    if not site.options.asks_for_login:
        return PageRequest(request, site, ANONYMOUS, csrf_of(_process_secret))
    session = request.cookies.get(cookie_name(request), "")
    access = None
    if session:
        access = await site.operate(None, lambda engine: engine.run(check_session(hash_of(session))))
    if access is None:
        raise LoginNeeded
    caller = caller_of(access)
    if not caller.may("read"):
        raise Problem(403, "this token may not look at anything", code="scope_missing")
    return PageRequest(request, site, caller, csrf_of(session))


async def read_form(request: Request) -> dict[str, str]:
    """Refused unless it comes from a page of ours."""
    check_origin(request)
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > MAX_FORM_BYTES:
            raise Problem(413, f"the form is larger than {MAX_FORM_BYTES} bytes")
    try:
        form = dict(parse_qsl(taken.decode(), keep_blank_values=True, strict_parsing=bool(taken)))
    except ValueError:
        raise Problem(400, "the form cannot be read") from None
    if any("\0" in value for value in form.values()):
        raise Problem(400, "the form holds NUL, which no text may")
    return form


def check_origin(request: Request) -> None:
    """Every browser says from where a form comes. The guard has refused those of others."""
    if "origin" not in request.headers:
        raise Problem(403, "this did not come from a page of this server", code="foreign_origin")


async def read_action_form(visit: PageRequest, scope: Scope) -> dict[str, str]:
    """The form of an act: from our page, in this session, by somebody who may."""
    form = await read_form(visit.request)
    if not same_secret(form.get("csrf", ""), visit.csrf):
        raise Problem(
            403, "this form is not of your session any more: load the page again", code="stale_form"
        )
    if not visit.caller.may(scope):
        raise Problem(403, f"you may not do that: your token lacks the scope {scope}", code="scope_missing")
    return form


def reason_of(form: dict[str, str]) -> str:
    reason = form.get("reason", "").strip()
    if not reason:
        raise Problem(400, "say why: the reason is kept with the act")
    return reason[:2000]


def redirect_to(visit: PageRequest, path: str, **asked: str) -> Response:
    return RedirectResponse(f"{visit.root}{path}?{urlencode(asked)}", 303)


def send_to_login(request: Request) -> Response:
    root = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(root)
    query = f"?{request.url.query}" if request.url.query else ""
    wanted = quote(f"{path}{query}", safe="")
    return RedirectResponse(f"{root}/login?next={wanted}" if path != "/" else f"{root}/login", 303)


def safe_path(given: str) -> str:
    """A path of this server, whatever somebody has put into a link."""
    good = given.startswith("/") and not given.startswith("//") and "\\" not in given
    return given if good and given.isprintable() and not urlsplit(given).netloc else "/"
