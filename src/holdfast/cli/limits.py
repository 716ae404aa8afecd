"""holdfast limits: how much of a queue, a type or a key runs at once, and how fast it starts."""

import re
from datetime import timedelta
from typing import Annotated, Any

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.cli.task_actions import Reason
from holdfast.engine import limits as engine_limits
from holdfast.engine.limits import Subject, drop_limit, limit_status
from holdfast.serialization.text import visible
from holdfast.settings import parse_duration

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
_COLUMNS = (
    "subject",
    "name",
    "max_running",
    "running",
    "per_key",
    "rate",
    "per",
    "may_start",
    "set_by",
    "reason",
)

SubjectArgument = Annotated[
    Subject, typer.Argument(metavar="SUBJECT", help="What the limit is about: queue or type.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Which queue or type.")]

limits = typer.Typer(help="Limit how much runs at once, and how fast it starts.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(limits, name="limits")


def rate(given: str) -> tuple[int, timedelta]:
    """100/min, 5/s, 20/30s: so many in each such period."""
    match = _RATE.fullmatch(given.strip())
    try:
        if match is None:
            raise ValueError(given)  # noqa: TRY301 - as a period that cannot be read
        seconds = _UNITS.get(match[2].lower())
        return int(match[1]), timedelta(seconds=seconds) if seconds else parse_duration(match[2])
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not a rate: write 100/min, 5/s or 20/30s") from None


@limits.command("list")
def list_limits(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Show every limit and how far it is used."""
    with connected(database_url) as engine:
        found = engine.run(limit_status())
    if as_json:
        print_json({"limits": found})
    elif not found:
        typer.echo("Nothing is limited.", err=True)
    else:
        print_table(list(_COLUMNS), [[getattr(limit, name) for name in _COLUMNS] for limit in found])


@limits.command("set")
def set_limit(
    *,
    subject: SubjectArgument,
    name: NameArgument,
    max_running: Annotated[
        int | None, typer.Option("--running", min=1, help="How many may run at once, over all workers.")
    ] = None,
    per_key: Annotated[
        int | None, typer.Option(min=1, help="How many of one concurrency key may run at once.")
    ] = None,
    at_rate: Annotated[
        Any, typer.Option("--rate", parser=rate, metavar="N/PERIOD", help="How many may start: 100/min, 5/s.")
    ] = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Set the limit of a queue or a type. What is not given is not limited any more."""
    count, per = at_rate or (None, None)
    with connected(database_url) as engine:
        engine.run(
            engine_limits.set_limit(
                subject, name, max_running=max_running, per_key=per_key, rate=count, per=per, reason=reason
            )
        )
    if as_json:
        print_json(
            {
                "subject": subject,
                "name": name,
                "max_running": max_running,
                "per_key": per_key,
                "rate": count,
                "per": per,
            }
        )
    else:
        typer.echo(f"The {subject} {visible(name)} is limited.")


@limits.command("remove")
def remove_limit(
    *, subject: SubjectArgument, name: NameArgument, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Take a limit away."""
    with connected(database_url) as engine:
        changed = engine.run(drop_limit(subject, name))
    if as_json:
        print_json({"subject": subject, "name": name, "changed": changed})
    elif changed:
        typer.echo(f"The {subject} {visible(name)} is not limited any more.")
    else:
        typer.echo(f"The {subject} {visible(name)} was not limited.")
