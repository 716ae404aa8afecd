"""Tools that change something. Each needs permission and a reason, and by default only tries.

A dry run does the act in a transaction that is rolled back, so that it finds what the act itself would find.
"""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Any, TypeVar
from uuid import UUID

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import AwareDatetime, Field, JsonValue, StringConstraints

from holdfast._connections.pool import AsyncWork
from holdfast._connections.session import facts_of
from holdfast._engine import AsyncEngine, queues, steps, tasks
from holdfast._engine.access import Scope
from holdfast.server.access import Caller
from holdfast.server.api.enqueue import read_one
from holdfast.server.api.task_actions import ACTIONS
from holdfast.server.mcp.answers import answer
from holdfast.server.mcp.caller import ToolContext
from holdfast.server.mcp.read_tools import MAX_REASON, desk_of

T = TypeVar("T")

Reason = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_REASON),
    Field(description="Why. It is recorded with your name and cannot be left out."),
]
DryRun = Annotated[
    bool, Field(description="True: only find out what would happen. False: do it. Ask the user before.")
]
Queue = Annotated[str, StringConstraints(min_length=1, max_length=200)]


async def cancel(ctx: ToolContext, task_id: UUID, reason: Reason, *, dry_run: DryRun = True) -> str:
    """Cancel a task that has not ended. A running handler is stopped at its next heartbeat."""
    return await _act(ctx, "cancel", lambda e: ACTIONS["cancel"].run(e, task_id, reason), dry_run=dry_run)


async def retry(ctx: ToolContext, task_id: UUID, reason: Reason, *, dry_run: DryRun = True) -> str:
    """Give a task that failed, used up its attempts or was cancelled a new set of attempts, now."""
    return await _act(ctx, "retry", lambda e: ACTIONS["retry"].run(e, task_id, reason), dry_run=dry_run)


async def reschedule(
    ctx: ToolContext, task_id: UUID, run_at: AwareDatetime, reason: Reason, *, dry_run: DryRun = True
) -> str:
    """Move a waiting task to another time. Tasks that do not wait are left as they are."""
    statement = tasks.reschedule(task_id, run_at, reason)
    return await _act(ctx, "reschedule", lambda e: e.run(statement), dry_run=dry_run)


async def nudge(ctx: ToolContext, task_id: UUID, reason: Reason, *, dry_run: DryRun = True) -> str:
    """Let a waiting task run now instead of later. Tasks that do not wait are left as they are."""
    statement = tasks.reschedule(task_id, None, reason, delay=timedelta(0))
    return await _act(ctx, "nudge", lambda e: e.run(statement), dry_run=dry_run)


async def signal(
    ctx: ToolContext,
    task_id: UUID,
    name: Annotated[str, StringConstraints(min_length=1, max_length=200)],
    reason: Reason,
    *,
    payload: JsonValue = None,
    key: Annotated[str | None, Field(max_length=200, description="The same key is taken once.")] = None,
    dry_run: DryRun = True,
) -> str:
    """Send a signal to a run, such as the answer to an approval that it waits for."""
    statement = steps.signal(task_id, name, payload, key)
    return await _act(ctx, "signal", lambda e: e.run(statement), dry_run=dry_run, because=reason)


async def pause_queue(ctx: ToolContext, queue: Queue, reason: Reason, *, dry_run: DryRun = True) -> str:
    """Pause a queue: workers claim nothing from it. Running tasks finish."""
    statement = queues.pause(queue, reason)
    return await _act(ctx, "pause", lambda e: e.run(statement), dry_run=dry_run)


async def resume_queue(ctx: ToolContext, queue: Queue, reason: Reason, *, dry_run: DryRun = True) -> str:
    """Resume a paused queue."""
    statement = queues.resume(queue, reason)
    return await _act(ctx, "resume", lambda e: e.run(statement), dry_run=dry_run)


async def enqueue(
    ctx: ToolContext,
    type: Annotated[str, StringConstraints(min_length=1, max_length=200)],  # noqa: A002 - its name
    key: Annotated[
        str, StringConstraints(min_length=1, max_length=200), Field(description="Idempotency key.")
    ],
    reason: Reason,
    *,
    payload: dict[str, JsonValue] | None = None,
    queue: Annotated[str | None, Field(max_length=200)] = None,
    delay_seconds: Annotated[int | None, Field(ge=0, le=31_536_000)] = None,
    dry_run: DryRun = True,
) -> str:
    """Enqueue a task. The same key returns the same task. See `types` for the arguments of a type."""
    desk = desk_of(ctx)
    caller = desk.require(ctx, "enqueue")
    given: dict[str, Any] = {"type": type, "payload": payload or {}, "queue": queue, "delay": delay_seconds}
    given["metadata"] = {"enqueued_for": caller.name, "reason": reason}
    text = json.dumps({name: value for name, value in given.items() if value is not None})
    statement = read_one(desk.site, text, key).statement(caller)
    work = _tried(lambda e: e.run(statement), dry_run=dry_run)
    done = await desk.site.enqueue(caller, work, repeatable=True)
    return _told("enqueue", done and done[0], dry_run=dry_run)


async def _act(ctx: ToolContext, name: str, work: AsyncWork[Any], *, dry_run: bool, because: str = "") -> str:
    """Acts whose function takes no reason record it with the name of the caller."""
    desk = desk_of(ctx)
    caller = desk.require(ctx, "operate")
    if because:
        caller = Caller(f"{caller.name}: {because}", caller.scopes)
    done = await desk.site.operate(caller, _tried(work, dry_run=dry_run), repeatable=dry_run)
    return _told(name, done, dry_run=dry_run)


def _tried(work: AsyncWork[T], *, dry_run: bool) -> AsyncWork[T]:
    async def run(engine: AsyncEngine) -> T:
        if not dry_run:
            return await work(engine)
        if facts_of(engine.connection).is_front:  # its shards would not roll back
            raise ToolError("a dry run is not possible on a front of shards; nothing was changed")
        async with engine.connection.transaction(force_rollback=True):
            return await work(engine)

    return run


def _told(name: str, outcome: Any, *, dry_run: bool) -> str:
    summary = f"Dry run of {name}: nothing was changed." if dry_run else f"Done: {name}."
    return answer(summary, [{"outcome": outcome}])


Tool = Callable[..., Awaitable[str]]
WRITE_TOOLS: tuple[tuple[str, Tool, Scope, bool], ...] = (
    ("cancel", cancel, "operate", True),
    ("retry", retry, "operate", False),
    ("reschedule", reschedule, "operate", False),
    ("nudge", nudge, "operate", False),
    ("signal", signal, "operate", False),
    ("pause_queue", pause_queue, "operate", True),
    ("resume_queue", resume_queue, "operate", False),
    ("enqueue", enqueue, "enqueue", False),
)
"""Name, function, the scope of an access token that it needs, and whether it stops or ends something."""
