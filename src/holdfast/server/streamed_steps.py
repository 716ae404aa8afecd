"""The steps of a task as its readers receive them: written once for all of them, with the digest of each.

The digest of a step covers it and all steps before it, so that a step which is recorded late, between others,
changes the digests of those after it. If a history is longer than what is read of it, its beginning moves:
there, a digest covers its step alone.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from uuid import UUID

from holdfast._engine import AsyncEngine, tasks
from holdfast._engine.tasks import TaskEvent, older_than

MAX_HISTORIES = 5  # read at once: of up to MAX_EVENTS events each

NOTHING = "0"
"""The digest of a reader that has received no step."""


@dataclass(frozen=True, slots=True)
class StreamedStep:
    json: str
    digest: str


@dataclass(frozen=True, slots=True)
class StreamedSteps:
    """Of one task, in order."""

    steps: tuple[StreamedStep, ...] = ()
    _numbers: dict[str, int] = field(default_factory=dict)
    """How many steps a reader has whose last digest this is."""

    @classmethod
    def of(cls, events: Sequence[TaskEvent]) -> "StreamedSteps":
        begins_anywhere = older_than(events) is not None
        running = hashlib.sha256()
        steps: list[StreamedStep] = []
        for event in events:
            written = _step_json(event)
            if begins_anywhere:
                running = hashlib.sha256()
            running.update(f"{written}\n".encode())
            steps.append(StreamedStep(written, _shortened(running.hexdigest())))
        return cls(tuple(steps), {step.digest: n for n, step in enumerate(steps, 1)})

    def after(self, digest: str) -> tuple[StreamedStep, ...]:
        """Those that the reader has not received: all, if it has received others than these."""
        return self.steps[self._numbers.get(digest, 0) :]


async def read_steps(engine: AsyncEngine, task_ids: list[UUID]) -> dict[UUID, StreamedSteps]:
    """A few at a time: to decode many long histories at once would hold up the requests of others."""
    found: dict[UUID, StreamedSteps] = {}
    for first in range(0, len(task_ids), MAX_HISTORIES):
        events = await engine.run(tasks.events_of(task_ids[first : first + MAX_HISTORIES]))
        for task_id, own in groupby(events, lambda event: event.task_id):
            found[task_id] = StreamedSteps.of(list(own))
            await asyncio.sleep(0)
    return found


def digest_of(text: str) -> str:
    return _shortened(hashlib.sha256(text.encode()).hexdigest())


def _shortened(digest: str) -> str:
    return digest[:16]


def _step_json(event: TaskEvent) -> str:
    """Without actor and reason, which a ticket does not show."""
    fields = {"event": event.event_type, "at": event.occurred_at.isoformat(), "attempt": event.attempt}
    return json.dumps(fields)
