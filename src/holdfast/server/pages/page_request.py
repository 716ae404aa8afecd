"""Requests to the dashboard: the session cookie, query parameters, and forms with their CSRF token."""

import hmac
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from uuid import UUID

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from holdfast._engine.access import Scope, check_session, record_reveal
from holdfast.server.access import ANONYMOUS, Caller, caller_of, csrf_of, hash_of, same_secret
from holdfast.server.pages.page_search import SearchPosition, position_of
from holdfast.server.problem import Problem
from holdfast.server.security import foreign_origin
from holdfast.server.site import Query, Site, site_of
from holdfast.server.turns import act_for

MAX_FORM_BYTES = 64 * 1024
MAX_DIGITS = 18  # of a bigint
T = TypeVar("T")

COOKIE = "holdfast_session"
VALUES_COOKIE = "holdfast_values"
VALUES_SECONDS = 15 * 60

_process_secret = secrets.token_urlsafe(32)
_anonymous_session = secrets.token_urlsafe(32)


class LoginNeeded(Exception):
    """Redirects to the login page."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request of a person who is logged in."""

    http: Request
    site: Site
    caller: Caller
    session: str = field(repr=False)
    values_until: int | None = None
    """Until when this session shows values on request, in seconds since 1970."""
    max_age: float = 0.0
    """How many seconds ago another page may have read what this one shows: 0 unless it is updated live."""
    shards: Sequence[str] = ()
    """The names of the shards, in their order."""
    position: SearchPosition = field(default_factory=SearchPosition)

    @property
    def csrf(self) -> str:
        return csrf_of(self.session)

    async def read_shared(self, name: str, query: Query[T]) -> T:
        """For what is the same for every reader."""
        return await self.site.read_shared(name, query, self.max_age)

    @property
    def shows_values(self) -> bool:
        return self.site.options.shows_values or self.values_until is not None

    @property
    def root(self) -> str:
        return str(self.http.scope.get("root_path", ""))

    @property
    def address(self) -> str | None:
        return self.http.client.host if self.http.client else None

    @property
    def path_and_query(self) -> str:
        url = self.http.url
        return url.path.removeprefix(self.root) + (f"?{url.query}" if url.query else "")

    def query(self, name: str) -> str:
        """A query parameter; empty if it is missing."""
        return self.http.query_params.get(name, "").strip()


def cookie_name(request: Request) -> str:
    """With the prefix __Host- where that is possible: then only this host, over TLS, can have set it."""
    secure = request.url.scheme == "https" and not request.scope.get("root_path")
    return f"__Host-{COOKIE}" if secure else COOKIE


async def read_page_request(request: Request) -> PageRequest:
    """Raises LoginNeeded if there is no valid session."""
    site = site_of(request)
    if not site.options.asks_for_login:
        return await _page_request(request, site, ANONYMOUS, _anonymous_session)
    session = request.cookies.get(cookie_name(request), "")
    access = None
    if session:
        access = await site.check_access(check_session(hash_of(session)))
    if access is None:
        raise LoginNeeded
    caller = caller_of(access)
    act_for(caller)
    if not caller.may("read"):
        raise Problem(403, "the dashboard needs an access token with the scope read", code="scope_missing")
    return await _page_request(request, site, caller, session)


async def _page_request(request: Request, site: Site, caller: Caller, session: str) -> PageRequest:
    until, _, proof = request.cookies.get(VALUES_COOKIE, "").partition(".")
    shown = (
        caller.may("operate")
        and until.isascii()
        and until.isdigit()
        and len(until) < MAX_DIGITS
        and any(same_secret(proof, _proof(key, session, until)) for key in _keys(site))
        and time.time() < int(until) <= time.time() + VALUES_SECONDS
    )
    shards = await site.shard_names()
    values_until = int(until) if shown else None
    position = position_of(request.headers.get("last-event-id"))
    return PageRequest(request, site, caller, session, values_until, shards=shards, position=position)


def _keys(site: Site) -> tuple[str, ...]:
    """Secrets of the server: with one of the session, its holder could show values without a record.

    Without HOLDFAST_WEB_SECRET, another process of the server hides the values again.
    """
    return site.options.secrets or (_process_secret,)


def _proof(key: str, session: str, until: str) -> str:
    """Ties the cookie to the session: neither another session nor a longer time is accepted."""
    return hmac.new(key.encode(), f"holdfast values\n{session}\n{until}".encode(), "sha256").hexdigest()


async def show_values(request: PageRequest, response: Response, reason: str) -> None:
    """For VALUES_SECONDS, in this session. Recorded with the reason, before anything is shown."""
    await request.site.operate(request.caller, record_reveal(None, reason, request.address))
    until = str(int(time.time()) + VALUES_SECONDS)
    response.set_cookie(
        VALUES_COOKIE,
        f"{until}.{_proof(_keys(request.site)[0], request.session, until)}",
        max_age=VALUES_SECONDS,
        path=request.root or "/",
        secure=request.http.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def hide_values(request: PageRequest, response: Response) -> None:
    response.delete_cookie(VALUES_COOKIE, path=request.root or "/")


async def read_form(request: Request) -> dict[str, str]:
    """Raises a problem unless the form was sent by a page of this server."""
    if "origin" not in request.headers:  # every browser sends it; the middleware has checked its value
        raise foreign_origin()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise Problem(413, f"the form is larger than {MAX_FORM_BYTES} bytes")
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
    except ValueError:
        raise Problem(400, "the form is not URL-encoded UTF-8") from None
    if any("\0" in value for value in form.values()):
        raise Problem(400, "the form contains a NUL character, which is not allowed")
    return form


async def read_action_form(request: PageRequest, scope: Scope) -> dict[str, str]:
    """The form of an action. Checks origin, CSRF token and scope."""
    form = await read_form(request.http)
    if not same_secret(form.get("csrf", ""), request.csrf):
        raise Problem(403, "the form belongs to another session; reload the page", code="stale_form")
    if not request.caller.may(scope):
        raise Problem(403, f"your access token lacks the scope {scope}", code="scope_missing")
    return form


def required_reason(form: dict[str, str]) -> str:
    reason = form.get("reason", "").strip()
    if not reason:
        raise Problem(400, "a reason is required; it is recorded with the action")
    return reason[:2000]


def parse_id(given: str, problem: Problem) -> int:
    """A bigint from a path or form; raises the problem if it is not one."""
    if not (given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS):
        raise problem
    return int(given)


def number_in(given: str) -> int:
    """A count that a page has put into a form or an address; 0 if it is none."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0  # noqa: PLR2004 - digits


def id_in(given: str) -> UUID | None:
    """A task id that a page has put into an address; None if it is none."""
    try:
        return UUID(given)
    except ValueError:
        return None


def no_such_page(request: Request) -> Problem:
    return Problem(404, f"there is no page at {request.url.path}")


def redirect_to(request: PageRequest, path: str, **query: str) -> Response:
    return RedirectResponse(f"{request.root}{path}?{urlencode(query)}", 303)


def redirect_to_login(request: Request) -> Response:
    root = request.scope.get("root_path", "")
    path = request.url.path.removeprefix(root)
    query = f"?{request.url.query}" if request.url.query else ""
    wanted = quote(f"{path}{query}", safe="")
    return RedirectResponse(f"{root}/login?next={wanted}" if path != "/" else f"{root}/login", 303)


def safe_path(given: str) -> str:
    """The path if it is one of this server, else `/`: links must not redirect elsewhere."""
    good = given.startswith("/") and not given.startswith("//") and "\\" not in given
    return given if good and given.isprintable() and not urlsplit(given).netloc else "/"
