"""A page of the dashboard: HTML, and under the same URL a stream of its live part."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from jinja2 import Template

from holdfast.errors import HoldfastError
from holdfast.server.pages.page_request import LoginNeeded, PageRequest, read_page_request
from holdfast.server.pages.render import environment, in_thread
from holdfast.server.problem import Problem

LIVE_SECONDS = 2.0
SEARCH_PAUSE = 0.2  # between the parts of a search that goes on
LIVE_ROUNDS = 150  # then the browser reconnects, and sends its cookie again
RECHECK_ROUNDS = 15
MAX_LIVE = 200
MAX_LIVE_PER_CALLER = 40

Load = Callable[[PageRequest], Awaitable[Mapping[str, Any]]]

NAVIGATION = (
    ("/", "Overview"),
    ("/tasks", "Tasks"),
    ("/runs", "Runs"),
    ("/errors", "Errors"),
    ("/queues", "Queues"),
    ("/workers", "Workers"),
    ("/schedules", "Schedules"),
    ("/processes", "Processes"),
    ("/outbox", "Outbox"),
    ("/mailbox", "Mailbox"),
    ("/health", "Health"),
    ("/access", "Access"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """Its template has a block `live`, which is sent again whenever it has changed."""

    template: str
    section: str
    load: Load

    async def respond(self, request: Request) -> Response:
        page_request = await read_page_request(request)
        if "text/event-stream" in request.headers.get("accept", ""):
            return self._stream(replace(page_request, max_age=LIVE_SECONDS))
        return await self.html(page_request)

    async def html(self, request: PageRequest, status: int = 200, **more: Any) -> Response:
        context = await self.context(request) | more
        return HTMLResponse(await in_thread(environment.get_template(self.template).render, context), status)

    async def context(self, request: PageRequest) -> dict[str, Any]:
        return common_context(request, self.section) | dict(await self.load(request))

    def _stream(self, request: PageRequest) -> Response:
        open_pages = request.site.live_pages
        own = open_pages[_key(request)]
        if own >= MAX_LIVE_PER_CALLER or open_pages.total() >= MAX_LIVE:
            raise Problem(
                503, "too many live pages are open", code="too_many_waits", headers={"Retry-After": "30"}
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._rounds(request), media_type="text/event-stream", headers=headers)

    async def _rounds(self, request: PageRequest) -> AsyncIterator[str]:
        template = environment.get_template(self.template)
        sent = ""
        request.site.live_pages[_key(request)] += 1
        try:
            for number in range(LIVE_ROUNDS):
                if request.site.stopping:
                    return
                try:
                    if number % RECHECK_ROUNDS == RECHECK_ROUNDS - 1:
                        await read_page_request(request.http)
                    html = await in_thread(_live_part, template, await self.context(request))
                except LoginNeeded:
                    yield "event: login\ndata: \n\n"
                    return
                except (HoldfastError, Problem):
                    yield ": the page cannot be loaded now\n\n"
                else:
                    yield ": unchanged\n\n" if html == sent else _frame(html, request.position.before)
                    sent = html
                await asyncio.sleep(SEARCH_PAUSE if request.position.is_going_on else LIVE_SECONDS)
        finally:
            request.site.live_pages[_key(request)] -= 1
            request.site.live_pages += Counter()  # removes callers without open pages


def _key(request: PageRequest) -> str:
    return f"token {request.caller.token_id}"


def common_context(request: PageRequest, section: str) -> dict[str, Any]:
    """The variables of every template."""
    return {
        "root": request.root,
        "caller": request.caller,
        "csrf": request.csrf,
        "section": section,
        "navigation": NAVIGATION,
        "may_operate": request.caller.may("operate"),
        "may_administer": request.caller.may("admin"),
        "asks_for_login": request.site.options.asks_for_login,
        "done": request.query("done"),
        "about": request.query("about"),
        "path": request.http.url.path.removeprefix(request.root),
        "address": request.path_and_query,
        "shows_values": request.shows_values,
        "values_until": request.values_until,
        "shards": request.shards,
    }


def add_page(router: APIRouter, path: str, page: Page) -> Page:
    router.add_api_route(path, page.respond, methods=["GET"], include_in_schema=False, response_model=None)
    return page


def _live_part(template: Template, context: dict[str, Any]) -> str:
    return "".join(template.blocks["live"](template.new_context(context)))


def _frame(html: str, position: UUID | None) -> str:
    """The id tells a browser that connects again how far the search of the page has come."""
    lines = "\n".join(f"data: {line}" for line in html.split("\n"))
    name = "event: live" if position is None else f"event: live\nid: {position}"
    return f"{name}\n{lines}\n\n"
