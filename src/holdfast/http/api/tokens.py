"""Access tokens, for those who hand them out."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import TypeAdapter

from holdfast.engine import access
from holdfast.http import request_body
from holdfast.http.access import hash_of, new_token
from holdfast.http.api import schemas
from holdfast.http.api.openapi_parts import described, json_body, problems
from holdfast.http.api.task_actions import BODY, read_reason
from holdfast.http.auth import MayAdminister
from holdfast.http.site import site_of

router = APIRouter(tags=["access"])

_NEW = TypeAdapter(schemas.NewToken)


@router.get("/tokens", response_model=schemas.Tokens, summary="List access tokens", responses=problems())
async def list_tokens(request: Request, caller: MayAdminister) -> schemas.Tokens:
    found = await site_of(request).operate(caller, lambda engine: engine.run(access.access_tokens()))
    return schemas.Tokens.model_validate({"tokens": [asdict(token) for token in found]})


@router.post(
    "/tokens",
    status_code=201,
    response_model=schemas.CreatedToken,
    summary="Make an access token",
    openapi_extra=json_body(described(schemas.NewToken)),
    responses=problems(413, 415, 422),
)
async def create_token(request: Request, caller: MayAdminister) -> schemas.CreatedToken:
    asked = request_body.checked(
        _NEW, request_body.parse(await request_body.read_text(request, request_body.LARGE_BYTES))
    )
    token, ttl = new_token(), timedelta(days=asked.days)
    token_id = await site_of(request).operate(
        caller,
        lambda engine: engine.run(
            access.create_token(asked.name, asked.scopes, hash_of(token), ttl, asked.namespace)
        ),
    )
    return schemas.CreatedToken(token_id=token_id, token=token)


@router.post(
    "/tokens/{token_id}/revoke",
    response_model=schemas.Revoked,
    summary="End an access token and its sessions",
    openapi_extra=BODY,
    responses=problems(404, 413, 415, 422),
)
async def revoke_token(
    request: Request, token_id: Annotated[int, Path(ge=1, le=2**63 - 1)], caller: MayAdminister
) -> schemas.Revoked:
    reason = await read_reason(request)
    changed = await site_of(request).operate(
        caller, lambda engine: engine.run(access.revoke_token(token_id, reason))
    )
    return schemas.Revoked(token_id=token_id, changed=changed)
