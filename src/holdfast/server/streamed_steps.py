"""The steps of a task as its readers receive them: written once for all of them, with the digest of each.

The digest of a step covers it and all steps before it, so that a step which is recorded late, between others,
changes the digests of those after it. If a history is longer than what is read of it, its beginning moves:
there, a digest covers its step alone.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast._engine.tasks import TaskEvent, older_than

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


def digest_of(text: str) -> str:
    return _shortened(hashlib.sha256(text.encode()).hexdigest())


def _shortened(digest: str) -> str:
    return digest[:16]


def _step_json(event: TaskEvent) -> str:
    """Without actor and reason, which a ticket does not show."""
    fields = {"event": event.event_type, "at": event.occurred_at.isoformat(), "attempt": event.attempt}
    return json.dumps(fields)
