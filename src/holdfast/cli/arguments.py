"""Arguments and options that several commands share, and the parsers of times, durations and JSON."""

import json
import sys
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from holdfast._engine import Engine, health
from holdfast._serialization.text import RawJson
from holdfast.settings.values import parse_duration

Moment = datetime | timedelta
"""A time, or a duration before or after the current time of the database."""

Reason = Annotated[str | None, typer.Option(help="Reason, recorded together with your login.")]


def duration(given: str) -> timedelta:
    try:
        return parse_duration(given)
    except ValueError as error:
        raise typer.BadParameter(f"{given!r} is not a valid duration: {error}") from None


def instant(given: str) -> datetime:
    """Parse an ISO 8601 time. Without an offset, it is in the time zone of this machine."""
    try:
        return datetime.fromisoformat(given.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{given!r} is not a valid time; expected 2030-01-31T08:00 (local time zone), "
            "2030-01-31T08:00Z or 2030-01-31T08:00+02:00"
        ) from None


def moment(given: str) -> Moment:
    """Parse a duration, a time, a time of today such as 12:00, or `today` and `yesterday`."""
    try:
        return parse_duration(given)
    except ValueError:
        pass
    today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    if given in ("today", "yesterday"):
        return today if given == "today" else (today - timedelta(hours=12)).replace(hour=0)
    try:
        return today.combine(today, time.fromisoformat(given), tzinfo=today.tzinfo)
    except ValueError:
        pass
    try:
        return instant(given)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{given!r} is neither a time such as 2030-01-31T08:00Z, 12:00 or today, nor a duration such as "
            "30m, 2h or 7d"
        ) from None


def resolve_past(engine: Engine, given: Moment | None) -> datetime | None:
    return _from_now(engine, -given) if isinstance(given, timedelta) else given


def resolve_future(engine: Engine, given: Moment) -> datetime:
    return _from_now(engine, given) if isinstance(given, timedelta) else given


def _from_now(engine: Engine, distance: timedelta) -> datetime:
    """Uses the clock of the database: the clock of this machine may be wrong."""
    try:
        return engine.run(health.clock()) + distance
    except OverflowError:
        raise typer.BadParameter("the time is out of range") from None


def document(given: str) -> RawJson:
    """JSON text, - for standard input or @file for a file."""
    if given == "-":
        return _checked(_decoded(sys.stdin.buffer.read(), "standard input"), "standard input")
    if given.startswith("@"):
        path = Path(given[1:]).expanduser()
        try:
            content = path.read_bytes()
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from None
        return _checked(_decoded(content, str(path)), str(path))
    return _checked(given, "the value")


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"{source} is not UTF-8: byte {error.start} is {content[error.start]:#04x}"
        ) from None


def _checked(text: str, source: str) -> RawJson:
    """Parse only to report errors. The text itself is sent, because floats would lose digits."""
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=len, parse_float=len)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(
            f"{source} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise typer.BadParameter(f"{source} is nested too deeply") from None
    return RawJson(text)


def _refuse_constant(name: str) -> NoReturn:
    raise typer.BadParameter(f"{name} is not valid JSON: use null or a string")


QueueOption = Annotated[str | None, typer.Option("--queue", help="Only tasks of this queue.")]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", metavar="PREFIX", help="Only types that begin with this prefix: billing."),
]
SinceOption = Annotated[
    Any,
    typer.Option(
        "--since",
        parser=moment,
        metavar="TIME|DURATION",
        help="Only tasks created since this time, or within this duration: 2030-01-31T08:00Z, today, 2h, 7d.",
    ),
]
SearchOption = Annotated[
    str | None,
    typer.Option(
        "--search", metavar="TEXT", help="Only tasks with this text in their id, type, key or error messages."
    ),
]
ErrorOption = Annotated[
    str | None,
    typer.Option(
        "--error", metavar="GROUP", help="Only tasks whose last error is of this group: see holdfast errors."
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="JSONPATH",
        help="Only tasks whose payload matches this JSON path: '$.invoice ? (@ == 7)'.",
    ),
]
