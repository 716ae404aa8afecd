"""Showing hidden values for a while, and hiding them again. Showing is recorded, with a reason."""

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from holdfast.server.pages.page_request import (
    hide_values,
    read_action_form,
    read_page_request,
    required_reason,
    safe_path,
    show_values,
)

router = APIRouter(include_in_schema=False)


@router.post("/values/show")
async def show(request: Request) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    reason = required_reason(form)
    response = RedirectResponse(page.root + safe_path(form.get("back", "/")), 303)
    await show_values(page, response, reason)
    return response


@router.post("/values/hide")
async def hide(request: Request) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "read")
    response = RedirectResponse(page.root + safe_path(form.get("back", "/")), 303)
    hide_values(page, response)
    return response
