"""The pages Processes, of one process, and of one instance: facts, outstanding attempts, supervisor runs."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast._engine import AsyncEngine, processes
from holdfast._engine.messages import list_sends, send_status
from holdfast._engine.processes import MAX_COUNTED, InstanceState
from holdfast.processes.instance import read_instance
from holdfast.server.api.processes import cancel_instance, start_instance
from holdfast.server.hidden_values import hide_instance, hide_process
from holdfast.server.pages.page import Page, add_page
from holdfast.server.pages.page_request import (
    PageRequest,
    no_such_page,
    parse_id,
    read_action_form,
    read_page_request,
    redirect_to,
    required_reason,
)
from holdfast.server.problem import Problem
from holdfast.server.request_body import parse

router = APIRouter(include_in_schema=False)

NEWEST = 20
MAX_SENDS = 100
PAGE = 50
_CHANNELS = {"comms.send_email": "email", "comms.send_sms": "sms"}
_STATES: dict[str, InstanceState] = {"unfinished": "unfinished", "trouble": "trouble"}


async def load_processes(request: PageRequest) -> Mapping[str, Any]:
    """Every process, the newest instances of those of the application, and the newest messages."""

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        sent = [
            one.process_id
            for process in _CHANNELS
            for one in await engine.run(processes.list_process_instances(process, max_instances=MAX_SENDS))
        ]
        return {
            "processes": await engine.run(processes.list_processes()),
            "instances": await engine.run(processes.list_process_instances(max_instances=NEWEST)),
            "sends": await engine.run(list_sends(sorted(sent, reverse=True)[:MAX_SENDS])),
        }

    found = await request.site.read(read)
    own = [one for one in found["instances"] if one.process not in _CHANNELS]
    return found | {"instances": _shown(request, own), "most": MAX_COUNTED}


async def load_process(request: PageRequest) -> Mapping[str, Any]:
    """The instances of one process, newest first, a page at a time."""
    process, state = request.http.path_params["process"], _STATES.get(request.query("state"))
    before = parse_id(request.query("before"), _missing(process)) if request.query("before") else None

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        known = await engine.run(processes.list_processes())
        summary = next((one for one in known if one.process == process), None)
        if summary is None:
            raise _missing(process)
        found = await engine.run(processes.list_process_instances(process, state, before, PAGE + 1))
        return {"summary": summary, "instances": found}

    found = await request.site.read(read)
    shown = found["instances"][:PAGE]
    return found | {
        "instances": _shown(request, shown),
        "next": shown[-1].process_id if len(found["instances"]) > PAGE else None,
        "state": state,
        "most": MAX_COUNTED,
    }


async def load_instance(request: PageRequest) -> Mapping[str, Any]:
    process, given = request.http.path_params["process"], request.http.path_params["process_id"]
    missing = _missing(f"{process} {given}")
    process_id = parse_id(given, missing)

    async def read(engine: AsyncEngine) -> dict[str, Any]:
        registered = await engine.run(processes.registered_process(process))
        found = registered and await read_instance(engine, process, process_id)
        if registered is None or found is None:
            raise missing
        channel = _CHANNELS.get(process)
        send = await engine.run(send_status(channel, process_id)) if channel else None
        return {"instance": found, "kind": registered.kind, "send": send}

    found = await request.site.read(read)
    return found if request.shows_values else found | {"instance": hide_instance(found["instance"])}


def _shown(request: PageRequest, found: list[processes.ProcessStatus]) -> list[processes.ProcessStatus]:
    return found if request.shows_values else [hide_process(one) for one in found]


def _missing(what: str) -> Problem:
    return Problem(404, f"there is no process {what}", hint="The page Processes lists the existing ones.")


add_page(router, "/processes", Page("processes.html", "/processes", load_processes))
add_page(router, "/processes/{process}", Page("process.html", "/processes", load_process))
add_page(
    router, "/processes/{process}/{process_id}", Page("process_instance.html", "/processes", load_instance)
)


@router.post("/processes/{process}/start")
async def start(request: Request, process: str) -> Response:
    """Shows the new instance."""
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    given = form.get("input", "").strip() or "{}"
    parse(given)
    process_id = await start_instance(page.site, page.caller, process, f'{{"input": {given}}}')
    return redirect_to(page, f"/processes/{process}/{process_id}", done="started")


@router.post("/processes/{process}/{process_id}/{action}")
async def act_on_instance(request: Request, process: str, process_id: str, action: str) -> Response:
    page = await read_page_request(request)
    form = await read_action_form(page, "operate")
    number, reason = parse_id(process_id, _missing(f"{process} {process_id}")), required_reason(form)
    if action == "nudge":
        moved = await page.site.operate(page.caller, processes.nudge_process(process, number, reason))
        done = "nudged" if moved else "due"
    elif action == "cancel":
        done = await cancel_instance(page.site, page.caller, process, number, reason)
    else:
        raise no_such_page(request)
    return redirect_to(page, f"/processes/{process}/{number}", done=done)
