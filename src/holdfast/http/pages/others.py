"""Workers, schedules, sends, the mailbox, health, and who may come in."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holdfast.engine import AsyncEngine, access, health, schedules, tasks, workers
from holdfast.engine.messages import list_mailbox, list_sends, send_events, send_status
from holdfast.engine.tasks import TaskFilter
from holdfast.http.hidden_values import hide_line
from holdfast.http.pages.page import Page, offer
from holdfast.http.pages.page_request import (
    PageRequest,
    read_action_form,
    read_page_request,
    reason_of,
    redirect_to,
)
from holdfast.http.problem import Problem

router = APIRouter(include_in_schema=False)

MAX_HELD = 200
MAX_DIGITS = 18  # of a bigint


async def load_workers(visit: PageRequest) -> Mapping[str, Any]:
    async def look(engine: AsyncEngine) -> dict[str, Any]:
        pages = [
            await engine.run(tasks.list_tasks(TaskFilter(status=status), None, MAX_HELD))
            for status in ("running", "claimed")
        ]
        return {
            "workers": await engine.run(workers.worker_status()),
            "tasks": [task for page in pages for task in page],
        }

    found = await visit.site.read(look)
    held: dict[str, list[Any]] = {}
    for task in found["tasks"]:
        held.setdefault(task.worker_id or "", []).append(task)
    return {"workers": found["workers"], "held": held}


async def load_schedules(visit: PageRequest) -> Mapping[str, Any]:
    found = await visit.site.read(lambda engine: engine.run(schedules.schedule_status()))
    return {"schedules": found, "namespace": visit.asked("namespace")}


async def load_health(visit: PageRequest) -> Mapping[str, Any]:
    lines = await visit.site.read(lambda engine: engine.run(health.health()))
    return {"lines": [hide_line(line) for line in lines]}


async def load_mailbox(visit: PageRequest) -> Mapping[str, Any]:
    """Messages hold codes and links that log in whoever has them: one is shown when it is asked for."""
    messages = await visit.site.read(lambda engine: engine.run(list_mailbox(limit=100)))
    return {"messages": messages, "shown": None}


async def load_processes(visit: PageRequest) -> Mapping[str, Any]:
    return {"sends": await visit.site.read(lambda engine: engine.run(list_sends()))}


async def load_send(visit: PageRequest) -> Mapping[str, Any]:
    channel, number = visit.request.path_params["channel"], visit.request.path_params["send_id"]
    if channel not in ("email", "sms") or not _is_number(number):
        raise Problem(404, "there is no such send")

    async def look(engine: AsyncEngine) -> dict[str, Any]:
        send = await engine.run(send_status(channel, int(number)))
        if send is None:
            raise Problem(404, f"there is no send {number}")
        facts = await engine.run(send_events(channel, int(number)))
        return {"send": send, "channel": channel, "facts": facts}

    return await visit.site.read(look)


async def load_access(visit: PageRequest) -> Mapping[str, Any]:
    if not visit.caller.may("admin"):
        raise Problem(403, "only those with the scope admin may see who may come in", code="scope_missing")

    async def look(engine: AsyncEngine) -> dict[str, Any]:
        return {
            "tokens": await engine.run(access.access_tokens()),
            "acts": await engine.run(access.access_events(100)),
        }

    return await visit.site.operate(visit.caller, look)


offer(router, "/workers", Page("workers.html", "/workers", load_workers))
offer(router, "/schedules", Page("schedules.html", "/schedules", load_schedules))
offer(router, "/processes", Page("processes.html", "/processes", load_processes))
offer(router, "/processes/{channel}/{send_id}", Page("send.html", "/processes", load_send))
offer(router, "/health", Page("health.html", "/health", load_health))
mailbox = offer(router, "/mailbox", Page("mailbox.html", "/mailbox", load_mailbox))
offer(router, "/access", Page("access.html", "/access", load_access))


@router.post("/mailbox/{message_id}/reveal")
async def reveal_message(request: Request, message_id: str) -> Response:
    """Shows the message on this answer only."""
    visit = await read_page_request(request)
    reason = reason_of(await read_action_form(visit, "operate"))
    if not _is_number(message_id):
        raise Problem(404, "there is no such message")
    number = int(message_id)
    await visit.site.operate(
        visit.caller, lambda engine: engine.run(access.record_message_reveal(number, reason, visit.address))
    )
    return await mailbox.html(visit, shown=number)


@router.post("/schedules/{act}")
async def act_on_schedule(request: Request, act: str) -> Response:
    visit = await read_page_request(request)
    form = await read_action_form(visit, "operate")
    name, namespace, reason = form.get("name", ""), form.get("namespace") or None, reason_of(form)
    if act == "pause":
        await visit.site.operate(
            visit.caller, lambda engine: engine.run(schedules.pause_schedule(name, reason, namespace))
        )
    elif act == "resume":
        await visit.site.operate(
            visit.caller, lambda engine: engine.run(schedules.resume_schedule(name, reason, namespace))
        )
    else:
        raise Problem(404, f"there is nothing at {request.url.path}")
    return redirect_to(visit, "/schedules", done=f"{act}d", about=name, namespace=namespace or "")


@router.post("/access/revoke")
async def revoke(request: Request) -> Response:
    visit = await read_page_request(request)
    form = await read_action_form(visit, "admin")
    reason = reason_of(form)
    number = form.get("token_id", "")
    if not _is_number(number):
        raise Problem(400, "that is not the number of a token")
    await visit.site.operate(
        visit.caller, lambda engine: engine.run(access.revoke_token(int(number), reason))
    )
    return redirect_to(visit, "/access", done="revoked")


def _is_number(given: str) -> bool:
    return given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS
