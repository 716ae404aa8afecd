"""Actions on all tasks that match: found and changed in bounded steps, with a progress bar."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress

from holdfast._engine import Engine, tasks
from holdfast._engine.task_actions import MAX_ACTED, PAST, Action, act_on_tasks
from holdfast._engine.tasks import Status, TaskFilter
from holdfast._serialization.text import visible
from holdfast.cli.output import count_of
from holdfast.cli.report import Report
from holdfast.errors import RequestRefused

PAGE = 10_000


@dataclass
class BulkAction:
    """Finds the tasks that an action can change, acts on them in batches, and counts the results."""

    engine: Engine
    action: Action
    reason: str | None
    run_at: datetime | None = None
    quiet: bool = False
    changed: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)

    def find(self, matching: TaskFilter, statuses: Sequence[Status | None]) -> list[UUID]:
        found: dict[UUID, None] = {}
        with self._progress() as progress:
            bar = progress.add_task("Searching", total=None)
            for status in statuses:
                for page in pages(self.engine, replace(matching, status=status)):
                    found |= dict.fromkeys(self.possible(page))
                    progress.update(bar, description=f"Searching: {len(found)} found")
        return list(found)

    def possible(self, task_ids: Sequence[UUID]) -> list[UUID]:
        """Those that the action would change."""
        acted = self.engine.run(act_on_tasks(self.action, task_ids, None, self.run_at, dry_run=True))
        return [one.task_id for one in acted if one.changed]

    def run(self, task_ids: Sequence[UUID]) -> None:
        try:
            with self._progress() as progress:
                bar = progress.add_task(self.action.capitalize(), total=len(task_ids))
                for start in range(0, len(task_ids), MAX_ACTED):
                    self._run_batch(task_ids[start : start + MAX_ACTED])
                    progress.advance(bar, MAX_ACTED)
        finally:
            self._report(len(task_ids))
        if self.refused:
            raise typer.Exit(RequestRefused.exit_code)

    def _run_batch(self, batch: Sequence[UUID]) -> None:
        acted = self.engine.run(act_on_tasks(self.action, batch, self.reason, self.run_at))
        self.changed += sum(one.changed for one in acted)
        missing = set(batch) - {one.task_id for one in acted}
        problems = {one.task_id: one.problem for one in acted if not one.changed}
        problems |= dict.fromkeys(missing, "it no longer exists")
        for task_id, problem in problems.items():
            self.refused.append({"task_id": task_id, "problem": problem})
            typer.echo(f"holdfast: task {task_id}: {visible(problem or '')}", err=True)

    def _report(self, matched: int) -> None:
        past = PAST[self.action]
        document = {"matched": matched, past: self.changed, "refused": self.refused}
        shown = f"{past.capitalize()} {self.changed} of {count_of(matched, 'task')}."
        Report(document, shown).print(as_json=self.quiet)

    def _progress(self) -> Progress:
        console = Console(stderr=True)
        return Progress(console=console, transient=True, disable=self.quiet or not console.is_terminal)


def pages(engine: Engine, matching: TaskFilter) -> Iterator[list[UUID]]:
    found = engine.run(tasks.find_tasks(matching, None, PAGE))
    while True:
        yield found.task_ids[:PAGE]
        if found.next is None:
            return
        found = engine.run(tasks.find_tasks(matching, found.next, PAGE))


def find_task_ids(engine: Engine, matching: TaskFilter) -> Iterator[UUID]:
    """The ids of all matching tasks that are not deleted."""
    for page in pages(engine, matching):
        yield from (task.task_id for task in engine.run(tasks.deletions_of(page)) if task.deleted_at is None)
