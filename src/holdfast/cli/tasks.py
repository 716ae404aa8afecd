"""holdfast list: which tasks there are."""

import shlex
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast.cli.arguments import moment, resolve_past
from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table, status_text
from holdfast.engine import tasks
from holdfast.engine.tasks import Status, TaskFilter, TaskStatus

QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.")]
TypeOption = Annotated[
    str | None, typer.Option("--type", metavar="PREFIX", help="Only types that begin so: billing.")
]
SinceOption = Annotated[
    Any,
    typer.Option(
        "--since",
        parser=moment,
        metavar="TIME|DURATION",
        help="Only those created since: 2030-01-31T08:00Z, 2h, 7d",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("list")(list_tasks)


def list_tasks(
    context: typer.Context,
    *,
    status: Annotated[Status | None, typer.Option(help="Only this status.")] = None,
    queue: QueueOption = None,
    type_prefix: TypeOption = None,
    since: SinceOption = None,
    spec: Annotated[
        str | None, typer.Option(metavar="HASH", help="Only those of this spec hash, which show prints.")
    ] = None,
    before: Annotated[
        UUID | None, typer.Option(metavar="ID", help="Only those older than this task.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List tasks, newest first, a page at a time."""
    with connected(database_url) as engine:
        matching = TaskFilter(status, queue, type_prefix, resolve_past(engine, since), spec)
        # One more than is shown tells whether there is another page.
        found = engine.run(tasks.list_tasks(matching, before, limit + 1))
    page = found[:limit]
    last = page[-1].task_id if len(found) > limit else None
    if as_json:
        print_json({"tasks": page, "next_before": last})
        return
    _print_page(page)
    if last:
        typer.echo(f"\nNext page: {_next_command(context, last)}", err=True)


def _print_page(page: list[TaskStatus]) -> None:
    if not page:
        typer.echo("No task matches.", err=True)
        return
    print_table(
        ["task_id", "status", "attempt", "run_at", "queue", "type", "last_error"],
        [
            (
                task.task_id,
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
    """The same command, to be pasted: its filters and where the next page begins."""
    given = {
        "--status": "status",
        "--queue": "queue",
        "--type": "type_prefix",
        "--spec": "spec",
        "--limit": "limit",
    }
    words = ["holdfast", "list"]
    for option, name in given.items():
        if context.params[name] is not None:
            words += [option, str(context.params[name])]
    since = context.params["since"]
    if since is not None:
        words += ["--since", _since_word(since)]
    return shlex.join([*words, "--before", str(before)])


def _since_word(since: Any) -> str:
    return f"{since.total_seconds():g}s" if isinstance(since, timedelta) else str(since.isoformat())
