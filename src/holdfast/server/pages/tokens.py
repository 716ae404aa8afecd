"""The page Access: access tokens and what was done with them; revoke."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast._engine import AsyncEngine, access
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import (
    PageRequest,
    parse_id,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)
from holdfast.server.problem import Problem

router = APIRouter(include_in_schema=False)


async def load(request: PageRequest) -> Mapping[str, Any]:
    if not request.caller.may("admin"):
        raise Problem(403, "this page needs the scope admin", code="scope_missing")

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        return {
            "tokens": await engine.run(access.access_tokens()),
            "events": await engine.run(access.access_events(100)),
        }

    return await request.site.operate(request.caller, read, repeatable=True)


add_page(router, "/access", Page("access.html", "/access", load))


@router.post("/access/revoke")
async def revoke(request: Request) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "admin")
    reason = required_reason(form)
    given = form.get("token_id", "")
    token_id = parse_id(given, Problem(400, f"{given!r} is not the number of a token"))
    await page.site.operate(page.caller, access.revoke_token(token_id, reason), repeatable=True)
    return redirect_to(page, "/access", done="revoked")
