"""What people type, checked before anything is done: times, durations, documents."""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

import typer

from holdfast.engine import Engine, health
from holdfast.engine.documents import RawJson
from holdfast.settings import parse_duration

Moment = datetime | timedelta
"""A time, or how long before the engine's own clock."""


def duration(given: str) -> timedelta:
    try:
        return parse_duration(given)
    except ValueError as error:
        raise typer.BadParameter(f"{given!r} is not a duration: {error}") from None


def instant(given: str) -> datetime:
    """A time of ISO 8601; one without an offset is meant in the zone of this machine."""
    try:
        return datetime.fromisoformat(given.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{given!r} is not a time: write 2030-01-31T08:00 (of this machine's zone), "
            "2030-01-31T08:00Z or 2030-01-31T08:00+02:00"
        ) from None


def moment(given: str) -> Moment:
    try:
        return parse_duration(given)
    except ValueError:
        pass
    try:
        return instant(given)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{given!r} is neither a time (2030-01-31T08:00Z) nor a duration back from now (30m, 2h, 7d)"
        ) from None


def resolve_past(engine: Engine, given: Moment | None) -> datetime | None:
    return _reckon(engine, -given) if isinstance(given, timedelta) else given


def _reckon(engine: Engine, distance: timedelta) -> datetime:
    """From the engine's clock, because this machine's may be wrong."""
    try:
        return engine.run(health.clock()) + distance
    except OverflowError:
        raise typer.BadParameter("that is further away than the calendar reaches") from None


def document(given: str) -> RawJson:
    """JSON, or where it is: - for standard input, @file for a file."""
    if given == "-":
        return _checked(_decoded(sys.stdin.buffer.read(), "standard input"), "standard input")
    if given.startswith("@"):
        path = Path(given[1:]).expanduser()
        try:
            content = path.read_bytes()
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from None
        return _checked(_decoded(content, str(path)), str(path))
    return _checked(given, "it")


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"{source} is not UTF-8: byte {error.start} is {content[error.start]:#04x}"
        ) from None


def _checked(text: str, source: str) -> RawJson:
    """Read for the sake of the message only: what is sent is the text, because floats would lose digits."""
    try:
        json.loads(text, parse_constant=_refuse_constant, parse_int=len, parse_float=len)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(
            f"{source} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise typer.BadParameter(f"{source} is nested too deeply") from None
    return RawJson(text)


def _refuse_constant(name: str) -> NoReturn:
    raise typer.BadParameter(f"{name} is not JSON: use null or a string")
