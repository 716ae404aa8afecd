"""holdfast limits: limit the concurrency and rate of queues and types."""

import re
from datetime import timedelta
from typing import Annotated, Any

import typer

from holdfast._engine import Engine
from holdfast._engine import limits as engine_limits
from holdfast._engine.limits import Subject, drop_limit, limit_status
from holdfast._engine.workers import registered_types
from holdfast._serialization.text import visible
from holdfast.cli.arguments import Reason
from holdfast.cli.frame import add_commands, group
from holdfast.cli.output import warn_of_unknown
from holdfast.cli.queues import known_queues
from holdfast.cli.report import Report, change, listing
from holdfast.settings.values import parse_duration

_UNITS = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "day": 86400,
}
_RATE = re.compile(r"(\d{1,9})\s*/\s*(.+)")
# Beside limits, "running" alone reads as one of them.
_COLUMNS = "subject name max_running running_now per_key rate per may_start set_by reason"

SubjectArgument = Annotated[Subject, typer.Argument(metavar="SUBJECT", help="What to limit: queue or type.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue or type.")]


def register(app: typer.Typer) -> None:
    limits = group(app, "limits", "Limit how many tasks run at once and how fast they start.")
    add_commands(limits, list=list_limits, set=set_limit, remove=remove_limit)


def rate(given: str) -> tuple[int, timedelta]:
    """Parse a count per period: 100/min, 5/s, 20/30s."""
    match = _RATE.fullmatch(given.strip())
    try:
        if match is None:
            raise ValueError(given)  # noqa: TRY301 - handled like an invalid period
        seconds = _UNITS.get(match[2].lower())
        return int(match[1]), timedelta(seconds=seconds) if seconds else parse_duration(match[2])
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not a valid rate; expected 100/min, 5/s or 20/30s") from None


def list_limits(engine: Engine) -> Report:
    """List limits and how far they are used."""
    return listing("limits", engine.run(limit_status()), _COLUMNS, running_now=lambda limit: limit.running)


def set_limit(
    *,
    engine: Engine,
    subject: SubjectArgument,
    name: NameArgument,
    max_running: Annotated[
        int | None,
        typer.Option("--running", min=1, help="Maximum number of running tasks, across all workers."),
    ] = None,
    per_key: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of running tasks with the same concurrency key.")
    ] = None,
    at_rate: Annotated[
        Any,
        typer.Option(
            "--rate",
            parser=rate,
            metavar="N/PERIOD",
            help="Maximum number of tasks that may start per period: 100/min, 5/s.",
        ),
    ] = None,
    reason: Reason = None,
) -> Report:
    """Set the limit of a queue or a type. It replaces the previous limit."""
    count, per = at_rate or (None, None)
    limit: dict[str, Any] = {"max_running": max_running, "per_key": per_key, "rate": count, "per": per}
    known = _known(engine, subject)
    engine.run(engine_limits.set_limit(subject, name, reason=reason, **limit))
    warn_of_unknown(subject, name, known)
    document = {"subject": subject, "name": name, **limit}
    return Report(document, f"Limit of {subject} {visible(name)} set.")


def _known(engine: Engine, subject: Subject) -> list[str]:
    if subject == "queue":
        return known_queues(engine)
    return [one.type for one in engine.run(registered_types())]


def remove_limit(engine: Engine, subject: SubjectArgument, name: NameArgument) -> Report:
    """Remove the limit of a queue or a type."""
    return change(
        engine.run(drop_limit(subject, name)),
        f"Limit of {subject} {visible(name)} removed.",
        f"The {subject} {visible(name)} has no limit.",
        subject=subject,
        name=name,
    )
