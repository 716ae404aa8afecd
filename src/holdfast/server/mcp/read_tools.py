"""Tools that read. They run with the role holdfast_reader, and hide values as the HTTP API does."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import AwareDatetime, Field

from holdfast._engine import AsyncEngine, access, steps, workers
from holdfast._engine import health as health_checks
from holdfast._engine import limits as limit_statements
from holdfast._engine import queues as queue_statements
from holdfast._engine import schedules as schedule_statements
from holdfast._engine import tasks as task_statements
from holdfast._engine.tasks import Explanation, Status, TaskFilter, TaskStatus
from holdfast.errors import NotFound, did_you_mean
from holdfast.server.hidden_values import hide_error, hide_line, hide_schedule, hide_task, hide_why
from holdfast.server.mcp import documentation
from holdfast.server.mcp.answers import MAX_ROWS, answer
from holdfast.server.mcp.caller import ToolContext, ToolSession
from holdfast.server.searches import MAX_SEARCH_SECONDS

MAX_FAILURES = 1000
MAX_REASON = 500
MAX_HITS = 8
MAX_PAGE = 20_000
NONE = "1 or more"

Limit = Annotated[int, Field(ge=1, le=MAX_ROWS, description="How many rows at most.")]
Name = Annotated[str | None, Field(max_length=200)]
Since = Annotated[
    AwareDatetime | None, Field(description="Tasks created at or after this time, with its zone.")
]
Reveal = Annotated[
    bool, Field(description="Show payload, result and error messages. Needs a reason, and is recorded.")
]
RevealReason = Annotated[
    str | None, Field(max_length=MAX_REASON, description="Why hidden values are needed.")
]


def desk_of(ctx: ToolContext) -> ToolSession:
    desk: ToolSession = ctx.mcp_server.desk  # type: ignore[attr-defined]  # our subclass of it
    return desk


async def health(ctx: ToolContext) -> str:
    """Check queues, workers, schedules, the outbox and the database: start here.

    The most severe line comes first. If all are green, look for a single task with `tasks` and `explain`.
    """
    lines = await desk_of(ctx).site.read(health_checks.health())
    worst = lines[0].level if lines else "green"
    return answer(f"Health: {worst}.", map(hide_line, lines))


async def queues(ctx: ToolContext) -> str:
    """List queues: due, scheduled and running tasks, live workers, and whether the queue is paused.

    Due tasks and no live workers: start a worker for that queue. Paused: see pause_reason.
    """
    found = await desk_of(ctx).site.read(queue_statements.queue_status())
    return answer(f"{len(found)} queues.", found)


async def tasks(
    ctx: ToolContext,
    *,
    status: Status | None = None,
    type: Annotated[Name, Field(description="Types that begin with this.")] = None,  # noqa: A002 - its name
    queue: Name = None,
    since: Since = None,
    before: Annotated[UUID | None, Field(description="The last task of the previous page.")] = None,
    limit: Limit = 20,
) -> str:
    """List tasks, newest first, without payloads. For what went wrong, `failures` is shorter."""
    matching, desk = TaskFilter(status, queue, type, since), desk_of(ctx)

    async def page(engine: AsyncEngine) -> tuple[list[Any], UUID | None]:
        search = task_statements.TaskSearch(matching, before, limit, MAX_SEARCH_SECONDS)
        found = await search.run_async(engine)
        return await engine.run(task_statements.task_lines(found.task_ids)), found.next

    rows, following = await desk.site.search(page)
    more = "" if following is None else f" Next page: before={following}."
    return answer(f"{len(rows)} tasks.{more}", rows, left_out=0 if following is None else NONE)


async def task(
    ctx: ToolContext, task_id: UUID, *, reveal: Reveal = False, reason: RevealReason = None
) -> str:
    """Show one task: its state, its attempts and errors, its steps, and what it waits for, in order."""

    async def read(engine: AsyncEngine) -> tuple[TaskStatus, list[Any], list[Any], list[Any]]:
        found = await _existing(engine, task_id)
        return (
            found,
            await engine.run(task_statements.task_errors(task_id)),
            await engine.run(steps.waits_of(task_id)),
            await engine.run(steps.run_timeline(task_id)),
        )

    await _record_reveal(ctx, task_id, reveal=reveal, reason=reason)
    found, errors, waits, timeline = await desk_of(ctx).site.read(read)
    rows: list[Any] = [{"task": found if reveal else hide_task(found)}]
    rows += [{"error": error if reveal else hide_error(error)} for error in errors[-10:]]
    rows += [{"waits for": wait} for wait in waits]
    rows += [{"happened": entry if reveal else _without_texts(entry)} for entry in timeline]
    return answer(f"Task {task_id} is {found.status}.", rows, left_out=max(0, len(errors) - 10))


async def explain(
    ctx: ToolContext, task_id: UUID, *, reveal: Reveal = False, reason: RevealReason = None
) -> str:
    """Say in plain words why a task is not running now, or how it ended. Use it before any act."""

    async def read(engine: AsyncEngine) -> tuple[TaskStatus, Explanation]:
        found = await _existing(engine, task_id)
        return found, await engine.run(task_statements.explain(task_id))

    await _record_reveal(ctx, task_id, reveal=reveal, reason=reason)
    found, why = await desk_of(ctx).site.read(read)
    shown = why if reveal else hide_why(why)
    return answer(f"Task {task_id} is {found.status}.", shown.reasons)


async def failures(
    ctx: ToolContext,
    *,
    type: Annotated[Name, Field(description="Types that begin with this.")] = None,  # noqa: A002 - its name
    queue: Name = None,
    since: Since = None,
    limit: Limit = 20,
) -> str:
    """Group the tasks that failed or used up their attempts, by type, kind of error and exception.

    Each group names its newest task: give that to `explain` or `task`. One large group is usually one cause.
    """

    async def read(engine: AsyncEngine) -> tuple[list[Any], bool]:
        ids: list[UUID] = []
        cut = False
        for status in ("failed", "dead_letter"):
            matching = TaskFilter(status, queue, type, since)
            found = await engine.run(task_statements.find_tasks(matching, None, MAX_FAILURES))
            ids += found.task_ids
            cut = cut or found.next is not None
        return await engine.run(task_statements.failure_groups(ids)), cut

    desk = desk_of(ctx)
    groups, cut = await desk.site.search(read)
    total = sum(group.tasks for group in groups)
    older = " Only the newest were counted." if cut else ""
    left_out = max(0, len(groups) - limit)
    summary = f"{total} failed tasks in {len(groups)} groups.{older}"
    return answer(summary, groups[:limit], left_out=f"{left_out} and older tasks" if cut else left_out)


async def waiting_runs(
    ctx: ToolContext,
    *,
    type: Annotated[Name, Field(description="Types that begin with this.")] = None,  # noqa: A002 - its name
    queue: Name = None,
    limit: Limit = 20,
) -> str:
    """List suspended runs and what each waits for: a signal, a task or a time. The next due comes first."""
    found = await desk_of(ctx).site.read(steps.waiting_runs(queue, type, limit + 1))
    left_out = NONE if len(found) > limit else 0
    return answer(f"{len(found[:limit])} waits.", found[:limit], left_out=left_out)


async def list_workers(ctx: ToolContext) -> str:
    """List workers: what they serve, how busy they are, and whether they are late or silent.

    A silent worker is dead; its tasks run again by themselves.
    """
    found = await desk_of(ctx).site.read(workers.worker_status())
    return answer(f"{len(found)} workers.", found)


async def schedules(ctx: ToolContext) -> str:
    """List schedules: when each fires next, and which are paused, broken or no longer declared."""
    found = await desk_of(ctx).site.read(schedule_statements.schedule_status())
    return answer(f"{len(found)} schedules.", map(hide_schedule, found))


async def limits(ctx: ToolContext) -> str:
    """List limits of queues and types, and how much of each is used. Tasks above a limit wait."""
    found = await desk_of(ctx).site.read(limit_statements.limit_status())
    return answer(f"{len(found)} limits.", found)


async def types(
    ctx: ToolContext,
    *,
    type: Annotated[Name, Field(description="Types that begin with this.")] = None,  # noqa: A002 - its name
    limit: Limit = 10,
) -> str:
    """List task types that workers have registered, with the JSON schemas of their arguments and results."""
    found = await desk_of(ctx).site.read(workers.registered_types())
    matching = [one for one in found if one.type.startswith(type or "")]
    left_out = max(0, len(matching) - limit)
    return answer(f"{len(matching)} types.", matching[:limit], left_out=left_out)


async def _existing(engine: AsyncEngine, task_id: UUID) -> TaskStatus:
    found = await engine.run(task_statements.task_status(task_id))
    if found is None:
        raise NotFound(f"there is no task {task_id}", sqlstate="QF404")
    return found


async def _record_reveal(ctx: ToolContext, task_id: UUID, *, reveal: bool, reason: str | None) -> None:
    """Hidden values are shown only after it is on record who asked for them, and why."""
    if not reveal:
        return
    desk = desk_of(ctx)
    if not (reason or "").strip():
        raise ToolError("give a reason: showing hidden values is recorded")
    caller = desk.require(ctx, "operate") if desk.over_http else desk.caller(ctx)
    await desk.site.operate(caller, access.record_reveal(task_id, reason))


def _without_texts(entry: steps.TimelineEntry) -> dict[str, Any]:
    """An entry of the timeline without the reason, which is the message of an error where no person acted."""
    shown = {name: getattr(entry, name) for name in entry.__slots__ if getattr(entry, name) is not None}
    if entry.actor is None:
        shown.pop("reason", None)
    return shown


async def docs_search(ctx: ToolContext, query: Annotated[str, Field(min_length=2, max_length=200)]) -> str:
    """Search the documentation of this version of Holdfast. Read a page that is found with `docs_read`."""
    del ctx
    found = documentation.search(query)
    hits = [f"{hit.page} · {hit.heading}\n{documentation.excerpt(hit, query)}" for hit in found[:MAX_HITS]]
    return "\n\n".join((f"{len(found)} sections. left out: {max(0, len(found) - MAX_HITS)}.", *hits))


async def docs_read(
    ctx: ToolContext,
    page: Annotated[str, Field(max_length=200, description="Such as howto/run-workers.md.")],
    start: Annotated[int, Field(ge=0, description="The first character, to read on in a long page.")] = 0,
) -> str:
    """Read a page of the documentation of this version of Holdfast."""
    del ctx
    known = documentation.pages()
    if page not in known:
        raise ToolError(f"there is no page {page!r}{did_you_mean(page, known)}")
    text = known[page]
    rest = max(0, len(text) - start - MAX_PAGE)
    more = f" Read on with start={start + MAX_PAGE}." if rest else ""
    return f"{page}, left out: {rest} characters.{more}\n\n{text[start : start + MAX_PAGE]}"


Tool = Callable[..., Awaitable[str]]
READ_TOOLS: tuple[tuple[str, Tool], ...] = (
    ("health", health),
    ("queues", queues),
    ("tasks", tasks),
    ("task", task),
    ("explain", explain),
    ("failures", failures),
    ("waiting_runs", waiting_runs),
    ("workers", list_workers),
    ("schedules", schedules),
    ("limits", limits),
    ("types", types),
    ("docs_search", docs_search),
    ("docs_read", docs_read),
)
