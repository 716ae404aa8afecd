"""Letting programs in: an access token in the header, with the scope that an endpoint asks for."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from holdfast.engine.access import Scope, check_token
from holdfast.http.access import ANONYMOUS, Caller, caller_of, hash_of, looks_like_token
from holdfast.http.problem import Problem
from holdfast.http.site import Site, site_of

bearer = HTTPBearer(
    scheme_name="access token", description="Made by `holdfast tokens create`.", auto_error=False
)
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]


@dataclass(frozen=True)
class RequireScope:
    """A dependency that answers who asks, or refuses."""

    scope: Scope

    async def __call__(self, request: Request, credentials: Credentials) -> Caller:
        caller = await identify(site_of(request), credentials)
        return permitted(caller, self.scope)


def permitted(caller: Caller, scope: Scope) -> Caller:
    if not caller.may(scope):
        raise Problem(
            403,
            f"this token may not do that: it lacks the scope {scope}",
            code="scope_missing",
            hint=f"holdfast tokens create NAME --scope {scope}",
        )
    return caller


async def identify(site: Site, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    if not site.options.asks_for_login:
        return ANONYMOUS
    if credentials is None:
        raise _unknown("this needs an access token: Authorization: Bearer hf_…")
    caller = await known(site, credentials.credentials)
    if caller is None:
        raise _unknown("this access token is unknown, expired or revoked", error="invalid_token")
    return caller


async def known(site: Site, token: str) -> Caller | None:
    if not looks_like_token(token):
        return None
    token_hash = hash_of(token)
    access = await site.operate(None, lambda engine: engine.run(check_token(token_hash)))
    return None if access is None else caller_of(access, token_hash)


def _unknown(detail: str, error: str = "") -> Problem:
    challenge = 'Bearer realm="holdfast"' + (f', error="{error}"' if error else "")
    return Problem(401, detail, headers={"WWW-Authenticate": challenge})


MayEnqueue = Annotated[Caller, Depends(RequireScope("enqueue"))]
MayRead = Annotated[Caller, Depends(RequireScope("read"))]
MayOperate = Annotated[Caller, Depends(RequireScope("operate"))]
MayAdminister = Annotated[Caller, Depends(RequireScope("admin"))]
