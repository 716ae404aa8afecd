"""Access tokens: list, create, revoke. For administrators."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import TypeAdapter

from holdfast._engine import access
from holdfast._engine.access import AccessTokenStatus
from holdfast.server import request_body
from holdfast.server.access import hash_of, new_token
from holdfast.server.auth import MayAdminister
from holdfast.server.openapi import REASON_BODY, body_schema, json_body, problems
from holdfast.server.request_body import read_reason
from holdfast.server.schemas import CreatedToken, NewToken, ResponseModel, RevokedToken
from holdfast.server.site import site_of

router = APIRouter(tags=["access"])

_NEW_TOKEN = TypeAdapter(NewToken)


class Tokens(ResponseModel):
    tokens: list[AccessTokenStatus]


@router.get("/tokens", summary="List access tokens", responses=problems())
async def list_tokens(request: Request, caller: MayAdminister) -> Tokens:
    return Tokens(tokens=await site_of(request).operate(caller, access.access_tokens(), repeatable=True))


@router.post(
    "/tokens",
    status_code=201,
    summary="Create an access token",
    openapi_extra=json_body(body_schema(NewToken)),
    responses=problems(413, 415, 422),
)
async def create_token(request: Request, caller: MayAdminister) -> CreatedToken:
    text = await request_body.read_text(request, request_body.LARGE_BYTES)
    wanted = request_body.validate(_NEW_TOKEN, request_body.parse(text))
    token, ttl = new_token(), timedelta(days=wanted.days)
    token_id = await site_of(request).operate(
        caller,
        access.create_token(wanted.name, wanted.scopes, hash_of(token), ttl, wanted.namespace),
    )
    return CreatedToken(token_id=token_id, token=token)


@router.post(
    "/tokens/{token_id}/revoke",
    summary="Revoke an access token and close its sessions",
    openapi_extra=REASON_BODY,
    responses=problems(404, 413, 415, 422),
)
async def revoke_token(
    request: Request, token_id: Annotated[int, Path(ge=1, le=2**63 - 1)], caller: MayAdminister
) -> RevokedToken:
    reason = await read_reason(request)
    changed = await site_of(request).operate(caller, access.revoke_token(token_id, reason), repeatable=True)
    return RevokedToken(token_id=token_id, changed=changed)
