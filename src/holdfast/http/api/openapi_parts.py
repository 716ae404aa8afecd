"""Which answers an endpoint may give, for OpenAPI; a test asks for each that is not here."""

from typing import Any

from pydantic import BaseModel

from holdfast.http.api.schemas import TASK_ID, ProblemBody
from holdfast.http.problem import MEDIA_TYPE

_MEANING = {
    400: ("Bad Request", "QF400", "the request cannot be used as it is"),
    401: ("Unauthorized", "unauthorized", "this needs an access token: Authorization: Bearer hf_…"),
    403: ("Forbidden", "scope_missing", "this token may not do that: it lacks the scope operate"),
    404: ("Not Found", "QF404", f"there is no task {TASK_ID}"),
    409: (
        "Conflict",
        "QF409",
        'idempotency_key "invoice-7" of type billing.charge already stands for another task',
    ),
    412: ("Precondition Failed", "QF412", f"task {TASK_ID} cannot be retried: it is running"),
    413: ("Content Too Large", "QF413", "payload is 300019 bytes long, and at most 262144 bytes are allowed"),
    415: ("Unsupported Media Type", "unsupported_media_type", "the body must be JSON"),
    422: ("Unprocessable Content", "QF422", "payload is nested deeper than 64 levels"),
    429: ("Too Many Requests", "too_many_waits", "1000 of yours wait already"),
    503: ("Service Unavailable", "unavailable", "the database cannot be used just now"),
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
_CHALLENGE = {"WWW-Authenticate": {"description": "How to get in.", "schema": {"type": "string"}}}
_HEADERS = {401: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Those of every endpoint that asks who is there, and these."""
    return {status: problem(status) for status in sorted({400, 401, 403, 503, *statuses})}


def problem(status: int) -> dict[str, Any]:
    title, code, detail = _MEANING[status]
    body = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "hint": None,
    }
    described: dict[str, Any] = {
        "description": title,
        "content": {MEDIA_TYPE: {"schema": ProblemBody.model_json_schema(), "example": body}},
    }
    if status in _HEADERS:
        described["headers"] = _HEADERS[status]
    return described


def described(shape: type[BaseModel]) -> dict[str, Any]:
    """The schema of a request_body. What it leaves out is for the engine to choose, so no default is told."""
    schema = shape.model_json_schema()
    for field in schema["properties"].values():
        field.pop("default", None)
    return schema


def json_body(shape: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """A body that a handler reads itself, described for OpenAPI."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": shape}}}}
