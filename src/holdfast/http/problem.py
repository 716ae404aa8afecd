"""What went wrong, as problem+json (RFC 9457): with the engine's own code where the engine refused."""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from holdfast import errors
from holdfast.http.database import Trouble

MEDIA_TYPE = "application/problem+json"

# The engine's codes carry their HTTP status; these are for what has none, the first class that fits.
_STATUS: tuple[tuple[type[errors.HoldfastError], int], ...] = (
    (errors.TooLarge, 413),
    (errors.NotPortable, 422),
    (errors.PayloadError, 422),
    (errors.InvalidArgument, 400),
    (errors.QuotaExceeded, 429),
    (errors.KeyConflict, 409),
    (errors.IllegalMove, 412),
    (errors.TaskNotFound, 404),
    (errors.NotAllowed, 403),
    (errors.TryAgain, 503),
    (errors.DatabaseUnavailable, 503),
    (errors.NotInstalled, 503),
)
_CANCELED = "57014"
_LOCKED = "55P03"
_NOT_ALLOWED = "42501"
_CODES = {400: "QF400", 403: "QF403", 404: "QF404", 409: "QF409", 413: "QF413", 422: "QF422", 503: "QF503"}
_PARAMETER = re.compile(r"\{\w+\}")
RETRY_SECONDS = 1

log = structlog.get_logger("holdfast.http")
_lacking = Trouble("login_lacks_role")


class Problem(Exception):
    """Raised by a handler to answer with it."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code or _CODES.get(status) or _word(status)
        self.hint = hint
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        title = HTTPStatus(self.status).phrase
        return {
            "type": "about:blank",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "hint": self.hint,
        }

    def response(self) -> Response:
        return JSONResponse(self.body(), self.status, headers=self.headers, media_type=MEDIA_TYPE)


def problem_of(error: errors.HoldfastError) -> Problem:
    """What the engine, or the way to it, has reported."""
    state = error.sqlstate or ""
    if state == _CANCELED:
        return Problem(503, "the database took too long", code="too_slow", headers=_soon())
    if state == _LOCKED:
        told = "another transaction holds what this request needs; nothing was written"
        return Problem(503, told, code="locked", headers=_soon())
    if state == _NOT_ALLOWED:  # PostgreSQL's own: the server cannot do it, whoever asks
        _lacking.found(error)
        told = "the server lacks a right in the database; its log says which"
        return Problem(503, told, code="login_lacks_role", headers=_soon())
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("unexpected_answer", error=str(error), sqlstate=error.sqlstate)
        return Problem(500, "the database reported what nobody expected; the log of the server has it")
    if isinstance(error, errors.DatabaseUnavailable | errors.NotInstalled):
        # Addresses and names of logins are nobody's business outside.
        log.warning("database_unavailable", error=str(error))
        return Problem(503, "the database cannot be used just now", code="unavailable", headers=_soon())
    headers = _soon() if isinstance(error, errors.TryAgain) else {}
    code = state if state.startswith("QF") else None
    return Problem(status, error.message, code=code, hint=error.hint, headers=headers)


def explain_with_problems(app: FastAPI, respond: Callable[[Request, Problem], Response]) -> None:
    """Let every error of this application be answered with a problem, in the form that `respond` gives it."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.HoldfastError)  # noqa: S101 - registered for nothing else
        return respond(request, problem_of(error))

    async def raised(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for nothing else
        return respond(request, error)

    async def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
        headers, detail = dict(error.headers or {}), str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = f"there is nothing at {request.url.path}"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_methods_at(request))
        return respond(request, Problem(error.status_code, detail, headers=headers))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
        return respond(request, Problem(400, _first_of(error)))

    async def unexpected(request: Request, error: Exception) -> Response:
        log.error("unexpected_error", path=request.url.path, exc_info=error)
        told = "something went wrong that nobody expected; the log of the server has it"
        return respond(request, Problem(500, told))

    app.add_exception_handler(errors.HoldfastError, ours)
    app.add_exception_handler(Problem, raised)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unexpected)


def _methods_at(request: Request) -> list[str]:
    """All that are answered at this address: as described for what names it most closely, else as routed."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    described: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    for template in sorted(described, key=lambda one: one.count("{")):
        if re.fullmatch(_PARAMETER.sub("[^/]+", template), path):
            return sorted(method.upper() for method in described[template])
    return [
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


def _first_of(error: RequestValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "path", "body", "header"))
    return f"{place or 'the request'}: {str(first['msg']).removeprefix('Value error, ')}"


def _word(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")


def _soon() -> dict[str, str]:
    return {"Retry-After": str(RETRY_SECONDS)}
