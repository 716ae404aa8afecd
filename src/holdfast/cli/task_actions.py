"""holdfast cancel, delete, reschedule, restore and retry: actions on tasks, by id or on all that match."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast.cli.arguments import (
    ErrorOption,
    Moment,
    QueueOption,
    Reason,
    SearchOption,
    SinceOption,
    TypeOption,
    WhereOption,
    moment,
    resolve_past,
)
from holdfast.cli.bulk_actions import BulkAction
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, count_of, describe_error, print_error, print_json
from holdfast.cli.task_name import TaskArguments, no_task, resolve_tasks
from holdfast.engine import Engine, Statement, health, tasks
from holdfast.engine.task_actions import APPLIES_TO, RETRIED_BY_DEFAULT, Action
from holdfast.engine.tasks import STATUSES, Status, TaskFilter
from holdfast.errors import HoldfastError, IllegalMove, Refused, TaskNotFound, TryAgain

StatusOption = Annotated[
    list[str] | None,
    typer.Option(help="Only tasks with this status; repeatable. Default: all that it can change."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print how many tasks match.")]
At = Annotated[
    Any,
    typer.Option(
        "--at",
        parser=moment,
        metavar="TIME|DURATION",
        help="Run them at this time, or this long from now: 2030-01-31T08:00Z, 0s, 2h.",
    ),
]

_HELP = {
    "cancel": "Cancel tasks that have not ended. A running task is notified at its next heartbeat.",
    "delete": "Delete tasks. They do not run, and their idempotency keys become free. `restore` undoes it.",
    "restore": "Restore deleted tasks.",
    "retry": "Retry tasks that are failed or dead_letter, or cancelled if asked, with a new set of attempts.",
    "reschedule": "Move waiting tasks to another time.",
}


def register(app: typer.Typer) -> None:
    for action in ("cancel", "delete", "restore", "retry"):
        app.command(action, help=_HELP[action])(_command(action))
    app.command("reschedule", help=_HELP["reschedule"])(reschedule)


@dataclass(frozen=True)
class Selection:
    """The tasks that a command names, or the filters that it gives."""

    names: Sequence[str]
    statuses: Sequence[str]
    matching: TaskFilter
    since: Moment | None = None

    def check(self, action: Action) -> None:
        given = (self.matching.queue, self.matching.type_prefix, self.matching.words)
        found = (self.matching.error_group, self.matching.payload_path, self.since)
        if bool(self.names) == (bool(self.statuses) or any(one is not None for one in (*given, *found))):
            raise typer.BadParameter(
                "give the ids of tasks or filters (--status, --queue, --type, --since, --search, --error, "
                "--where), not both"
            )
        allowed = APPLIES_TO.get(action, STATUSES)
        for status in self.statuses:
            if status not in allowed:
                raise typer.BadParameter(f"{status!r} is not one of {', '.join(map(repr, allowed))}.")

    def statuses_for(self, action: Action) -> Sequence[Status | None]:
        if self.statuses:
            return [status for status in STATUSES if status in self.statuses]
        return RETRIED_BY_DEFAULT if action == "retry" else APPLIES_TO.get(action, (None,))


@dataclass(frozen=True)
class Manner:
    """How a command acts and what it prints."""

    reason: str | None
    yes: bool
    dry_run: bool
    as_json: bool
    run_at: datetime | None = field(default=None)


def _command(action: Action) -> Callable[..., None]:
    def command(
        *,
        names: TaskArguments = None,
        status: StatusOption = None,
        queue: QueueOption = None,
        type_prefix: TypeOption = None,
        since: SinceOption = None,
        search: SearchOption = None,
        error: ErrorOption = None,
        where: WhereOption = None,
        reason: Reason = None,
        yes: Yes = False,
        dry_run: DryRun = False,
        database_url: DatabaseUrl = None,
        as_json: Json = False,
    ) -> None:
        matching = TaskFilter(None, queue, type_prefix, None, None, search, error, where)
        selection = Selection(names or (), status or (), matching, since)
        selection.check(action)
        with connected(database_url) as engine:
            _act(engine, action, selection, Manner(reason, yes, dry_run, as_json))

    return command


def reschedule(
    *,
    names: TaskArguments = None,
    at: At,
    status: StatusOption = None,
    queue: QueueOption = None,
    type_prefix: TypeOption = None,
    since: SinceOption = None,
    search: SearchOption = None,
    error: ErrorOption = None,
    where: WhereOption = None,
    reason: Reason = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    matching = TaskFilter(None, queue, type_prefix, None, None, search, error, where)
    selection = Selection(names or (), status or (), matching, since)
    selection.check("reschedule")
    with connected(database_url) as engine:
        run_at = engine.run(health.clock()) + at if isinstance(at, timedelta) else at
        _act(engine, "reschedule", selection, Manner(reason, yes, dry_run, as_json, run_at))


def _act(engine: Engine, action: Action, selection: Selection, manner: Manner) -> None:
    since = resolve_past(engine, selection.since)
    bulk = BulkAction(engine, action, manner.reason, manner.run_at, quiet=manner.as_json)
    named = resolve_tasks(engine, selection.names)
    if named and not manner.dry_run:
        act_on_each(named, lambda task_id: _act_on_one(engine, action, task_id, manner), manner.as_json)
        return
    if named:
        found = bulk.possible(named)
    else:
        found = bulk.find(selection.matching, since, selection.statuses_for(action))
    count = count_of(len(found), "task")
    if manner.dry_run:
        if manner.as_json:
            print_json({"matched": len(found), "task_ids": found})
        else:
            typer.echo(f"Would {action} {count}.")
        return
    if found and not manner.yes:
        typer.confirm(f"{action.capitalize()} {count}?", abort=True, err=True)
    bulk.run(found)


def _act_on_one(engine: Engine, action: Action, task_id: UUID, manner: Manner) -> str:
    try:
        status = engine.run(_statement(action, task_id, manner))
    except TaskNotFound:
        raise no_task(task_id) from None
    if action == "cancel" and status != "cancelled":
        raise IllegalMove(f"task {task_id} cannot be cancelled: it has already ended ({status})")
    if action == "reschedule" and status not in APPLIES_TO["reschedule"]:
        raise IllegalMove(f"task {task_id} cannot be rescheduled: it is {status}")
    return status


def _statement(action: Action, task_id: UUID, manner: Manner) -> Statement[str]:
    match action:
        case "cancel":
            return tasks.cancel(task_id, manner.reason)
        case "retry":
            return tasks.retry(task_id, manner.reason)
        case "delete":
            return tasks.delete_task(task_id, manner.reason)
        case "restore":
            return tasks.restore_task(task_id, manner.reason)
        case "reschedule":
            return tasks.reschedule(task_id, manner.run_at, manner.reason)


def act_on_each(task_ids: Iterable[UUID], act: Callable[[UUID], str], as_json: bool) -> None:
    """Apply an action to each task and continue after refusals. The first error determines the exit code."""
    results: list[dict[str, Any]] = []
    failure: HoldfastError | None = None
    for task_id in task_ids:
        try:
            status = act(task_id)
        except HoldfastError as error:
            failure = failure or error
            print_error(error)
            results.append({"task_id": task_id, "status": None, "error": describe_error(error)})
            if not isinstance(error, Refused | TryAgain):
                break
        else:
            results.append({"task_id": task_id, "status": status, "error": None})
            if not as_json:
                typer.echo(f"{task_id}  {status}")
    if as_json:
        print_json({"tasks": results})
    if failure:
        raise typer.Exit(failure.exit_code)
