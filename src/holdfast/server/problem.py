"""Error responses as problem+json (RFC 9457), with the engine's error code where it raised the error."""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from holdfast import errors
from holdfast._telemetry.logs import log_of

MEDIA_TYPE = "application/problem+json"

# The first class that matches gives the HTTP status.
_STATUS: tuple[tuple[type[errors.HoldfastError], int], ...] = (
    (errors.TooLarge, 413),
    (errors.UnsupportedValue, 422),
    (errors.PayloadError, 422),
    (errors.InvalidArgument, 400),
    (errors.QuotaExceeded, 429),
    (errors.KeyConflict, 409),
    (errors.InvalidState, 412),
    (errors.NotFound, 404),
    (errors.NotAllowed, 403),
    (errors.TransactionConflict, 503),
    (errors.DatabaseUnavailable, 503),
    (errors.NotInstalled, 503),
)
CANCELED = "57014"
_LOCKED = "55P03"
_NOT_ALLOWED = "42501"
_CODES = {400: "QF400", 403: "QF403", 404: "QF404", 409: "QF409", 413: "QF413", 422: "QF422", 503: "QF503"}
_PARAMETER = re.compile(r"\{\w+\}")
RETRY_SECONDS = 1

log = log_of("holdfast.server")


class TroubleLog:
    """Logs a condition when it begins, when its error changes, and when it is over, but not each time."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._error: str | None = None

    def found(self, error: errors.HoldfastError) -> None:
        if str(error) != self._error:
            self._error = str(error)
            log.warning(self._event, error=self._error)

    def is_over(self) -> None:
        if self._error is not None:
            self._error = None
            log.info("recovered", trouble=self._event)


missing_role = TroubleLog("login_lacks_role")


def report_waits() -> Callable[[str, Exception | None], None]:
    """Logs what `Waits` report."""
    troubles: dict[str, TroubleLog] = {}

    def report(what: str, error: Exception | None) -> None:
        trouble = troubles.setdefault(what, TroubleLog(what))
        if error is None:
            trouble.is_over()
        elif isinstance(error, errors.HoldfastError):
            trouble.found(error)
        else:
            log.error(what, loop="waits", exc_info=error)

    return report


class Problem(Exception):
    """Raised by a handler to send this error response."""

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
        self.code = code or _CODES.get(status) or _code_of(status)
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
    """The response to an error of the engine or of its connection."""
    state = error.sqlstate or ""
    if state == CANCELED:
        detail = "the database did not respond in time"
        return Problem(503, detail, code="too_slow", headers=_retry_soon())
    if state == _LOCKED:
        detail = "another transaction holds a lock that this request needs; nothing was written"
        return Problem(503, detail, code="locked", headers=_retry_soon())
    if state == _NOT_ALLOWED:  # raised by PostgreSQL: the server lacks a privilege, not the caller
        missing_role.found(error)
        detail = "the server lacks a database privilege; see its log"
        return Problem(503, detail, code="login_lacks_role", headers=_retry_soon())
    status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("unexpected_database_error", error=str(error), sqlstate=error.sqlstate)
        return Problem(500, "unexpected database error; see the log of the server")
    lacks_unit = isinstance(error, errors.UnitNotInstalled)
    if isinstance(error, errors.DatabaseUnavailable | errors.NotInstalled) and not lacks_unit:
        # The message names hosts and logins: for the log only.
        log.warning("database_unavailable", error=str(error))
        return unavailable(_lost_shard(error))
    headers = _retry_soon() if isinstance(error, errors.TransactionConflict) else {}
    code = "unit_not_installed" if lacks_unit else state if state.startswith("QF") else None
    return Problem(status, error.message, code=code, hint=error.hint, headers=headers)


def unavailable(what: str = "the database is unavailable") -> Problem:
    return Problem(503, what, code="unavailable", headers=_retry_soon())


def _lost_shard(error: errors.HoldfastError) -> str:
    """The beginning of the message of a front, which names the shard but not its host."""
    found = re.match(r"shard \w+ cannot be reached", error.message)
    return found[0] if found else "the database is unavailable"


def add_problem_handlers(app: FastAPI, respond: Callable[[Request, Problem], Response]) -> None:
    """Turns every error of the application into a problem, which `respond` renders."""

    async def engine_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.HoldfastError)  # noqa: S101 - registered for nothing else
        return respond(request, problem_of(error))

    async def problem_raised(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - registered for nothing else
        return respond(request, error)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
        headers, detail = dict(error.headers or {}), str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = f"there is no page or endpoint at {request.url.path}"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_allowed_methods(request))
        return respond(request, Problem(error.status_code, detail, headers=headers))

    async def invalid_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
        return respond(request, Problem(400, _first_error(error)))

    async def unexpected_error(request: Request, error: Exception) -> Response:
        log.error("unexpected_error", path=request.url.path, exc_info=error)
        return respond(request, Problem(500, "unexpected error; see the log of the server"))

    app.add_exception_handler(errors.HoldfastError, engine_error)
    app.add_exception_handler(Problem, problem_raised)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, invalid_request)
    app.add_exception_handler(Exception, unexpected_error)


def _allowed_methods(request: Request) -> list[str]:
    """As documented for the most specific path template that matches, else as routed."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    documented: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    for template in sorted(documented, key=lambda one: one.count("{")):
        if re.fullmatch(_PARAMETER.sub("[^/]+", template), path):
            return sorted(method.upper() for method in documented[template])
    return [
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


def _first_error(error: RequestValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"] if part not in ("query", "path", "body", "header"))
    return f"{path or 'the request'}: {str(first['msg']).removeprefix('Value error, ')}"


def _code_of(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")


def _retry_soon() -> dict[str, str]:
    return {"Retry-After": str(RETRY_SECONDS)}
