"""The description of the API, as it really answers."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

TICKET = {
    "type": "apiKey",
    "in": "query",
    "name": "ticket",
    "description": "Signed for one task, by `handle.wait_url` or in the answer to an enqueue.",
}


def describe(web: FastAPI) -> dict[str, Any]:
    if web.openapi_schema is None:
        described = get_openapi(
            title=web.title, version=web.version, description=web.description, routes=web.routes
        )
        described["components"].setdefault("securitySchemes", {})["ticket"] = TICKET
        for name in ("HTTPValidationError", "ValidationError"):
            described["components"]["schemas"].pop(name, None)
        for path in described["paths"].values():
            for operation in path.values():
                _mend(operation)
        web.openapi_schema = described
    return web.openapi_schema


def _mend(operation: dict[str, Any]) -> None:
    """FastAPI adds its own answer to what it cannot read; ours is 400."""
    answer = operation["responses"].get("422", {})
    if "application/json" in answer.get("content", {}):
        del operation["responses"]["422"]
