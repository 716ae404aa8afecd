"""The OpenAPI document: what FastAPI derives from the routes, corrected and completed."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from holdfast.server.problem import MEDIA_TYPE
from holdfast.server.schemas import FIELDS, TASK_ID, ProblemBody, ReasonBody

TICKET = {
    "type": "apiKey",
    "in": "query",
    "name": "ticket",
    "description": "Signed for one task or process, by `wait_url` or in the response to an enqueue.",
}
_EXAMPLES = {
    400: ("Bad Request", "QF400", "type: Field required"),
    401: ("Unauthorized", "unauthorized", "an access token is required: Authorization: Bearer hf_…"),
    403: ("Forbidden", "scope_missing", "the access token lacks the scope operate"),
    404: ("Not Found", "QF404", f"there is no task {TASK_ID}"),
    409: (
        "Conflict",
        "QF409",
        'idempotency_key "invoice-7" of type billing.charge already belongs to another task',
    ),
    412: ("Precondition Failed", "QF412", f"task {TASK_ID} cannot be retried: it is running"),
    413: ("Content Too Large", "QF413", "payload is 300019 bytes long, and at most 262144 bytes are allowed"),
    415: ("Unsupported Media Type", "unsupported_media_type", "the body must be JSON"),
    422: ("Unprocessable Content", "QF422", "payload is nested deeper than 64 levels"),
    429: (
        "Too Many Requests",
        "too_many_waits",
        "too many waits with this access token: at most 1000 are allowed at a time",
    ),
    503: ("Service Unavailable", "unavailable", "the database is unavailable"),
}
_RETRY_AFTER = {"Retry-After": {"description": "In seconds.", "schema": {"type": "integer", "minimum": 0}}}
_CHALLENGE = {"WWW-Authenticate": {"description": "The accepted credentials.", "schema": {"type": "string"}}}
_HEADERS = {401: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}


def build_openapi(web: FastAPI) -> dict[str, Any]:
    if web.openapi_schema is None:
        document = get_openapi(
            title=web.title, version=web.version, description=web.description, routes=web.routes
        )
        document["components"].setdefault("securitySchemes", {})["ticket"] = TICKET
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for row, fields in FIELDS.items():
            for name, described in fields.items():
                schemas[row.__name__]["properties"][name] |= described
        for path in document["paths"].values():
            for operation in path.values():
                _remove_fastapi_422(operation)
        web.openapi_schema = document
    return web.openapi_schema


def _remove_fastapi_422(operation: dict[str, Any]) -> None:
    """FastAPI documents 422 for invalid requests; ours get 400."""
    response = operation["responses"].get("422", {})
    if "application/json" in response.get("content", {}):
        del operation["responses"]["422"]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an endpoint: these, and those of every endpoint that requires a token."""
    return {status: problem(status) for status in sorted({400, 401, 403, 503, *statuses})}


def problem(status: int) -> dict[str, Any]:
    title, code, detail = _EXAMPLES[status]
    body = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "hint": None,
    }
    response: dict[str, Any] = {
        "description": title,
        "content": {MEDIA_TYPE: {"schema": ProblemBody.model_json_schema(), "example": body}},
    }
    if status in _HEADERS:
        response["headers"] = _HEADERS[status]
    return response


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a request body, without defaults: the engine chooses them."""
    schema = model.model_json_schema()
    for field in schema["properties"].values():
        field.pop("default", None)
    return schema


def json_body(schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Documents a body that the handler reads itself."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


REASON_BODY = json_body(body_schema(ReasonBody), required=False)
