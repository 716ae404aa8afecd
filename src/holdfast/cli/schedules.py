"""holdfast schedules: manage recurring schedules."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast._engine import Engine
from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import (
    CatchUp,
    NewSchedule,
    Overlap,
    ScheduleStatus,
    add_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
    schedule_events,
    schedule_status,
)
from holdfast._serialization.text import visible
from holdfast._worker.registration import schedules_of
from holdfast.cli.app_loader import Application, load_app
from holdfast.cli.arguments import Reason, document, duration, instant
from holdfast.cli.enqueue import with_task_options
from holdfast.cli.frame import add_commands, group
from holdfast.cli.output import cell_text
from holdfast.cli.report import Fields, Report, Table, listing, table
from holdfast.errors import InvalidArgument, NotFound, did_you_mean
from holdfast.schedule import check_times

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]
Namespace = Annotated[
    str | None,
    typer.Option(metavar="NAMESPACE", help="Namespace of the schedule, if several have one of this name."),
]

TASK_OPTIONS = ("queue", "priority", "max_attempts", "timeout", "deadline", "executor")

_COLOURS = {"active": "green", "paused": "yellow", "orphaned": "magenta", "broken": "red"}


def register(app: typer.Typer) -> None:
    schedules = group(app, "schedules", "Manage recurring schedules.")
    added = with_task_options(add, TASK_OPTIONS)
    add_commands(schedules, list=list_schedules, show=show, apply=apply, pause=pause, resume=resume)
    add_commands(schedules, remove=remove, run=run, add=added)


def list_schedules(engine: Engine) -> Report:
    """List schedules and their next times."""
    return listing(
        "schedules",
        engine.run(schedule_status()),
        "name namespace state when zone next_at last_nominal_at type declared_by note",
        state=_state,
        when=lambda one: one.cron or f"every {one.every}",
        zone=lambda one: one.tz,
        next_at=_next,
        note=lambda one: (one.problem or one.pause_reason or "").partition("\n")[0][:80],
    )


def show(
    engine: Engine,
    name: Name,
    namespace: Namespace = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of events.")] = 20,
) -> Report:
    """Show a schedule and its events."""
    found = _find(engine.run(schedule_status()), name, namespace)
    events = engine.run(schedule_events(name, found.namespace, limit))
    fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return Report(
        {"schedule": found, "events": events},
        Fields((fields | {"state": _state(found)}).items()),
        table(events, "occurred_at event_type nominal_at task_id actor reason").under("events"),
    )


@dataclass(frozen=True)
class Times:
    """When a schedule runs."""

    cron: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="When to run, as a cron expression: '0 9 * * mon-fri'"),
    ] = None
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of --cron: Europe/Berlin. Default: UTC.")
    ] = None
    every: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="Interval between runs: 30s, 5m, 12h"),
    ] = None
    anchor: Annotated[
        datetime | None,
        typer.Option(
            parser=instant,
            metavar="TIME",
            help="Time from which --every counts. Default: Monday, 2001-01-01T00:00Z.",
        ),
    ] = None
    catch_up: Annotated[
        CatchUp, typer.Option(help="Which missed runs to make up: none (skip), the latest, or all.")
    ] = "latest"
    catch_up_limit: Annotated[
        int, typer.Option(metavar="NUMBER", help="Maximum number of runs that `--catch-up all` makes up.")
    ] = 10
    jitter: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="Delay each run randomly, up to this duration."
        ),
    ] = None
    overlap: Annotated[
        Overlap, typer.Option(help="Whether to skip a run while the previous task is unfinished.")
    ] = "allow"


def add(
    *,
    engine: Engine,
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
    times: Times,
    **options: Any,
) -> Report:
    """Add a schedule that is not declared by an application."""
    schedule = NewSchedule(name=name, task=NewTask(type_, payload, **options), **asdict(times))
    try:
        check_times(schedule, times.tz)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from None
    verdict = engine.run(add_schedule(schedule))
    return _report(name, "added" if verdict == "added" else "already exists", verdict=verdict)


def apply(engine: Engine, application: Application) -> Report:
    """Declare the schedules of an application. Requires the role holdfast_client."""
    app = load_app(application)
    declaration = schedules_of(app)
    declared = [] if declaration is None else engine.run(declaration)
    taken = any(one.verdict == "taken" for one in declared)
    if taken:
        typer.echo("A schedule marked taken has a name that is already in use: rename it.", err=True)
    rows = [(one.name, one.verdict) for one in declared]
    return Report({"schedules": declared}, Table(["schedule", "verdict"], rows), exit_code=int(taken))


def pause(engine: Engine, name: Name, reason: Reason = None, namespace: Namespace = None) -> Report:
    """Pause a schedule until it is resumed."""
    changed = engine.run(pause_schedule(name, reason, namespace))
    return _report(name, "paused" if changed else "was already paused", paused=True, changed=changed)


def resume(engine: Engine, name: Name, reason: Reason = None, namespace: Namespace = None) -> Report:
    """Resume a paused schedule. Runs missed during the pause are not made up."""
    changed = engine.run(resume_schedule(name, reason, namespace))
    return _report(name, "resumed" if changed else "was already active", paused=False, changed=changed)


def remove(engine: Engine, name: Name, reason: Reason = None, namespace: Namespace = None) -> Report:
    """Remove a schedule. Its tasks remain. A declared schedule returns when it is declared again."""
    engine.run(remove_schedule(name, reason, namespace))
    return _report(name, "removed", removed=True)


def run(engine: Engine, name: Name, reason: Reason = None, namespace: Namespace = None) -> Report:
    """Enqueue the task of a schedule now and print its id."""
    task_id = engine.run(run_schedule(name, reason, namespace))
    return Report({"schedule": name, "task_id": task_id}, task_id)


def _find(schedules: list[ScheduleStatus], name: str, namespace: str | None) -> ScheduleStatus:
    found = [one for one in schedules if one.name == name and namespace in (None, one.namespace)]
    if not found:
        known = sorted({one.name for one in schedules})
        raise NotFound(f"there is no schedule {name!r}{did_you_mean(name, known)}")
    if len(found) > 1:
        namespaces = ", ".join(one.namespace for one in found)
        raise InvalidArgument(
            f"schedule {name!r} exists in {len(found)} namespaces: {namespaces}",
            hint="Choose one with --namespace.",
        )
    return found[0]


def _next(schedule: ScheduleStatus) -> str:
    if schedule.state in ("paused", "orphaned"):
        return ""
    if schedule.never:
        return "never"
    return cell_text(schedule.next_at) or "not planned yet"


def _state(schedule: ScheduleStatus) -> Text:
    return Text(schedule.state, style=_COLOURS[schedule.state])


def _report(name: str, result: str, **fields: Any) -> Report:
    return Report({"schedule": name, **fields}, f"Schedule {visible(name)} {result}.")
