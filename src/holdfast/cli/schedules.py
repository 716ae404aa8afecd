"""holdfast schedules: manage recurring schedules."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli.app_loader import Application, load_app
from holdfast.cli.arguments import Reason, document, duration, instant
from holdfast.cli.connection import DatabaseUrl, connected, run_statement
from holdfast.cli.enqueue import with_task_options
from holdfast.cli.output import Json, cell_text, print_fields, print_json, print_table
from holdfast.engine.enqueue import NewTask
from holdfast.engine.schedules import (
    CatchUp,
    NewSchedule,
    Overlap,
    ScheduleStatus,
    add_schedule,
    declare_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
    schedule_events,
    schedule_status,
)
from holdfast.errors import InvalidArgument, TaskNotFound, did_you_mean
from holdfast.schedule import check_times
from holdfast.serialization.text import visible

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]
Namespace = Annotated[
    str | None,
    typer.Option(metavar="NAMESPACE", help="Namespace of the schedule, if several have one of this name."),
]

TASK_OPTIONS = ("queue", "priority", "max_attempts", "timeout", "deadline", "executor")

_COLOURS = {"active": "green", "paused": "yellow", "orphaned": "magenta", "broken": "red"}

schedules = typer.Typer(help="Manage recurring schedules.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    schedules.command()(with_task_options(add, TASK_OPTIONS))
    app.add_typer(schedules, name="schedules")


@schedules.command("list")
def list_schedules(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """List schedules and their next times."""
    found = run_statement(database_url, schedule_status())
    if as_json:
        print_json({"schedules": found})
    elif not found:
        typer.echo("No schedules found.", err=True)
    else:
        print_table(
            [
                "name",
                "namespace",
                "state",
                "when",
                "zone",
                "next_at",
                "last_nominal_at",
                "type",
                "declared_by",
                "note",
            ],
            [_row(one) for one in found],
        )


@schedules.command()
def show(
    name: Name,
    namespace: Namespace = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of events.")] = 20,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show a schedule and its events."""
    with connected(database_url) as engine:
        found = _find(engine.run(schedule_status()), name, namespace)
        events = engine.run(schedule_events(name, found.namespace, limit))
    if as_json:
        print_json({"schedule": found, "events": events})
        return
    fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
    print_fields((fields | {"state": _state(found)}).items())
    columns = ["occurred_at", "event_type", "nominal_at", "task_id", "actor", "reason"]
    print_table(columns, [[getattr(one, column) for column in columns] for one in events], title="events")


def add(
    name: Name,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the task: billing.close_month")],
    payload: Annotated[
        Any,
        typer.Argument(
            parser=document,
            metavar="PAYLOAD",
            help="Payload of the task: JSON, @file, or - for standard input.",
        ),
    ] = "{}",
    *,
    cron: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="When to run, as a cron expression: '0 9 * * mon-fri'"),
    ] = None,
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of --cron: Europe/Berlin. Default: UTC.")
    ] = None,
    every: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="Interval between runs: 30s, 5m, 12h"),
    ] = None,
    anchor: Annotated[
        datetime | None,
        typer.Option(
            parser=instant, metavar="TIME", help="Time from which --every counts. Default: a Monday."
        ),
    ] = None,
    catch_up: Annotated[
        CatchUp, typer.Option(help="Which missed runs to make up: none (skip), the latest, or all.")
    ] = "latest",
    catch_up_limit: Annotated[
        int, typer.Option(metavar="NUMBER", help="Maximum number of runs that `--catch-up all` makes up.")
    ] = 10,
    jitter: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="Delay each run randomly, up to this duration."
        ),
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="Whether to skip a run while the previous task is unfinished.")
    ] = "allow",
    database_url: DatabaseUrl = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Add a schedule that is not declared by an application."""
    schedule = NewSchedule(
        name=name,
        task=NewTask(type_, payload, **options),
        cron=cron,
        every=every,
        anchor=anchor,
        tz=tz,
        catch_up=catch_up,
        catch_up_limit=catch_up_limit,
        jitter=jitter,
        overlap=overlap,
    )
    try:
        check_times(schedule, tz)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from None
    verdict = run_statement(database_url, add_schedule(schedule))
    _report(name, as_json, "added" if verdict == "added" else "already exists", verdict=verdict)


@schedules.command()
def apply(application: Application, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Declare the schedules of an application. Requires the role holdfast_client."""
    app = load_app(application)
    with connected(database_url) as engine:
        declared = engine.run(declare_schedules(app.name, app.schedules.values()))
    if as_json:
        print_json({"schedules": declared})
    else:
        print_table(["schedule", "verdict"], [[one.name, one.verdict] for one in declared])
    if any(one.verdict == "taken" for one in declared):
        typer.echo("A schedule marked taken has a name that is already in use: rename it.", err=True)
        raise typer.Exit(1)


@schedules.command()
def pause(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Pause a schedule until it is resumed."""
    changed = run_statement(database_url, pause_schedule(name, reason, namespace))
    _report(name, as_json, "paused" if changed else "was already paused", paused=True, changed=changed)


@schedules.command()
def resume(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Resume a paused schedule. Runs missed during the pause are not made up."""
    changed = run_statement(database_url, resume_schedule(name, reason, namespace))
    _report(name, as_json, "resumed" if changed else "was already active", paused=False, changed=changed)


@schedules.command()
def remove(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Remove a schedule. Its tasks remain. A declared schedule returns when it is declared again."""
    run_statement(database_url, remove_schedule(name, reason, namespace))
    _report(name, as_json, "removed", removed=True)


@schedules.command()
def run(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Enqueue the task of a schedule now and print its id."""
    task_id = run_statement(database_url, run_schedule(name, reason, namespace))
    if as_json:
        print_json({"schedule": name, "task_id": task_id})
    else:
        typer.echo(task_id)


def _find(schedules: list[ScheduleStatus], name: str, namespace: str | None) -> ScheduleStatus:
    found = [one for one in schedules if one.name == name and namespace in (None, one.namespace)]
    if not found:
        known = sorted({one.name for one in schedules})
        raise TaskNotFound(f"there is no schedule {name!r}{did_you_mean(name, known)}")
    if len(found) > 1:
        namespaces = ", ".join(one.namespace for one in found)
        raise InvalidArgument(
            f"schedule {name!r} exists in {len(found)} namespaces: {namespaces}",
            hint="Choose one with --namespace.",
        )
    return found[0]


def _row(schedule: ScheduleStatus) -> list[Any]:
    note = schedule.problem or schedule.pause_reason
    return [
        schedule.name,
        schedule.namespace,
        _state(schedule),
        schedule.cron or f"every {schedule.every}",
        schedule.tz,
        _next(schedule),
        schedule.last_nominal_at,
        schedule.type,
        schedule.declared_by,
        (note or "").partition("\n")[0][:80],
    ]


def _next(schedule: ScheduleStatus) -> str:
    if schedule.state in ("paused", "orphaned"):
        return ""
    if schedule.never:
        return "never"
    return cell_text(schedule.next_at) or "not planned yet"


def _state(schedule: ScheduleStatus) -> Text:
    return Text(schedule.state, style=_COLOURS[schedule.state])


def _report(name: str, as_json: bool, result: str, **fields: Any) -> None:
    if as_json:
        print_json({"schedule": name, **fields})
    else:
        typer.echo(f"Schedule {visible(name)} {result}.")
