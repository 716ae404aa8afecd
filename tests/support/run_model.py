"""The model of runs in plain Python: steps, signals, waits, children and joins, on top of that of tasks."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from support.engine import Row
from support.task_model import PICTURES, Task, Ticket, Twin

JOIN = "pack"
"""The only step that starts children."""


@dataclass
class Wait:
    """What a suspended run waits for, until a time: a signal, its children, or only the time."""

    until: datetime
    signal: str | None = None
    pointer: int | None = None
    """Of a join: the place of the first child that has not ended, as far as was looked."""


@dataclass
class Signal:
    name: str
    key: str | None
    payload: int
    taken: bool = False


@dataclass
class Child:
    task_id: UUID
    ends_with_parent: bool


@dataclass
class Run:
    """What a task remembers. Steps are kept with the token under which they were recorded."""

    steps: dict[str, int] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    inbox: list[Signal] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    ended_with: UUID | None = None


RUN_PICTURES = PICTURES.replace(
    "as deleted,",
    """as deleted,
      array(select w.name from queues.wait w where w.task_id = t.task_id order by 1) as waits,
      array(select p.name from queues.step p where p.task_id = t.task_id order by 1) as steps,""",
)


class RunTwin(Twin):
    """Every wake-up and every cancellation of a child happens at once: `settle` follows each call."""

    def __init__(self, now: datetime) -> None:
        super().__init__(now)
        self.runs: defaultdict[UUID, Run] = defaultdict(Run)
        self.unwanted: dict[UUID, UUID | None] = {}

    def pictures(self) -> dict[UUID, Row]:
        return {task_id: self._picture(task) for task_id, task in self.tasks.items()}

    def _picture(self, task: Task) -> Row:
        run, picture = self.runs[task.task_id], task.picture(self.now)
        if picture["status"] == "scheduled" and run.waits:
            picture["status"] = "suspended"
        return {**picture, "waits": sorted(run.waits), "steps": sorted(run.steps)}

    # What workers report

    def record(self, ticket: Ticket, step: str, *, gives_up: bool = False) -> str:
        refusal = self._refusal(ticket)
        if refusal:
            return refusal
        run = self.runs[ticket.task_id]
        if gives_up:
            self.unwanted |= {child.task_id: None for child in run.children if child.ends_with_parent}
        known = step in run.steps
        run.steps.setdefault(step, ticket.token)
        return "already" if known else "recorded"

    def take_signal(self, ticket: Ticket, step: str, name: str) -> int | None:
        """The payload of the oldest signal that no step has taken."""
        run = self.runs[ticket.task_id]
        signal = next((one for one in run.inbox if one.name == name and not one.taken), None)
        if signal is None or step in run.steps:
            return None
        signal.taken = True
        run.steps[step] = ticket.token
        return signal.payload

    def start(self, ticket: Ticket) -> str:
        return self._refusal(ticket) or ("already" if self.runs[ticket.task_id].children else "started")

    def suspend(self, ticket: Ticket, waits: dict[str, Wait]) -> str:
        task, run = self.tasks[ticket.task_id], self.runs[ticket.task_id]
        held = task.is_held_by(ticket)
        verdict = self.finish(ticket, "snooze", min(wait.until for wait in waits.values()))
        if held:
            task.attempt = 0
            run.waits = {name: run.waits.get(name, wait) for name, wait in waits.items()}
            join = run.waits.get(JOIN)
            if join and join.pointer == len(run.children):
                join.pointer = 0  # it waits on, so the run has seen an open child
        return verdict

    def attempts_used(self, task: Task) -> int:
        """A step that was recorded under this claim starts the count again."""
        token = task.lease.ticket.token if task.lease else None
        progress = token in self.runs[task.task_id].steps.values()
        return 1 if progress and task.attempt > 1 else task.attempt

    def _refusal(self, ticket: Ticket) -> str | None:
        if self.tasks[ticket.task_id].is_held_by(ticket):
            return None
        return "cancelled" if (ticket.task_id, ticket.token) in self.cancelled else "lost"

    # What comes from outside

    def signal(self, task: Task, name: str, key: str | None, payload: int) -> str:
        inbox = self.runs[task.task_id].inbox
        if task.outcome:
            return "ended"
        same = next((one for one in inbox if key and (one.name, one.key) == (name, key)), None)
        if same:
            return "replayed" if same.payload == payload else "conflict"
        inbox.append(Signal(name, key, payload))
        return "kept"

    def restore(self, task: Task) -> str:
        status = super().restore(task)
        return "suspended" if status == "scheduled" and self.runs[task.task_id].waits else status

    def retry(self, task: Task) -> str:
        status = super().retry(task)
        for child in self._awaited(task.task_id):
            run = self.runs[child.task_id]
            if child.outcome == "cancelled" and run.ended_with == task.task_id and not child.deleted:
                run.ended_with = None
                self.retry(child)
        return status

    def _end(self, task: Task, status: str, token: int | None) -> None:
        super()._end(task, status, token)
        run = self.runs[task.task_id]
        run.waits, run.ended_with = {}, None
        if status != "succeeded":
            open_children = [child for child in self._awaited(task.task_id) if not child.outcome]
            self.unwanted |= {child.task_id: task.task_id for child in open_children}

    def _awaited(self, task_id: UUID) -> Iterator[Task]:
        """Children that end with the run, and for which it still waits."""
        run = self.runs[task_id]
        if JOIN not in run.steps:
            yield from (self.tasks[child.task_id] for child in run.children if child.ends_with_parent)

    # What every look finds

    def settle(self) -> None:
        while self.unwanted:
            task_id, parent_id = self.unwanted.popitem()
            if self.tasks[task_id].place in {"ready", "lease"}:
                self.cancel(self.tasks[task_id])
                self.runs[task_id].ended_with = parent_id
        for task in self.tasks.values():
            run = self.runs[task.task_id]
            over = [self._is_over(run, wait) for wait in run.waits.values()]
            if any(over) and task.place == "ready" and task.attempt == 0 and task.run_at > self.now:
                task.run_at = self.now

    def _is_over(self, run: Run, wait: Wait) -> bool:
        if wait.pointer is not None:
            while wait.pointer < len(run.children) and not self.is_open(run.children[wait.pointer]):
                wait.pointer += 1
            return wait.pointer == len(run.children)
        return any(one.name == wait.signal and not one.taken for one in run.inbox)

    def is_open(self, child: Child) -> bool:
        task = self.tasks[child.task_id]
        return not task.outcome and not task.deleted
