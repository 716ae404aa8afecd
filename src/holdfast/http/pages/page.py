"""A page: HTML for a browser, and the same address as a stream of its living part."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from holdfast.errors import HoldfastError
from holdfast.http.pages.page_request import LoginNeeded, PageRequest, read_page_request
from holdfast.http.pages.render import environment
from holdfast.http.problem import Problem

LIVE_SECONDS = 2.0
LIVE_ROUNDS = 150  # then the browser opens it again, and shows its cookie again
RECHECK_ROUNDS = 15
MAX_LIVE = 200
MAX_LIVE_PER_CALLER = 40

Load = Callable[[PageRequest], Awaitable[Mapping[str, Any]]]

NAVIGATION = (
    ("/", "Overview"),
    ("/tasks", "Tasks"),
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
    """Its template has a block `live`, which is sent anew whenever it has changed."""

    template: str
    section: str
    load: Load

    async def answer(self, request: Request) -> Response:
        visit = await read_page_request(request)
        if "text/event-stream" in request.headers.get("accept", ""):
            return self._stream(visit)
        return await self.html(visit)

    async def html(self, visit: PageRequest, status: int = 200, **more: Any) -> Response:
        context = await self.context(visit) | more
        return HTMLResponse(environment.get_template(self.template).render(context), status)

    async def context(self, visit: PageRequest) -> dict[str, Any]:
        return shared(visit, self.section) | dict(await self.load(visit))

    def _stream(self, visit: PageRequest) -> Response:
        open_pages = visit.site.live.callers
        own = open_pages[_key(visit)]
        if own >= MAX_LIVE_PER_CALLER or open_pages.total() >= MAX_LIVE:
            raise Problem(
                503, "too many pages are open", code="too_many_waits", headers={"Retry-After": "30"}
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._rounds(visit), media_type="text/event-stream", headers=headers)

    async def _rounds(self, visit: PageRequest) -> AsyncIterator[str]:
        template = environment.get_template(self.template)
        sent = ""
        visit.site.live.callers[_key(visit)] += 1
        try:
            for number in range(LIVE_ROUNDS):
                if visit.site.stopping:
                    return
                try:
                    if number % RECHECK_ROUNDS == RECHECK_ROUNDS - 1:
                        await read_page_request(visit.request)
                    context = template.new_context(await self.context(visit))
                    html = "".join(template.blocks["live"](context))
                except LoginNeeded:
                    yield "event: login\ndata: \n\n"
                    return
                except (HoldfastError, Problem):
                    yield ": the database cannot be used just now\n\n"
                else:
                    yield ": nothing new\n\n" if html == sent else _frame(html)
                    sent = html
                await asyncio.sleep(LIVE_SECONDS)
        finally:
            visit.site.live.callers[_key(visit)] -= 1
            visit.site.live.callers += Counter()  # forgets those who have none


def _key(visit: PageRequest) -> str:
    return f"token {visit.caller.token_id}"


def shared(visit: PageRequest, section: str) -> dict[str, Any]:
    """What every template may use."""
    return {
        "root": visit.root,
        "caller": visit.caller,
        "csrf": visit.csrf,
        "section": section,
        "navigation": NAVIGATION,
        "may_operate": visit.caller.may("operate"),
        "may_administer": visit.caller.may("admin"),
        "asks_for_login": visit.site.options.asks_for_login,
        "done": visit.asked("done"),
        "about": visit.asked("about"),
        "path": visit.request.url.path.removeprefix(visit.root),
    }


def offer(router: APIRouter, path: str, page: Page) -> Page:
    router.add_api_route(path, page.answer, methods=["GET"], include_in_schema=False, response_model=None)
    return page


def _frame(html: str) -> str:
    lines = "\n".join(f"data: {line}" for line in html.split("\n"))
    return f"event: live\n{lines}\n\n"
