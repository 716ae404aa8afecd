"""holdfast list, show and why: list tasks and inspect one."""

import shlex
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast.cli.arguments import (
    ErrorOption,
    QueueOption,
    SearchOption,
    SinceOption,
    TypeOption,
    WhereOption,
    resolve_past,
)
from holdfast.cli.connection import DatabaseUrl, connected, shard_field, shard_names
from holdfast.cli.output import Json, pretty, print_fields, print_json, print_table, status_text
from holdfast.engine import Engine, tasks
from holdfast.engine import workers as engine_workers
from holdfast.engine.events import DeliveryStatus, task_deliveries
from holdfast.engine.tasks import Status, TaskError, TaskEvent, TaskFilter, TaskStatus
from holdfast.errors import TaskNotFound
from holdfast.serialization.text import visible

TaskArgument = Annotated[UUID, typer.Argument(metavar="ID", help="Id of the task.")]

_COLUMNS = ("status", "attempt", "run_at", "queue", "type", "last_error")
_DOCUMENTS = ("payload", "result", "error", "progress", "metadata")


def register(app: typer.Typer) -> None:
    app.command("list")(list_tasks)
    app.command()(show)
    app.command()(why)


def list_tasks(
    context: typer.Context,
    *,
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
    before: Annotated[UUID | None, typer.Option(metavar="ID", help="Only tasks older than this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of tasks.")] = 50,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List tasks, newest first, a page at a time."""
    with connected(database_url) as engine:
        since_time = resolve_past(engine, since)
        matching = TaskFilter(status, queue, type_prefix, since_time, spec, search, error, where)
        found = engine.run(tasks.find_tasks(matching, before, limit))
        page = engine.run(tasks.tasks_with_ids(found.task_ids))
        shards = shard_names(engine)
    if as_json:
        shown = [{**asdict(task), **shard_field(task.task_id, shards)} for task in page]
        print_json({"tasks": shown, "next_before": found.next})
        return
    if page or found.next is None:
        _print_page(page, shards)
    else:
        typer.echo("No tasks found among those examined so far; there are older ones.", err=True)
    if found.next:
        typer.echo(f"\nNext page: {_next_command(context, found.next)}", err=True)


def _print_page(page: list[TaskStatus], shards: list[str]) -> None:
    if not page:
        typer.echo("No tasks found.", err=True)
        return
    print_table(
        ["task_id", *(["shard"] if shards else []), *_COLUMNS],
        [
            (
                task.task_id,
                *shard_field(task.task_id, shards).values(),
                status_text(task.status, task.deleted_at),
                f"{task.attempt}/{task.max_attempts}",
                task.run_at,
                task.queue,
                task.type,
                (task.last_error or "").partition("\n")[0][:80],
            )
            for task in page
        ],
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
    since = context.params["since"]
    if since is not None:
        arguments += ["--since", _since_argument(since)]
    return shlex.join([*arguments, "--before", str(before)])


def _since_argument(since: Any) -> str:
    return f"{since.total_seconds():g}s" if isinstance(since, timedelta) else str(since.isoformat())


def show(
    task_id: TaskArgument,
    *,
    provenance: Annotated[
        bool,
        typer.Option("--provenance", help="Also show what its workers ran with: versions, commit, host."),
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show a task: its fields, events, errors and deliveries."""
    with connected(database_url) as engine:
        task = find_task(engine, task_id)
        events = engine.run(tasks.task_events(task_id))
        errors = engine.run(tasks.task_errors(task_id))
        deliveries = engine.run(task_deliveries(task_id))
        workers = sorted({event.worker_id for event in events if event.worker_id is not None})
        ran_with = engine.run(engine_workers.provenance(workers)) if provenance else []
        shard = shard_field(task_id, shard_names(engine))
    if as_json:
        extra = {**shard, **({"provenance": ran_with} if provenance else {})}
        print_json({**asdict(task), "events": events, "errors": errors, "deliveries": deliveries, **extra})
        return
    _print_task(task, shard)
    _print_history(events, errors)
    _print_deliveries(deliveries)
    for one in ran_with:
        typer.echo(f"\n{visible(one.worker_id)} ran with\n{pretty(one.environment)}")


def why(task_id: TaskArgument, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Explain why a task is not running."""
    with connected(database_url) as engine:
        status = find_task(engine, task_id).status
        explanation = engine.run(tasks.explain(task_id))
    if as_json:
        print_json({"task_id": task_id, "status": status, "why": explanation})
    else:
        typer.echo(visible(explanation))


def find_task(engine: Engine, task_id: UUID) -> TaskStatus:
    found = engine.run(tasks.task_status(task_id))
    if found is None:
        raise TaskNotFound(
            f"there is no task {task_id}",
            hint="Retention may have removed it, or it belongs to another login.",
        )
    return found


def _print_task(task: TaskStatus, shard: dict[str, str]) -> None:
    values = asdict(task)
    shown: dict[str, Any] = {name: value for name, value in values.items() if name not in _DOCUMENTS}
    print_fields((shown | shard | {"status": status_text(task.status, task.deleted_at)}).items())
    for name in _DOCUMENTS:
        if values[name] is not None or name == "payload":
            typer.echo(f"\n{name}\n{pretty(values[name])}")


def _print_history(events: list[TaskEvent], errors: list[TaskError]) -> None:
    print_table(
        ["occurred_at", "event_type", "attempt", "worker_id", "actor", "reason", "data"],
        [(e.occurred_at, e.event_type, e.attempt, e.worker_id, e.actor, e.reason, e.data) for e in events],
        title="events",
    )
    if errors:
        print_table(
            ["occurred_at", "attempt", "kind", "message", "worker_id", "retry_at"],
            [(e.occurred_at, e.attempt, e.kind, e.message, e.worker_id, e.retry_at) for e in errors],
            title="errors",
        )


def _print_deliveries(deliveries: list[DeliveryStatus]) -> None:
    if deliveries:
        print_table(
            [
                "occurred_at",
                "event_type",
                "subscription",
                "status",
                "attempt",
                "settled_at",
                "due_at",
                "last_error",
            ],
            [
                (
                    d.occurred_at,
                    d.event_type,
                    d.subscription,
                    d.status,
                    d.attempt,
                    d.settled_at,
                    d.due_at,
                    d.last_error,
                )
                for d in deliveries
            ],
            title="deliveries",
        )
