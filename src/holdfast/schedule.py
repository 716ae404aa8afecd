"""Schedules of `@app.schedule`, which the workers of the application declare."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from holdfast._engine.enqueue import NewTask
from holdfast._engine.schedules import CATCH_UPS, OVERLAPS, CatchUp, NewSchedule, Overlap
from holdfast._worker.recurrence import Cron, Every
from holdfast.errors import InvalidArgument, InvalidHandler, did_you_mean
from holdfast.options import IN_DATABASE, check_duration
from holdfast.task import Task


class ScheduleOptions(TypedDict, total=False):
    """The options of `@app.schedule`, declared once. docs/reference/python.md describes them."""

    every: float | timedelta | None
    anchor: datetime | None
    tz: str | None
    name: str | None
    arguments: Mapping[str, Any] | None
    catch_up: CatchUp
    catch_up_limit: int
    jitter: float | timedelta | None
    overlap: Overlap


def build_schedule(task: object, cron: str | None, **options: Unpack[ScheduleOptions]) -> NewSchedule:
    """Refuses an invalid schedule at decoration, not when the worker starts."""
    if not isinstance(task, Task):
        raise InvalidHandler(f"{task!r} is not a task", hint="Write @app.schedule above @app.task.")
    known = ScheduleOptions.__annotations__
    for given in options:
        if given not in known:
            raise InvalidHandler(
                f"the schedule of {task.type}: unknown option {given!r}{did_you_mean(given, known)}"
            )
    every, tz, jitter = options.get("every"), options.get("tz"), options.get("jitter")
    try:
        schedule = NewSchedule(
            name=options.get("name") or task.type,
            task=_call(task, options.get("arguments") or {}),
            cron=cron,
            every=None if every is None else check_duration("every", every),
            anchor=options.get("anchor"),
            tz=("UTC" if tz is None else tz) if cron is not None else None,
            catch_up=options.get("catch_up", "latest"),
            catch_up_limit=options.get("catch_up_limit", 10),
            jitter=None if jitter is None else check_duration("jitter", jitter),
            overlap=options.get("overlap", "allow"),
        )
        check_times(schedule, tz)
    except InvalidArgument as error:
        raise InvalidHandler(f"the schedule of {task.type}: {error.message}", hint=error.hint) from None
    return schedule


def check_times(schedule: NewSchedule, tz: str | None) -> None:
    """Check that the times of the schedule can be computed."""
    if (schedule.cron is None) == (schedule.every is None):
        raise InvalidArgument("give a cron expression or every, and not both")
    if schedule.cron is not None:
        Cron(schedule.cron, tz or "UTC")
        if schedule.anchor is not None:
            raise InvalidArgument("anchor goes with every, not with a cron expression")
    elif schedule.every is not None:
        if tz is not None:
            raise InvalidArgument("tz goes with a cron expression, not with every")
        if schedule.anchor is not None and schedule.anchor.tzinfo is None:
            raise InvalidArgument(f"anchor {schedule.anchor} has no time zone", hint="Use an aware datetime.")
        Every(schedule.every, schedule.anchor or datetime.now().astimezone())
    if schedule.catch_up not in CATCH_UPS:
        raise InvalidArgument(f"catch_up {schedule.catch_up!r} is not one of {', '.join(CATCH_UPS)}")
    if schedule.overlap not in OVERLAPS:
        raise InvalidArgument(f"overlap {schedule.overlap!r} is not one of {', '.join(OVERLAPS)}")


def _call(task: Task[..., Any, Any], arguments: Mapping[str, Any]) -> NewTask:
    if task.handler.executor in IN_DATABASE:
        raise InvalidArgument(
            f"its executor is {task.handler.executor}, which an application cannot declare a schedule for",
            hint="Add it with holdfast schedules add, as a login that has holdfast_process.",
        )
    return task.build(**arguments)
