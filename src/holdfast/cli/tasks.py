"""holdfast list, show and why: list tasks and inspect one."""

import shlex
from contextlib import suppress
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
from holdfast.cli.output import (
    Json,
    cell_text,
    pretty,
    print_fields,
    print_json,
    print_table,
    status_text,
    warn_of_unknown,
)
from holdfast.cli.queues import known_queues
from holdfast.cli.task_name import TaskArgument, as_id, no_task, resolve_task
from holdfast.engine import Engine, tasks
from holdfast.engine import workers as engine_workers
from holdfast.engine.events import DeliveryStatus, task_deliveries
from holdfast.engine.tasks import (
    Status,
    TaskError,
    TaskEvent,
    TaskFilter,
    TaskSearch,
    TaskStatus,
    enqueued_at,
)
from holdfast.errors import NotAllowed
from holdfast.serialization.text import visible

PROGRESS_SECONDS = 3.0
"""After that, a search says how far it has come, and goes on."""

MESSAGES = "comms."
"""The prefix of the types of the tasks that send messages."""
Page = tuple[list[TaskStatus], UUID | None]
"""Tasks, and where the next page begins."""

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
    before: Annotated[str | None, typer.Option(metavar="ID", help="Only tasks older than this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of tasks.")] = 50,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list tasks of messages (comms.*), which filters do not hide.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List tasks, newest first, a page at a time."""
    with connected(database_url) as engine:
        since_time = resolve_past(engine, since)
        matching = TaskFilter(status, queue, type_prefix, since_time, spec, search, error, where)
        older_than = None if before is None else as_id(before) or resolve_task(engine, before)
        listing = (
            _search if show_all or matching != TaskFilter(since=since_time) else _search_without_messages
        )
        page, following = listing(engine, matching, older_than, limit)
        shards = shard_names(engine)
        if not page:
            _warn_of_unknown(engine, queue, type_prefix)
    if as_json:
        shown = [{**asdict(task), **shard_field(task.task_id, shards)} for task in page]
        print_json({"tasks": shown, "next_before": following})
        return
    _print_page(page, shards)
    if following:
        typer.echo(f"\nNext page: {_next_command(context, following)}", err=True)


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
    if context.params["show_all"]:
        arguments.append("--all")
    since = context.params["since"]
    if since is not None:
        arguments += ["--since", _since_argument(since)]
    return shlex.join([*arguments, "--before", str(before)])


def _since_argument(since: Any) -> str:
    return f"{since.total_seconds():g}s" if isinstance(since, timedelta) else str(since.isoformat())


def show(
    task: TaskArgument,
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
        task_id = resolve_task(engine, task)
        found = find_task(engine, task_id)
        events = engine.run(tasks.task_events(task_id))
        errors = engine.run(tasks.task_errors(task_id))
        deliveries = engine.run(task_deliveries(task_id))
        workers = sorted({event.worker_id for event in events if event.worker_id is not None})
        ran_with = engine.run(engine_workers.provenance(workers)) if provenance else []
        shard = shard_field(task_id, shard_names(engine))
    if as_json:
        extra = {**shard, **({"provenance": ran_with} if provenance else {})}
        print_json({**asdict(found), "events": events, "errors": errors, "deliveries": deliveries, **extra})
        return
    _print_task(found, shard)
    _print_history(events, errors)
    _print_deliveries(deliveries)
    for one in ran_with:
        typer.echo(f"\n{visible(one.worker_id)} ran with\n{pretty(one.environment)}")


def why(task: TaskArgument, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Explain why a task is not running."""
    with connected(database_url) as engine:
        task_id = resolve_task(engine, task)
        status = find_task(engine, task_id).status
        explanation = engine.run(tasks.explain(task_id))
    if as_json:
        print_json({"task_id": task_id, "status": status, **asdict(explanation)})
    else:
        typer.echo(visible(explanation.why))
        if explanation.error is not None:
            typer.echo(f"Latest error: {visible(explanation.error)}")
        if explanation.advice is not None:
            typer.echo("\n".join(visible(line) for line in explanation.advice.split("\n")))


def find_task(engine: Engine, task_id: UUID) -> TaskStatus:
    found = engine.run(tasks.task_status(task_id))
    if found is None:
        raise no_task(task_id)
    return found


def _print_task(task: TaskStatus, shard: dict[str, str]) -> None:
    values = asdict(task)
    shown: dict[str, Any] = {
        name: value for name, value in values.items() if name not in _DOCUMENTS and value is not None
    }
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
    older = tasks.older_than(events)
    if older is not None:
        typer.echo(f"These are the last {tasks.MAX_EVENTS} events. Older ones: queues.task_event", err=True)
    if errors:
        print_table(
            ["occurred_at", "attempt", "step", "kind", "message", "worker_id", "retry_at"],
            [
                (e.occurred_at, e.attempt, _step_of(e), e.kind, e.message, e.worker_id, e.retry_at)
                for e in errors
            ],
            title="errors",
        )


def _step_of(error: TaskError) -> str | None:
    """The step and its try, if not the whole attempt failed."""
    if error.step is None:
        return None
    return f"{error.step} {error.step_try}{'' if error.step_tries is None else f'/{error.step_tries}'}"


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
