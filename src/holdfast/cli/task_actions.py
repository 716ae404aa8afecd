"""holdfast cancel, delete, reschedule, restore and retry: actions on tasks, by id or on all that match."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast._engine import Engine, Statement, tasks
from holdfast._engine.task_actions import APPLIES_TO, RETRIED_BY_DEFAULT, Action
from holdfast._engine.tasks import STATUSES, Status, TaskFilter
from holdfast.cli.arguments import (
    ErrorOption,
    QueueOption,
    Reason,
    SearchOption,
    SinceOption,
    TypeOption,
    WhereOption,
    moment,
    resolve_future,
    resolve_past,
)
from holdfast.cli.bulk_actions import BulkAction
from holdfast.cli.frame import Json, Yes, add_commands, confirm
from holdfast.cli.output import count_of, describe_error, print_error
from holdfast.cli.report import Report
from holdfast.cli.task_name import TaskArguments, no_task, resolve_tasks
from holdfast.errors import HoldfastError, InvalidState, NotFound, RequestRefused, TransactionConflict

StatusOption = Annotated[
    list[str] | None,
    typer.Option(help="Only tasks with this status; repeatable. Default: all that it can change."),
]
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
}
_ONE: dict[Action, Callable[[UUID, str | None], Statement[str]]] = {
    "cancel": tasks.cancel,
    "delete": tasks.delete_task,
    "restore": tasks.restore_task,
    "retry": tasks.retry,
}


def register(app: typer.Typer) -> None:
    add_commands(app, **{action: _command(action) for action in _ONE})
    add_commands(app, reschedule)


@dataclass(frozen=True)
class Selection:
    """The tasks that a command names, or the filters that it gives."""

    names: TaskArguments = None
    status: StatusOption = None
    queue: QueueOption = None
    type_prefix: TypeOption = None
    since: SinceOption = None
    search: SearchOption = None
    error: ErrorOption = None
    where: WhereOption = None

    def check(self, action: Action) -> None:
        filters = (self.queue, self.type_prefix, self.since, self.search, self.error, self.where)
        if bool(self.names) == (bool(self.status) or any(one is not None for one in filters)):
            raise typer.BadParameter(
                "give the ids of tasks or filters (--status, --queue, --type, --since, --search, --error, "
                "--where), not both"
            )
        allowed = APPLIES_TO.get(action, STATUSES)
        for status in self.status or ():
            if status not in allowed:
                raise typer.BadParameter(f"{status!r} is not one of {', '.join(map(repr, allowed))}.")

    def statuses_for(self, action: Action) -> Sequence[Status | None]:
        if self.status:
            return [status for status in STATUSES if status in self.status]
        return RETRIED_BY_DEFAULT if action == "retry" else APPLIES_TO.get(action, (None,))

    def matching(self, engine: Engine) -> TaskFilter:
        since = resolve_past(engine, self.since)
        return TaskFilter(
            None, self.queue, self.type_prefix, since, None, self.search, self.error, self.where
        )


@dataclass(frozen=True)
class ActionOptions:
    """How a command acts."""

    reason: Reason = None
    yes: Yes = False
    dry_run: DryRun = False


def _command(action: Action) -> Callable[..., Report | None]:
    def command(
        engine: Engine, selection: Selection, options: ActionOptions, *, as_json: Json = False
    ) -> Report | None:
        selection.check(action)
        bulk = BulkAction(engine, action, options.reason, quiet=as_json)
        return _act(bulk, selection, options)

    command.__doc__ = _HELP[action]
    return command


def reschedule(
    engine: Engine, at: At, selection: Selection, options: ActionOptions, *, as_json: Json = False
) -> Report | None:
    """Move waiting tasks to another time."""
    selection.check("reschedule")
    run_at = resolve_future(engine, at)
    bulk = BulkAction(engine, "reschedule", options.reason, run_at, quiet=as_json)
    return _act(bulk, selection, options)


def _act(bulk: BulkAction, selection: Selection, options: ActionOptions) -> Report | None:
    named = resolve_tasks(bulk.engine, selection.names or ())
    if named and not options.dry_run:
        return act_on_each(named, lambda task_id: _act_on_one(bulk, task_id), bulk.quiet)
    if named:
        found = bulk.possible(named)
    else:
        found = bulk.find(selection.matching(bulk.engine), selection.statuses_for(bulk.action))
    count = count_of(len(found), "task")
    if options.dry_run:
        return Report({"matched": len(found), "task_ids": found}, f"Would {bulk.action} {count}.")
    if found:
        confirm(f"{bulk.action.capitalize()} {count}?", yes=options.yes)
    bulk.run(found)
    return None


def _act_on_one(bulk: BulkAction, task_id: UUID) -> str:
    action = bulk.action
    status: str
    try:
        if action == "reschedule":
            status = bulk.engine.run(tasks.reschedule(task_id, bulk.run_at, bulk.reason))
        else:
            status = bulk.engine.run(_ONE[action](task_id, bulk.reason))
    except NotFound:
        raise no_task(task_id) from None
    if action == "cancel" and status != "cancelled":
        raise InvalidState(f"task {task_id} cannot be cancelled: it has already ended ({status})")
    if action == "reschedule" and status not in APPLIES_TO["reschedule"]:
        raise InvalidState(f"task {task_id} cannot be rescheduled: it is {status}")
    return status


def act_on_each(task_ids: Iterable[UUID], act: Callable[[UUID], str], as_json: bool) -> Report:
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
            if not isinstance(error, RequestRefused | TransactionConflict):
                break
        else:
            results.append({"task_id": task_id, "status": status, "error": None})
            if not as_json:
                typer.echo(f"{task_id}  {status}")
    return Report({"tasks": results}, exit_code=failure.exit_code if failure else 0)
