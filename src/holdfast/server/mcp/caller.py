"""Who calls a tool, what it may do, and under which name its acts are recorded."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from holdfast._engine.access import Scope
from holdfast._serialization.text import visible
from holdfast.errors import HoldfastError
from holdfast.server.access import Caller, hash_of
from holdfast.server.auth import find_caller
from holdfast.server.problem import Problem, problem_of
from holdfast.server.site import Site

P = ParamSpec("P")
ToolContext = Context[Any, Any]

MAX_NAME = 60
MAX_MESSAGE = 1000
_READS: frozenset[Scope] = frozenset(("read",))
_ACTS: frozenset[Scope] = frozenset(("read", "operate", "enqueue"))


@dataclass(frozen=True, slots=True)
class ToolSession:
    """The database, and what callers without an access token may do."""

    site: Site
    allow_acts: bool = False
    over_http: bool = False

    def scopes(self) -> frozenset[Scope]:
        token = get_access_token()
        if token is not None:
            return frozenset(scope for scope in _ACTS if scope in token.scopes)
        return _ACTS if self.allow_acts else _READS

    def caller(self, ctx: ToolContext) -> Caller:
        name, token = f"mcp:{client_name(ctx)}", get_access_token()
        if token is None:
            return Caller(name, self.scopes())
        return Caller(f"{name} (token {token.client_id})", self.scopes(), token_hash=hash_of(token.token))

    def require(self, ctx: ToolContext, scope: Scope) -> Caller:
        caller = self.caller(ctx)
        if caller.may(scope):
            return caller
        raise ToolError(f"not allowed: {self._how_to_allow(scope)}")

    def _how_to_allow(self, scope: Scope) -> str:
        if not self.over_http:
            return "this server only reads. Ask the user to start it with: holdfast mcp --allow-acts"
        if get_access_token() is None:
            return "without a login, this server only reads. Ask the user to start it without --no-login"
        return (
            f"the access token lacks the scope {scope}. Ask the user for one made with: "
            f"holdfast tokens create NAME --scope {scope}"
        )


@dataclass(frozen=True, slots=True)
class AccessTokens:
    """Verifies the access token of every request in the database, so that a revoked one ends at once."""

    site: Site

    async def verify_token(self, token: str) -> AccessToken | None:
        caller = await find_caller(self.site, token)
        if caller is None:
            return None
        return AccessToken(token=token, client_id=caller.name, scopes=sorted(caller.scopes))


def client_name(ctx: ToolContext) -> str:
    """The program that the agent runs in, by its own account. Other characters could imitate a token."""
    params = ctx.session.client_params
    if params is not None:
        name = params.client_info.name
    else:
        name = (ctx.headers or {}).get("user-agent", "").partition("/")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:MAX_NAME] or "unknown"


def tells_errors(tool: Callable[P, Awaitable[str]]) -> Callable[P, Awaitable[str]]:
    """Turns refusals into messages for the agent. What could name hosts goes to the log only."""

    @wraps(tool)
    async def told(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return await tool(*args, **kwargs)
        except HoldfastError as error:
            raise ToolError(_message(problem_of(error))) from None
        except Problem as problem:
            raise ToolError(_message(problem)) from None

    return told


def _message(problem: Problem) -> str:
    text = f"{problem.detail.rstrip('.')}. {problem.hint}" if problem.hint else problem.detail
    return visible(text)[:MAX_MESSAGE]
