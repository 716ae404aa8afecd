"""holdfast show and why: one task."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, pretty, print_fields, print_json, print_table, status_text
from holdfast.engine import Engine, tasks
from holdfast.engine import workers as engine_workers
from holdfast.engine.events import DeliveryStatus, task_deliveries
from holdfast.engine.tasks import TaskError, TaskEvent, TaskStatus
from holdfast.errors import TaskNotFound
from holdfast.serialization.text import visible

TaskArgument = Annotated[UUID, typer.Argument(metavar="ID")]

_DOCUMENTS = {"payload", "result", "error", "progress", "metadata"}


def register(app: typer.Typer) -> None:
    app.command()(show)
    app.command()(why)


def show(
    task_id: TaskArgument,
    *,
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Also what its workers ran with: versions, commit, host.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show all that is known about a task: its fields, its life, its errors, who was told of it."""
    with connected(database_url) as engine:
        task = find(engine, task_id)
        events = engine.run(tasks.task_events(task_id))
        errors = engine.run(tasks.task_errors(task_id))
        deliveries = engine.run(task_deliveries(task_id))
        workers = sorted({event.worker_id for event in events if event.worker_id is not None})
        ran_with = engine.run(engine_workers.provenance(workers)) if provenance else []
    if as_json:
        told = {"provenance": ran_with} if provenance else {}
        print_json({**asdict(task), "events": events, "errors": errors, "deliveries": deliveries, **told})
        return
    _print_task(task)
    _print_life(events, errors)
    _print_deliveries(deliveries)
    for one in ran_with:
        typer.echo(f"\n{visible(one.worker_id)} ran with\n{pretty(one.environment)}")


def why(task_id: TaskArgument, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Say in plain words why a task is not running."""
    with connected(database_url) as engine:
        status = find(engine, task_id).status
        words = engine.run(tasks.explain(task_id))
    if as_json:
        print_json({"task_id": task_id, "status": status, "why": words})
    else:
        typer.echo(visible(words))


def find(engine: Engine, task_id: UUID) -> TaskStatus:
    found = engine.run(tasks.task_status(task_id))
    if found is None:
        raise TaskNotFound(
            f"there is no task {task_id}",
            hint="It may have been removed by retention, or belong to another login.",
        )
    return found


def _print_task(task: TaskStatus) -> None:
    values = asdict(task)
    shown: dict[str, Any] = {name: value for name, value in values.items() if name not in _DOCUMENTS}
    print_fields((shown | {"status": status_text(task.status, task.deleted_at)}).items())
    for name in ("payload", "result", "error", "progress", "metadata"):
        if values[name] is not None or name == "payload":
            typer.echo(f"\n{name}\n{pretty(values[name])}")


def _print_life(events: list[TaskEvent], errors: list[TaskError]) -> None:
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
