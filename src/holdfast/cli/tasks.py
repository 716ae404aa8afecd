"""holdfast list, show and why: list tasks and inspect one."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast._engine import Engine, tasks
from holdfast._engine import workers as engine_workers
from holdfast._engine.events import DeliveryStatus, task_deliveries
from holdfast._engine.tasks import (
    Status,
    TaskError,
    TaskEvent,
    TaskFilter,
    TaskSearch,
    TaskStatus,
    enqueued_at,
)
from holdfast._engine.units import installed_units
from holdfast._serialization.text import visible
from holdfast.cli.arguments import (
    ErrorOption,
    QueueOption,
    SearchOption,
    SinceOption,
    TypeOption,
    WhereOption,
    resolve_past,
)
from holdfast.cli.connection import shard_field, shard_names
from holdfast.cli.frame import add_commands
from holdfast.cli.output import cell_text, pretty, status_text, warn_of_unknown
from holdfast.cli.queues import known_queues
from holdfast.cli.report import Fields, Note, Report, Table, table
from holdfast.cli.task_name import TaskArgument, as_id, no_task, resolve_task
from holdfast.errors import NotAllowed

PROGRESS_SECONDS = 3.0
"""After that, a search says how far it has come, and goes on."""

MESSAGES = "comms."
"""The prefix of the types of the tasks that send messages."""
Page = tuple[list[TaskStatus], UUID | None]
"""Tasks, and where the next page begins."""

_DOCUMENTS = ("payload", "result", "error", "progress", "metadata")


def register(app: typer.Typer) -> None:
    add_commands(app, list=list_tasks, show=show, why=why)


def list_tasks(
    context: typer.Context,
    *,
    engine: Engine,
    status: Annotated[Status | None, typer.Option(help="Only tasks with this status.")] = None,
    queue: QueueOption = None,
    type_prefix: TypeOption = None,
    since: SinceOption = None,
    spec: Annotated[
        str | None, typer.Option(metavar="HASH", help="Only tasks with this spec hash, as printed by `show`.")
    ] = None,
    search: SearchOption = None,
    error: ErrorOption = None,
    where: WhereOption = None,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Only tasks older than this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of tasks.")] = 50,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list tasks of messages (comms.*), which filters do not hide.")
    ] = False,
) -> Report:
    """List tasks, newest first, a page at a time."""
    since_time = resolve_past(engine, since)
    matching = TaskFilter(status, queue, type_prefix, since_time, spec, search, error, where)
    older_than = None if before is None else as_id(before) or resolve_task(engine, before)
    with_messages = show_all or matching != TaskFilter(since=since_time)
    listing = _search if with_messages else _search_without_messages
    page, following = listing(engine, matching, older_than, limit)
    shards = shard_names(engine)
    if not page:
        _warn_of_unknown(engine, queue, type_prefix)

    def document() -> dict[str, Any]:
        listed = [{**asdict(task), **shard_field(task.task_id, shards)} for task in page]
        return {"tasks": listed, "next_before": following}

    return Report(
        document,
        _page_table(page, shards) if page else Note("No tasks found."),
        *([Note(f"\nNext page: {_next_command(context, following)}")] if following else []),
    )


def _search(engine: Engine, matching: TaskFilter, before: UUID | None, limit: int) -> Page:
    """Goes on until it has found a task or has searched them all."""
    while True:
        found = TaskSearch(matching, before, limit, PROGRESS_SECONDS).run(engine)
        if found.task_ids or found.next is None:
            return engine.run(tasks.tasks_with_ids(found.task_ids)), found.next
        typer.echo(f"None enqueued since {cell_text(enqueued_at(found.next))}; searching on", err=True)
        before = found.next


def _search_without_messages(engine: Engine, matching: TaskFilter, before: UUID | None, limit: int) -> Page:
    """Goes on until the page is full: the tasks of one message are several."""
    shown: list[TaskStatus] = []
    while True:
        page, before = _search(engine, matching, before, limit)
        shown += [task for task in page if not task.type.startswith(MESSAGES)]
        if len(shown) > limit:
            return shown[:limit], shown[limit - 1].task_id
        if len(shown) == limit or before is None:
            return shown, before


def _warn_of_unknown(engine: Engine, queue: str | None, type_prefix: str | None) -> None:
    """A list is also empty if there is no such queue or type. A client may not ask which there are."""
    with suppress(NotAllowed):
        if type_prefix is not None:
            types = [one.type for one in engine.run(engine_workers.registered_types())]
            if not any(one.startswith(type_prefix) for one in types):
                warn_of_unknown("type", type_prefix, types)
        if queue is not None:
            warn_of_unknown("queue", queue, known_queues(engine))


def _page_table(page: list[TaskStatus], shards: list[str]) -> Table:
    return table(
        page,
        "task_id shard status attempt run_at queue type last_error",
        shard=lambda task: shard_field(task.task_id, shards).get("shard"),
        status=lambda task: status_text(task.status, task.deleted_at),
        attempt=lambda task: f"{task.attempt}/{task.max_attempts}",
        last_error=lambda task: (task.last_error or "").partition("\n")[0][:80],
    )


def _next_command(context: typer.Context, before: UUID) -> str:
    """The command for the next page, with the same filters."""
    given = {
        "--status": "status",
        "--queue": "queue",
        "--type": "type_prefix",
        "--spec": "spec",
        "--search": "search",
        "--error": "error",
        "--where": "where",
        "--limit": "limit",
    }
    arguments = ["holdfast", "list"]
    for option, name in given.items():
        if context.params[name] is not None:
            arguments += [option, str(context.params[name])]
    if context.params["show_all"]:
        arguments.append("--all")
    since = context.params["since"]
    if since is not None:
        arguments += ["--since", _since_argument(since)]
    return shlex.join([*arguments, "--before", str(before)])


def _since_argument(since: Any) -> str:
    return f"{since.total_seconds():g}s" if isinstance(since, timedelta) else str(since.isoformat())


def show(
    engine: Engine,
    task: TaskArgument,
    *,
    provenance: Annotated[
        bool,
        typer.Option("--provenance", help="Also show what its workers ran with: versions, commit, host."),
    ] = False,
) -> Report:
    """Show a task: its fields, events, errors and deliveries."""
    task_id = resolve_task(engine, task)
    found = find_task(engine, task_id)
    events = engine.run(tasks.task_events(task_id))
    errors = engine.run(tasks.task_errors(task_id))
    has_events = "events" in engine.run(installed_units())
    deliveries = engine.run(task_deliveries(task_id)) if has_events else []
    workers = sorted({event.worker_id for event in events if event.worker_id is not None})
    ran_with = engine.run(engine_workers.provenance(workers)) if provenance else []
    shard = shard_field(task_id, shard_names(engine))
    extra = {**shard, **({"provenance": ran_with} if provenance else {})}
    return Report(
        {**asdict(found), "events": events, "errors": errors, "deliveries": deliveries, **extra},
        _task_parts(found, shard),
        _history_parts(events, errors),
        _delivery_parts(deliveries),
        (f"\n{visible(one.worker_id)} ran with\n{pretty(one.environment)}" for one in ran_with),
    )


def why(engine: Engine, task: TaskArgument) -> Report:
    """Explain why a task is not running."""
    task_id = resolve_task(engine, task)
    status = find_task(engine, task_id).status
    explanation = engine.run(tasks.explain(task_id))
    shown = []
    for reason in explanation.reasons:
        error = None if reason.error is None else f"Latest error: {reason.error}"
        shown += [visible(text) for text in (reason.message, error, reason.advice) if text is not None]
    document = {"task_id": task_id, "status": status, "why": explanation.why, **asdict(explanation)}
    return Report(document, *shown)


def find_task(engine: Engine, task_id: UUID) -> TaskStatus:
    found = engine.run(tasks.task_status(task_id))
    if found is None:
        raise no_task(task_id)
    return found


def _task_parts(task: TaskStatus, shard: dict[str, str]) -> Iterator[Any]:
    values = asdict(task)
    shown: dict[str, Any] = {
        name: value for name, value in values.items() if name not in _DOCUMENTS and value is not None
    }
    yield Fields((shown | shard | {"status": status_text(task.status, task.deleted_at)}).items())
    for name in _DOCUMENTS:
        if values[name] is not None or name == "payload":
            yield f"\n{name}\n{pretty(values[name])}"


def _history_parts(events: list[TaskEvent], errors: list[TaskError]) -> Iterator[Any]:
    yield table(events, "occurred_at event_type attempt worker_id actor reason data").under("events")
    if tasks.older_than(events) is not None:
        yield Note(f"These are the last {tasks.MAX_EVENTS} events. Older ones: queues.task_event")
    if errors:
        columns = "occurred_at attempt step kind message worker_id retry_at"
        yield table(errors, columns, step=_step_of).under("errors")


def _step_of(error: TaskError) -> str | None:
    """The step and its try, if not the whole attempt failed."""
    if error.step is None:
        return None
    return f"{error.step} {error.step_try}{'' if error.step_tries is None else f'/{error.step_tries}'}"


def _delivery_parts(deliveries: list[DeliveryStatus]) -> Iterator[Any]:
    if deliveries:
        columns = "occurred_at event_type subscription status attempt settled_at due_at last_error"
        yield table(deliveries, columns).under("deliveries")
