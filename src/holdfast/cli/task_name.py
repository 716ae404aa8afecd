"""How a command names a task: by its id, the end of the id, or its key."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from holdfast._engine import Engine, tasks
from holdfast._engine.tasks import TaskLine
from holdfast.errors import InvalidArgument, NotFound

NAMES = "its id, the last eight digits of the id or more, or its key"
TaskArgument = Annotated[str, typer.Argument(metavar="ID", help=f"The task: {NAMES}.")]
TaskArguments = Annotated[list[str] | None, typer.Argument(metavar="ID", help=f"The tasks: {NAMES}.")]

_MOST = 20  # of those that an ambiguous name means, in the error


def resolve_tasks(engine: Engine, names: Sequence[str]) -> list[UUID]:
    """Return the tasks of these names, each once. Ids of no task stay: only their own actions fail."""
    return list(dict.fromkeys(_found_or_id(engine, name) for name in names))


def _found_or_id(engine: Engine, name: str) -> UUID:
    try:
        return resolve_task(engine, name)
    except NotFound:
        whole = as_id(name)
        if whole is None:
            raise
        return whole


def resolve_task(engine: Engine, name: str) -> UUID:
    """Return the id of the one task that this name means."""
    whole = as_id(name)
    # By the id alone, because a front then asks only its shard.
    if whole is not None and engine.run(tasks.task_lines([whole])):
        return whole
    found = _found(engine, name)
    if not found:
        raise (
            no_task(whole)
            if whole is not None
            else NotFound(
                f"no task has the id or the key {name!r}",
                hint="Of an id, give all of it or the last eight digits or more, which are looked for among "
                "the newest 200,000 tasks. `holdfast list --search TEXT` also searches payloads and errors.",
            )
        )
    if len(found) > 1:
        listed = "\n".join(
            f"  {task.task_id}  {task.status}  {task.type}"
            + (f"  {task.idempotency_key}" if task.idempotency_key else "")
            for task in found[:_MOST]
        )
        raise InvalidArgument(f"{name!r} means {len(found)} tasks:\n{listed}", hint="Give the id of one.")
    return found[0].task_id


def no_task(task_id: UUID) -> NotFound:
    return NotFound(
        f"there is no task {task_id}",
        hint="Retention may have removed it, or it belongs to another login. `holdfast list` shows which "
        "there are.",
        sqlstate="QF404",
    )


def as_id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None


def _found(engine: Engine, name: str) -> list[TaskLine]:
    found = engine.run(tasks.find_named(name)).task_ids
    return [task for task in engine.run(tasks.task_lines(found)) if tasks.is_named(task, name)]
