"""holdfast runs: list runs that wait, show the timeline of one, signal it, fork it, check new code."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast._engine import Engine, health, steps, tasks
from holdfast._engine.steps import StepValue, TimelineEntry, UnfinishedRun, WaitingRun
from holdfast._engine.tasks import FailedTry
from holdfast._serialization.text import RawJson, visible
from holdfast.app import App
from holdfast.cli.app_loader import Application, load_app
from holdfast.cli.arguments import QueueOption, Reason, TypeOption
from holdfast.cli.frame import add_commands, group
from holdfast.cli.report import Lines, Note, Report, Table
from holdfast.cli.run_check import Finding, Replay, ReplayedTask
from holdfast.cli.task_name import TaskArgument, resolve_task
from holdfast.errors import InvalidArgument

BAR_COLUMNS = 32
MAX_CHARACTERS = 10_000
"""Of each value."""
_STEPS = {"step", "transaction", "sleep", "signal", "children", "first", "since", "child"}


def register(app: typer.Typer) -> None:
    runs = group(app, "runs", "Show, signal, fork and check runs: tasks with steps.")
    add_commands(runs, list=list_runs, show=show_run, signal=signal_run, fork=fork_run, check=check_runs)


def list_runs(
    *,
    engine: Engine,
    queue: QueueOption = None,
    type_prefix: TypeOption = None,
    limit: Annotated[int, typer.Option(min=1, max=10000, help="Maximum number of rows.")] = 50,
) -> Report:
    """List suspended runs and what they wait for, and steps that fail; the next that is due comes first."""
    found = engine.run(steps.waiting_runs(queue, type_prefix, limit))
    tried = engine.run(tasks.last_tries(list({one.task_id for one in found})))
    failed = {(one.task_id, one.step): one for one in tried}
    listed = [asdict(one) | _json_of(failed.get((one.task_id, one.name))) for one in found]
    rows = [_line(one, failed.get((one.task_id, one.name))) for one in found]
    shown = Table(("task_id", "type", "waits in", "for", "until", "error"), rows)
    return Report({"runs": listed}, shown if found else Note("No suspended runs found."))


def _line(one: WaitingRun, failed: FailedTry | None) -> tuple[Any, ...]:
    awaited = one.signal or one.on_task or ("time" if failed is None else f"next try: {failed}")
    error = "" if failed is None else failed.message.partition("\n")[0][:80]
    return one.task_id, one.type, one.name, awaited, one.until, error


def _json_of(failed: FailedTry | None) -> dict[str, Any]:
    """Of a step that has failed; null of others."""
    return {
        "step_try": failed and failed.step_try,
        "step_tries": failed and failed.step_tries,
        "error": failed and failed.message,
    }


def show_run(
    engine: Engine,
    task: TaskArgument,
    *,
    values: Annotated[
        bool,
        typer.Option("--values", help="Also show the arguments, results and errors that steps have stored."),
    ] = False,
) -> Report:
    """Draw the timeline of a run: attempts, steps, failed tries, signals and waits."""
    task_id = resolve_task(engine, task)
    entries = engine.run(steps.run_timeline(task_id))
    now = engine.run(health.clock())
    stored = engine.run(steps.step_values(task_id, MAX_CHARACTERS)) if values else []
    over = {one.name for one in stored}
    tries = engine.run(tasks.last_tries([task_id])) if values else []
    failing = [one for one in tries if one.step not in over]
    document = {"timeline": entries} | ({"steps": stored, "failing": failing} if values else {})
    return Report(document, Lines(draw(entries, now)), _value_lines(stored, failing))


def _value_lines(stored: list[StepValue], failing: list[FailedTry]) -> Iterator[str]:
    for one in stored:
        yield f"\n{visible(one.name)} ({one.kind})"
        if one.arguments is not None:
            yield f"  arguments: {visible(one.arguments)}"
        for name, written in (("result", one.result), ("error", one.error)):
            if written is not None:
                yield f"  {name}: {visible(written)}{' … (cut)' if one.is_cut else ''}"
    for tried in failing:
        yield f"\n{visible(tried.step)} ({tried})"
        if tried.arguments is not None:
            yield f"  arguments: {visible(json.dumps(tried.arguments, ensure_ascii=False))}"
        yield f"  error: {visible(tried.message)}"


def signal_run(
    engine: Engine,
    task: TaskArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Payload, as JSON.")] = "null",
    *,
    key: Annotated[str | None, typer.Option(help="A repeated signal with this key is kept once.")] = None,
) -> Report:
    """Send a signal to a run, and print kept, replayed, conflict or ended."""
    try:
        json.loads(payload)
    except ValueError as error:
        raise typer.BadParameter(f"the payload is not JSON: {error}", param_hint="JSON") from None
    answer = engine.run(steps.signal(resolve_task(engine, task), name, RawJson(payload), key))
    return Report({"signal": answer}, answer, exit_code=1 if answer in ("conflict", "ended") else 0)


def fork_run(
    engine: Engine,
    task: TaskArgument,
    before: Annotated[
        str | None, typer.Option(metavar="STEP", help="First step to run again. Default: keep all steps.")
    ] = None,
    reason: Reason = None,
) -> Report:
    """Run a task again as a new one that remembers the steps before the given one. Prints its id."""
    forked = engine.run(steps.fork(resolve_task(engine, task), before, reason))
    return Report({"task_id": forked}, forked)


def check_runs(
    engine: Engine,
    application: Application,
    *,
    type_prefix: TypeOption = None,
    limit: Annotated[int, typer.Option(min=1, max=100000, help="Check at most this many runs.")] = 1000,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
) -> Report:
    """Replay unfinished runs with this code on what they remember, and exit with 1 if one does not fit.

    A replay ends at the first step without a memory: no step runs, and nothing is written.
    """
    app = load_app(application)
    types = [name for name in app.handlers if name.startswith(type_prefix or "")]
    with engine.connection.transaction(force_rollback=True):
        engine.connection.execute("set transaction isolation level repeatable read, read only")
        found = [(run, _check(engine, app, run)) for run in engine.run(steps.unfinished_runs(types, limit))]
    findings = [(run, finding) for run, all_of_it in found for finding in all_of_it]
    listed = [
        {"task_id": run.task_id, "type": run.type, "is_error": one.is_error, **asdict(one)}
        for run, one in findings
    ]
    rows = [
        (run.task_id, run.type, "error" if one.is_error else "warning", one.problem, one.message)
        for run, one in findings
    ]
    return Report(
        {"checked": len(found), "findings": listed},
        *([Table(("task_id", "type", "level", "problem", "message"), rows)] if rows else []),
        Note(f"{len(found)} runs checked, {len(findings)} findings."),
        exit_code=1 if any(one.is_error or strict for _, one in findings) else 0,
    )


def _check(engine: Engine, app: App, run: UnfinishedRun) -> list[Finding]:
    timeline = engine.run(steps.run_timeline(run.task_id))
    tried = [entry.name for entry in timeline if entry.happened == "try" and entry.name is not None]
    awaited = [wait.name for wait in engine.run(steps.waits_of(run.task_id))]
    clock = engine.run(health.clock())
    task = ReplayedTask(str(run.task_id), run.type, run.payload, clock.timestamp())
    recorded = engine.run(steps.memory_of(run.task_id))
    children = engine.run(steps.children_of(run.task_id))
    replay = Replay(task, run.created_at, clock, recorded, children)
    return replay.run(app.handlers[run.type], {*awaited, *tried})


def draw(entries: list[TimelineEntry], now: datetime) -> Iterator[Text]:
    """One line for each entry: a bar from its start to its end on the scale of the whole run."""
    times = [time for entry in entries for time in (entry.started_at, entry.ended_at) if time is not None]
    if not times:
        raise InvalidArgument("the run has no history")
    first, last = min(times), min(max(times), max(now, min(times)))
    span = max((last - first).total_seconds(), 0.001)
    for entry in entries:
        yield Text.assemble(_bar(entry, first, span, now), "  ", _label(entry, first))


def _bar(entry: TimelineEntry, first: datetime, span: float, now: datetime) -> Text:
    begin = _column(entry.started_at or first, first, span)
    end = _column(min(entry.ended_at or now, max(now, first)), first, span)
    mark, style = ("█", "green") if entry.happened in _STEPS else ("│", "dim")
    if entry.happened in ("sleep", "waits", "signal"):
        mark, style = "░", "cyan"
    elif entry.happened in ("try", "failed", "recovered", "dead_letter") or (
        entry.happened in _STEPS and entry.reason
    ):
        mark, style = "x", "red"
    elif entry.happened == "signalled":
        mark, style = "▼", "yellow"
    length = max(1, end - begin) if entry.happened in _STEPS else 1
    bar = " " * begin + mark * length
    return Text(bar.ljust(BAR_COLUMNS)[:BAR_COLUMNS], style=style)


def _column(time: datetime, first: datetime, span: float) -> int:
    share = (time - first).total_seconds() / span
    return min(max(int(share * BAR_COLUMNS), 0), BAR_COLUMNS - 1)


def _label(entry: TimelineEntry, first: datetime) -> str:
    offset = f"+{_duration(entry.started_at - first)}" if entry.started_at is not None else ""
    parts: list[Any] = [f"{offset:>9}", entry.happened, entry.name]
    if entry.happened in _STEPS and entry.started_at is not None and entry.ended_at is not None:
        parts.append(_duration(entry.ended_at - entry.started_at))
    if entry.tries is not None and (entry.tries > 1 or entry.happened == "try"):
        parts.append(f"try {entry.tries}")
    if entry.attempt is not None:
        parts.append(f"attempt {entry.attempt}")
    if entry.happened in ("waits", "deadline") and entry.ended_at is not None:
        parts.append(f"until {entry.ended_at:%Y-%m-%d %H:%M:%S}")
    parts += [entry.worker_id, entry.actor, entry.reason, entry.related_id]
    return visible("  ".join(str(part) for part in parts if part is not None))


def _duration(length: timedelta) -> str:
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.1f}{unit}"
    return f"{seconds / 86400:.1f}d"
