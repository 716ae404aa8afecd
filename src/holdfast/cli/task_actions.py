"""holdfast cancel, delete, restore and retry: actions on tasks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress

from holdfast.cli.arguments import QueueOption, Reason, SinceOption, TypeOption, resolve_past
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, count_of, describe_error, print_error, print_json
from holdfast.engine import Engine, tasks
from holdfast.engine.tasks import TaskFilter
from holdfast.errors import HoldfastError, IllegalMove, Refused, TryAgain

TaskArguments = Annotated[list[UUID], typer.Argument(metavar="ID", help="Ids of tasks.")]


class Retryable(StrEnum):
    """The statuses from which a task can be retried."""

    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"


# Cancelled tasks are retried only on request: somebody decided that they should not run.
DEFAULT_STATUSES = (Retryable.FAILED, Retryable.DEAD_LETTER)

PAGE = 10_000
BATCH = 100  # tasks per commit


def register(app: typer.Typer) -> None:
    app.command()(cancel)
    app.command()(delete)
    app.command()(restore)
    app.command()(retry)


def cancel(
    task_ids: TaskArguments, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Cancel tasks that have not ended. A running task is notified at its next heartbeat."""
    with connected(database_url) as engine:
        act_on_each(task_ids, lambda task_id: _cancel(engine, task_id, reason), as_json)


def delete(
    task_ids: TaskArguments, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Delete tasks. They do not run, and their idempotency keys become free. `restore` undoes it."""
    with connected(database_url) as engine:
        act_on_each(task_ids, lambda task_id: engine.run(tasks.delete_task(task_id, reason)), as_json)


def restore(
    task_ids: TaskArguments, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Restore deleted tasks."""
    with connected(database_url) as engine:
        act_on_each(task_ids, lambda task_id: engine.run(tasks.restore_task(task_id, reason)), as_json)


def _cancel(engine: Engine, task_id: UUID, reason: str | None) -> str:
    status = engine.run(tasks.cancel(task_id, reason))
    if status != "cancelled":
        raise IllegalMove(f"task {task_id} cannot be cancelled: it has already ended ({status})")
    return status


def act_on_each(task_ids: Iterable[UUID], act: Callable[[UUID], str], as_json: bool) -> None:
    """Apply an action to each task and continue after refusals. The first error determines the exit code."""
    results: list[dict[str, Any]] = []
    failure: HoldfastError | None = None
    for task_id in dict.fromkeys(task_ids):
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


def retry(
    *,
    task_ids: Annotated[list[UUID] | None, typer.Argument(metavar="ID", help="Ids of tasks.")] = None,
    status: Annotated[
        list[Retryable] | None,
        typer.Option(help="Only tasks with this status; repeatable. Default: failed and dead_letter."),
    ] = None,
    queue: QueueOption = None,
    type_prefix: TypeOption = None,
    since: SinceOption = None,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Retry tasks that are failed, dead_letter or cancelled, with a new set of attempts."""
    filtered = bool(status) or any(option is not None for option in (queue, type_prefix, since))
    if bool(task_ids) == filtered:
        raise typer.BadParameter(
            "give the ids of tasks or filters (--status, --queue, --type, --since), not both"
        )
    with connected(database_url) as engine:
        if task_ids:
            act_on_each(task_ids, lambda task_id: engine.run(tasks.retry(task_id, reason)), as_json)
            return
        matching = TaskFilter(None, queue, type_prefix, resolve_past(engine, since))
        found = [
            task_id
            for one in dict.fromkeys(status or DEFAULT_STATUSES)
            for task_id in find_task_ids(engine, replace(matching, status=one))
        ]
        _retry_matching(engine, found, reason, yes, as_json)


def find_task_ids(engine: Engine, matching: TaskFilter) -> Iterator[UUID]:
    """The ids of all matching tasks that are not deleted."""
    found = engine.run(tasks.find_tasks(matching, None, PAGE))
    while True:
        page = engine.run(tasks.deletions_of(found.task_ids))
        yield from (task.task_id for task in page if task.deleted_at is None)
        if found.next is None:
            return
        found = engine.run(tasks.find_tasks(matching, found.next, PAGE))


def _retry_matching(engine: Engine, found: list[UUID], reason: str | None, yes: bool, as_json: bool) -> None:
    count = count_of(len(found), "task")
    if found and not yes:
        typer.confirm(f"Retry {count}?", abort=True, err=True)
    run = RetryRun(engine, reason)
    try:
        run.retry_all(found, quiet=as_json)
    finally:
        if as_json:
            print_json({"matched": len(found), "retried": run.retried, "refused": run.refused})
        else:
            typer.echo(f"Retried {run.retried} of {count}.")
    if run.failure:
        raise typer.Exit(run.failure.exit_code)


@dataclass
class RetryRun:
    """Retries tasks in batches and counts the results."""

    engine: Engine
    reason: str | None
    retried: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    failure: HoldfastError | None = None

    def retry_all(self, task_ids: Sequence[UUID], *, quiet: bool) -> None:
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
            bar = progress.add_task("Retrying", total=len(task_ids))
            for start in range(0, len(task_ids), BATCH):
                batch = task_ids[start : start + BATCH]
                self._retry_batch(batch)
                progress.advance(bar, len(batch))

    def _retry_batch(self, batch: Sequence[UUID]) -> None:
        """Retry a batch in one transaction. If one task is refused, retry them one by one."""
        try:
            with self.engine.connection.transaction():
                for task_id in batch:
                    self.engine.run(tasks.retry(task_id, self.reason))
        except (Refused, TryAgain):
            for task_id in batch:
                self._retry_one(task_id)
        else:
            self.retried += len(batch)

    def _retry_one(self, task_id: UUID) -> None:
        try:
            self.engine.run(tasks.retry(task_id, self.reason))
        except (Refused, TryAgain) as error:
            self.failure = self.failure or error
            self.refused.append({"task_id": task_id, "error": describe_error(error)})
            print_error(error)
        else:
            self.retried += 1
