"""holdfast schedules: what is enqueued by the clock."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli.app_loader import Application, load_app
from holdfast.cli.arguments import document, duration, instant
from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_fields, print_json, print_table, shown
from holdfast.cli.task_actions import Reason
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
from holdfast.errors import InvalidArgument, TaskNotFound
from holdfast.options import Executor
from holdfast.schedule import check_times
from holdfast.serialization.text import visible

Name = Annotated[str, typer.Argument(metavar="NAME")]
Namespace = Annotated[
    str | None,
    typer.Option(metavar="NAMESPACE", help="Whose schedule, where several namespaces use the name."),
]

_COLOURS = {"active": "green", "paused": "yellow", "orphaned": "magenta", "broken": "red"}

schedules = typer.Typer(help="What is enqueued by the clock.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(schedules, name="schedules")


@schedules.command("list")
def list_schedules(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """List schedules, and when they fire next."""
    with connected(database_url) as engine:
        found = engine.run(schedule_status())
    if as_json:
        print_json({"schedules": found})
    elif not found:
        typer.echo("There is no schedule yet.", err=True)
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
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many events at most.")] = 20,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show a schedule, what became of its last times, and what was done to it."""
    with connected(database_url) as engine:
        found = _only(engine.run(schedule_status()), name, namespace)
        events = engine.run(schedule_events(name, found.namespace, limit))
    if as_json:
        print_json({"schedule": found, "events": events})
        return
    fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
    print_fields((fields | {"state": _state(found)}).items())
    columns = ["occurred_at", "event_type", "nominal_at", "task_id", "actor", "reason"]
    print_table(columns, [[getattr(one, column) for column in columns] for one in events], title="events")


@schedules.command()
def add(
    name: Name,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="What kind of work: billing.close_month")],
    payload: Annotated[
        Any,
        typer.Argument(parser=document, metavar="PAYLOAD", help="JSON, @file, or - for standard input."),
    ] = "{}",
    *,
    cron: Annotated[str | None, typer.Option(metavar="FIELDS", help="When: '0 9 * * mon-fri'")] = None,
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Of --cron: Europe/Berlin; else UTC.")
    ] = None,
    every: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="How often: 30s, 5m, 12h")
    ] = None,
    anchor: Annotated[
        datetime | None,
        typer.Option(parser=instant, metavar="TIME", help="Of --every: a time to count from; else a Monday."),
    ] = None,
    catch_up: Annotated[
        CatchUp, typer.Option(help="Of times that passed while no worker ran, fire none, the last, or all.")
    ] = "latest",
    catch_up_limit: Annotated[int, typer.Option(metavar="NUMBER", help="How many all is at most.")] = 10,
    jitter: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="Put each task off by chance, up to this."),
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="Whether to skip a time while the last task is unfinished.")
    ] = "allow",
    queue: Annotated[
        str | None, typer.Option(help="Else as declared, or the first segment of the type.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; else as declared, or 0.")] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="How often to try; else as declared, or 3.")
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long an attempt may run."),
    ] = None,
    executor: Annotated[Executor | None, typer.Option(help="What runs it.")] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Add a schedule that no application declares."""
    schedule = NewSchedule(
        name=name,
        task=NewTask(
            type=type_,
            payload=payload,
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            timeout=timeout,
            executor=executor,
        ),
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
    with connected(database_url) as engine:
        verdict = engine.run(add_schedule(schedule))
    _tell(name, as_json, f"{'is added' if verdict == 'added' else 'was there already'}", verdict=verdict)


@schedules.command()
def apply(application: Application, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Declare the schedules of an application's code. For a login with holdfast_client."""
    app = load_app(application)
    with connected(database_url) as engine:
        declared = engine.run(declare_schedules(app.name, app.schedules.values()))
    if as_json:
        print_json({"schedules": declared})
    else:
        print_table(["schedule", "verdict"], [[one.name, one.verdict] for one in declared])
    if any(one.verdict == "taken" for one in declared):
        typer.echo("The name of a taken schedule belongs to something else: give it another name.", err=True)
        raise typer.Exit(1)


@schedules.command()
def pause(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Let a schedule not fire until it is resumed."""
    with connected(database_url) as engine:
        changed = engine.run(pause_schedule(name, reason, namespace))
    _tell(name, as_json, f"{'is' if changed else 'was already'} paused", paused=True, changed=changed)


@schedules.command()
def resume(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Let a paused schedule fire again. What passed during the pause is not caught up."""
    with connected(database_url) as engine:
        changed = engine.run(resume_schedule(name, reason, namespace))
    _tell(name, as_json, f"{'is' if changed else 'was already'} active", paused=False, changed=changed)


@schedules.command()
def remove(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Remove a schedule. Its tasks stay; one that an application declares returns when it declares again."""
    with connected(database_url) as engine:
        engine.run(remove_schedule(name, reason, namespace))
    _tell(name, as_json, "is removed", removed=True)


@schedules.command()
def run(
    name: Name,
    reason: Reason = None,
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Enqueue a schedule's task now, besides its times, and print its id."""
    with connected(database_url) as engine:
        task_id = engine.run(run_schedule(name, reason, namespace))
    if as_json:
        print_json({"schedule": name, "task_id": task_id})
    else:
        typer.echo(task_id)


def _only(schedules: list[ScheduleStatus], name: str, namespace: str | None) -> ScheduleStatus:
    found = [one for one in schedules if one.name == name and namespace in (None, one.namespace)]
    if not found:
        raise TaskNotFound(
            f"there is no schedule {name}", hint="holdfast schedules list shows those there are."
        )
    if len(found) > 1:
        namespaces = ", ".join(one.namespace for one in found)
        raise InvalidArgument(
            f"schedule {name} exists in {len(found)} namespaces: {namespaces}",
            hint="Say which one is meant: --namespace.",
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
    return shown(schedule.next_at) or "to be planned"


def _state(schedule: ScheduleStatus) -> Text:
    return Text(schedule.state, style=_COLOURS[schedule.state])


def _tell(name: str, as_json: bool, words: str, **fields: Any) -> None:
    if as_json:
        print_json({"schedule": name, **fields})
    else:
        typer.echo(f"Schedule {visible(name)} {words}.")
