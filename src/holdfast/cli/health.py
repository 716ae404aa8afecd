"""holdfast health: check queues, workers, schedules, the outbox and the server."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.text import Text

from holdfast._engine import Engine
from holdfast._engine import health as engine_health
from holdfast._engine.health import LEVELS, HealthLine, Level
from holdfast._engine.roles import grant_lines, missing_grants
from holdfast._engine.units import installed_units
from holdfast._serialization.text import visible
from holdfast.cli.frame import Json, add_commands
from holdfast.cli.report import Lines, Report
from holdfast.errors import ConfigurationError, NotAllowed

_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red"}


def register(app: typer.Typer) -> None:
    add_commands(app, health)


def health(
    *,
    engine: Engine,
    show_all: Annotated[bool, typer.Option("--all", help="Also show green checks.")] = False,
    as_metrics: Annotated[
        bool, typer.Option("--metrics", help="Print Prometheus metrics. The exit code is always 0.")
    ] = False,
    as_json: Json = False,
) -> Report:
    """Check queues, workers, schedules, outbox and server. Exit code: 0 green, 1 amber, 2 red."""
    if as_json and as_metrics:
        raise typer.BadParameter("--json and --metrics cannot be combined")
    lines = _read(engine)
    if as_metrics:
        return Report(None, metrics_text(lines).removesuffix("\n"))
    level = worst_level(lines)
    units = _units(engine)
    shown = _shown(lines, level, units if show_all else [], show_all=show_all)
    document = {"level": level, "lines": lines, "units": units}
    return Report(document, Lines(shown), exit_code=LEVELS.index(level))


def _read(engine: Engine) -> list[HealthLine]:
    """A login that may not read health gets one red line with the statement that it needs."""
    missing = engine.run(missing_grants(("reader",)))
    return grant_lines(missing, "red", "may_not_read_health") or engine.run(engine_health.health())


def _units(engine: Engine) -> list[str]:
    """None if this login may not ask, which a line of health says."""
    try:
        return engine.run(installed_units())
    except NotAllowed:
        return []


def worst_level(lines: Sequence[HealthLine]) -> Level:
    return max((line.level for line in lines), key=LEVELS.index, default="green")


def level_text(level: Level) -> Text:
    return Text(level.upper(), style=_COLOURS[level])


def metrics_text(lines: Sequence[HealthLine]) -> str:
    """Two gauges per check: its level (0, 1 or 2) and its value."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError(
            "--metrics needs prometheus-client", hint="Run pip install 'holdfast-pg[metrics]'."
        ) from None
    registry = CollectorRegistry()
    labels = ["check_name", "subject"]
    level = Gauge("holdfast_health_level", "0 is green, 1 amber, 2 red.", labels, registry=registry)
    value = Gauge("holdfast_health_value", "What the check measured.", labels, registry=registry)
    for line in lines:
        level.labels(line.check_name, line.subject or "").set(LEVELS.index(line.level))
        if line.value is not None:
            value.labels(line.check_name, line.subject or "").set(line.value)
    return generate_latest(registry).decode()


def _shown(
    lines: Sequence[HealthLine], level: Level, units: Sequence[str], *, show_all: bool
) -> Iterator[Text]:
    yield from (_line_text(line) for line in lines if show_all or line.level != "green")
    counts = Counter(line.level for line in lines)
    summary = ", ".join(f"{counts[one]} {one}" for one in reversed(LEVELS) if counts[one])
    yield level_text(level).append(f": {summary}", style="default")
    if units:
        yield Text(f"Installed: {', '.join(units)}")


def _line_text(line: HealthLine) -> Text:
    text = Text(f"{line.level:<5}", style=_COLOURS[line.level])
    text.append(f"  {line.check_name:<18}  {visible(line.message)}", style="default")
    if line.error:
        text.append(f"\n       {'':<18}  Latest error: {visible(line.error)}", style="default")
    if line.advice:
        text.append(f"\n       {'':<18}  {visible(line.advice)}", style="dim")
    return text
