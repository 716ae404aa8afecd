"""Authentication of API requests: FastAPI dependencies that require an access token with a scope."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from holdfast._engine.access import Scope, check_token
from holdfast.server.access import ANONYMOUS, Caller, caller_of, hash_of, looks_like_token
from holdfast.server.problem import Problem
from holdfast.server.site import Site, site_of
from holdfast.server.turns import act_for

bearer = HTTPBearer(
    scheme_name="access token", description="Created with `holdfast tokens create`.", auto_error=False
)
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]


@dataclass(frozen=True)
class RequireScope:
    """A dependency that returns the caller, or responds with 401 or 403."""

    scope: Scope

    async def __call__(self, request: Request, credentials: Credentials) -> Caller:
        caller = await authenticate(site_of(request), credentials)
        return require_scope(caller, self.scope)


def require_scope(caller: Caller, scope: Scope) -> Caller:
    if not caller.may(scope):
        raise Problem(
            403,
            f"the access token lacks the scope {scope}",
            code="scope_missing",
            hint=f"holdfast tokens create NAME --scope {scope}",
        )
    return caller


async def authenticate(site: Site, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    if not site.options.asks_for_login:
        return ANONYMOUS
    if credentials is None:
        raise _unauthorized("an access token is required: Authorization: Bearer hf_…")
    caller = await find_caller(site, credentials.credentials)
    if caller is None:
        raise _unauthorized("the access token is unknown, expired or revoked", error="invalid_token")
    return caller


async def find_caller(site: Site, token: str) -> Caller | None:
    if not looks_like_token(token):
        return None
    token_hash = hash_of(token)
    access = await site.check_access(check_token(token_hash))
    if access is None:
        return None
    caller = caller_of(access, token_hash)
    act_for(caller)
    return caller


def _unauthorized(detail: str, error: str = "") -> Problem:
    challenge = 'Bearer realm="holdfast"' + (f', error="{error}"' if error else "")
    return Problem(401, detail, headers={"WWW-Authenticate": challenge})


MayEnqueue = Annotated[Caller, Depends(RequireScope("enqueue"))]
MayRead = Annotated[Caller, Depends(RequireScope("read"))]
MayOperate = Annotated[Caller, Depends(RequireScope("operate"))]
MayAdminister = Annotated[Caller, Depends(RequireScope("admin"))]
