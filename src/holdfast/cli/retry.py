"""holdfast retry: give tasks that ended a fresh set of attempts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress

from holdfast.cli.arguments import resolve_past
from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, complain, describe_error, print_json
from holdfast.cli.task_actions import Reason, act_on_each
from holdfast.cli.tasks import QueueOption, SinceOption, TypeOption
from holdfast.engine import Engine, tasks
from holdfast.engine.tasks import TaskFilter
from holdfast.errors import HoldfastError, Refused, TryAgain


class Retryable(StrEnum):
    """The statuses from which a task can be retried."""

    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"


# Somebody decided that a cancelled task shall not run: those are retried only when asked for.
WITHOUT_STATUS = (Retryable.FAILED, Retryable.DEAD_LETTER)

PAGE = 10_000
BATCH = 100  # tasks per commit: enough to share the wait for the disk, few enough to repeat one by one


def register(app: typer.Typer) -> None:
    app.command()(retry)


def retry(
    *,
    task_ids: Annotated[list[UUID] | None, typer.Argument(metavar="ID")] = None,
    status: Annotated[
        list[Retryable] | None,
        typer.Option(help="Only this status; may be repeated. Else failed and dead_letter."),
    ] = None,
    queue: QueueOption = None,
    type_prefix: TypeOption = None,
    since: SinceOption = None,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Retry tasks that are failed, dead_letter or cancelled: those named, or all that match a filter."""
    filtered = bool(status) or any(option is not None for option in (queue, type_prefix, since))
    if bool(task_ids) == filtered:
        raise typer.BadParameter(
            "name tasks, or filter them by --status, --queue, --type or --since; not both"
        )
    with connected(database_url) as engine:
        if task_ids:
            act_on_each(task_ids, lambda task_id: engine.run(tasks.retry(task_id, reason)), as_json)
            return
        matching = TaskFilter(None, queue, type_prefix, resolve_past(engine, since))
        found = [
            task_id
            for one in dict.fromkeys(status or WITHOUT_STATUS)
            for task_id in find_all(engine, replace(matching, status=one))
        ]
        _retry_found(engine, found, reason, yes, as_json)


def find_all(engine: Engine, matching: TaskFilter) -> Iterator[UUID]:
    """Every match that is not deleted, page after page."""
    before = None
    while page := engine.run(tasks.list_task_ids(matching, before, PAGE)):
        yield from (task.task_id for task in page if task.deleted_at is None)
        before = page[-1].task_id


def _retry_found(engine: Engine, found: list[UUID], reason: str | None, yes: bool, as_json: bool) -> None:
    count = f"{len(found)} task{'s' if len(found) != 1 else ''}"
    if found and not yes:
        typer.confirm(f"{count} match. Retry?", abort=True, err=True)
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
    """The exact tasks that were counted, retried batch by batch."""

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
        """In one transaction; if somebody got to one of them first, one by one."""
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
            complain(error)
        else:
            self.retried += 1
