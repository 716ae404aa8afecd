"""holdfast replay: run tasks again and compare the results."""

import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress

from holdfast._engine import Engine, health, leases, tasks
from holdfast._engine.tasks import ENDED, Status, TaskFilter, TaskSnapshot, TaskStatus
from holdfast._serialization.text import load_json, visible
from holdfast.cli.arguments import QueueOption, Reason, SinceOption, TypeOption, duration, resolve_past
from holdfast.cli.bulk_actions import find_task_ids
from holdfast.cli.frame import Json, Yes, add_commands, confirm
from holdfast.cli.output import count_of, pretty
from holdfast.cli.report import Fields, Note, Report, table
from holdfast.cli.task_name import NAMES, resolve_task
from holdfast.cli.tasks import find_task
from holdfast.errors import InvalidArgument, InvalidState

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A task, its replay and the result of the comparison. `verdict` is None without --verify."""

    task_id: UUID
    replay_id: UUID | None
    verdict: str | None = None
    difference: str | None = None

    @property
    def matches(self) -> bool:
        return self.verdict in (None, "same")


def register(app: typer.Typer) -> None:
    add_commands(app, replay)


def replay(
    *,
    engine: Engine,
    task: Annotated[str | None, typer.Argument(metavar="ID", help=f"The task: {NAMES}.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Wait for the result and compare it byte by byte.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="For a db_function: run it, show what it did, and roll back."),
    ] = False,
    many: Annotated[bool, typer.Option("--many", help="Replay all tasks that match the filters.")] = False,
    status: Annotated[Status | None, typer.Option(help="With --many: only tasks with this status.")] = None,
    queue: QueueOption = None,
    type_prefix: TypeOption = None,
    since: SinceOption = None,
    timeout: Annotated[
        Any,
        typer.Option(
            parser=duration, metavar="DURATION", help="With --verify: how long to wait for each task."
        ),
    ] = "60s",
    reason: Reason = None,
    yes: Yes = False,
    as_json: Json = False,
) -> Report:
    """Run a task again as a new task that refers to the original. --verify compares the results."""
    filtered = any(option is not None for option in (status, queue, type_prefix, since))
    if many == (task is not None) or (filtered and not many) or (many and dry_run):
        raise typer.BadParameter("give the id of a task, or --many and filters; --dry-run needs an id")
    if task is None:
        matching = TaskFilter(status, queue, type_prefix, resolve_past(engine, since))
        chosen = list(find_task_ids(engine, matching))
        if chosen:
            confirm(f"Replay {count_of(len(chosen), 'task')}?", yes=yes)
    else:
        chosen = [resolve_task(engine, task)]
        if dry_run:
            return _dry_run(engine, find_task(engine, chosen[0]))
    replayed = _replay_all(engine, chosen, reason, timeout if verify else None, quiet=as_json or not many)
    return _report(replayed, many=many)


def _replay_all(
    engine: Engine, chosen: list[UUID], reason: str | None, timeout: timedelta | None, *, quiet: bool
) -> list[ReplayResult]:
    """Enqueue all replays before waiting for the first one, so that workers can run them in parallel."""
    originals = {task_id: _original(engine, task_id) if timeout else None for task_id in chosen}
    begun = [ReplayResult(task_id, engine.run(tasks.replay(task_id, reason))) for task_id in chosen]
    if timeout is None:
        return begun
    console = Console(stderr=True)
    found = []
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        bar = progress.add_task("Replaying", total=len(begun))
        for one in begun:
            found.append(_compared(engine, originals[one.task_id], one, timeout))
            progress.advance(bar)
    return found


def _original(engine: Engine, task_id: UUID) -> TaskSnapshot:
    find_task(engine, task_id)
    end = engine.run(tasks.task_snapshot(task_id))
    if end is None or end.status != "succeeded":
        state = "gone" if end is None else end.status
        raise InvalidState(
            f"task {task_id} is {state} and has no result to compare with", hint="Replay it without --verify."
        )
    return end


def _compared(
    engine: Engine, original: TaskSnapshot | None, one: ReplayResult, timeout: timedelta
) -> ReplayResult:
    assert original is not None  # noqa: S101 - found by _original
    assert one.replay_id is not None  # noqa: S101 - enqueued by the caller
    end = _wait(engine, one.replay_id, timeout)
    if end is None:
        return ReplayResult(one.task_id, one.replay_id, "not ended", f"within {timeout.total_seconds():g} s")
    if end.status != "succeeded":
        return ReplayResult(one.task_id, one.replay_id, end.status, end.reason)
    if end.result_json == original.result_json:
        return ReplayResult(one.task_id, one.replay_id, "same")
    difference = first_difference(load_json(original.result_json), load_json(end.result_json))
    return ReplayResult(one.task_id, one.replay_id, "different", difference)


def _wait(engine: Engine, task_id: UUID, timeout: timedelta) -> TaskSnapshot | None:
    give_up = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < give_up:
        end = engine.run(tasks.task_snapshot(task_id))
        if end is not None and end.status in ENDED:
            return end
        time.sleep(POLL_SECONDS)
    return None


def first_difference(old: Any, new: Any, path: str = "$") -> str:
    """Describe the first difference between two JSON documents."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key not in old or key not in new:
                return f"{path}.{key} is only in the {'replay' if key not in old else 'original'}"
            if old[key] != new[key]:
                return first_difference(old[key], new[key], f"{path}.{key}")
    if isinstance(old, list) and isinstance(new, list):
        for n, (one, other) in enumerate(zip(old, new, strict=False)):
            if one != other:
                return first_difference(one, other, f"{path}[{n}]")
        if len(old) != len(new):
            return f"{path} has {len(old)} elements in the original, {len(new)} in the replay"
    return f"{path}: {_abbreviated(old)} in the original, {_abbreviated(new)} in the replay"


def _abbreviated(value: Any) -> str:
    text = pretty(value)
    return text if len(text) <= 200 else f"{text[:200]}…"  # noqa: PLR2004 - the maximum length of a shown value


def _report(replayed: list[ReplayResult], *, many: bool) -> Report:
    code = 0 if all(one.matches for one in replayed) else 1
    if not many:
        document = asdict(replayed[0])
        filled = Fields((name, value) for name, value in document.items() if value is not None)
        return Report(document, filled, exit_code=code)
    differing = sum(not one.matches for one in replayed)
    return Report(
        replayed,
        table(replayed, "task_id replay_id verdict difference"),
        f"Replayed {count_of(len(replayed), 'task')}; {differing} with a different result.",
        exit_code=code,
    )


def _dry_run(engine: Engine, task: TaskStatus) -> Report:
    """Run in a transaction that is rolled back. What others enqueue meanwhile is still there afterwards."""
    function = task.payload.get("db_function") if isinstance(task.payload, dict) else None
    if task.executor != "db_function" or not isinstance(function, str):
        raise InvalidArgument(
            f"task {task.task_id} has the executor {task.executor}: --dry-run supports only db_function"
        )
    with engine.connection.transaction(force_rollback=True):
        began = engine.run(health.clock())
        envelope, _ = engine.run(leases.run_function(function, task.payload, task.task_id))
        enqueued = engine.run(tasks.list_tasks(TaskFilter(since=began)))
        changed = engine.run(health.changed_tables())
    of_others = {one.task_id for one in engine.run(tasks.task_lines([one.task_id for one in enqueued]))}
    enqueued = [one for one in enqueued if one.task_id not in of_others]
    return Report(
        {"envelope": envelope, "enqueued": enqueued, "recorded": changed},
        f"{visible(function)} would return\n{pretty(envelope)}",
        table(enqueued, "type queue executor run_at payload").under("enqueued"),
        table(changed, "table inserted updated deleted", table=lambda one: one.table_name).under("recorded"),
        Note("\nAll changes were rolled back."),
    )
