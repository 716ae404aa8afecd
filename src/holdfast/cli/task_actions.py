"""holdfast cancel, delete and restore: what people do to tasks they name."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, complain, describe_error, print_json
from holdfast.engine import Engine, tasks
from holdfast.errors import HoldfastError, IllegalMove, Refused, TryAgain

TaskArguments = Annotated[list[UUID], typer.Argument(metavar="ID")]
Reason = Annotated[str | None, typer.Option(help="Why; it is recorded with your login.")]


def register(app: typer.Typer) -> None:
    app.command()(cancel)
    app.command()(delete)
    app.command()(restore)


def cancel(
    task_ids: TaskArguments, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Cancel tasks that have not ended. One that runs is told at its next heartbeat."""
    with connected(database_url) as engine:
        act_on_each(task_ids, lambda task_id: _cancel(engine, task_id, reason), as_json)


def delete(
    task_ids: TaskArguments, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Delete tasks so that they can be restored: they are not run, and their keys are free."""
    with connected(database_url) as engine:
        act_on_each(task_ids, lambda task_id: engine.run(tasks.delete_task(task_id, reason)), as_json)


def restore(
    task_ids: TaskArguments, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Restore deleted tasks to the place that they had."""
    with connected(database_url) as engine:
        act_on_each(task_ids, lambda task_id: engine.run(tasks.restore_task(task_id, reason)), as_json)


def _cancel(engine: Engine, task_id: UUID, reason: str | None) -> str:
    status = engine.run(tasks.cancel(task_id, reason))
    if status != "cancelled":
        raise IllegalMove(f"task {task_id} cannot be cancelled: it had already ended, {status}")
    return status


def act_on_each(task_ids: Iterable[UUID], act: Callable[[UUID], str], as_json: bool) -> None:
    """A refusal does not keep the other tasks from being done; the first one gives the exit code."""
    answers: list[dict[str, Any]] = []
    failure: HoldfastError | None = None
    for task_id in dict.fromkeys(task_ids):
        try:
            status = act(task_id)
        except HoldfastError as error:
            failure = failure or error
            complain(error)
            answers.append({"task_id": task_id, "status": None, "error": describe_error(error)})
            if not isinstance(error, Refused | TryAgain):
                break
        else:
            answers.append({"task_id": task_id, "status": status, "error": None})
            if not as_json:
                typer.echo(f"{task_id}  {status}")
    if as_json:
        print_json({"tasks": answers})
    if failure:
        raise typer.Exit(failure.exit_code)
