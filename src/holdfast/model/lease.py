"""Leases: what is claimed, held and reported."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from holdfast.model.document import Json

# held, deleted: a heartbeat · accepted: a finish · released: a release · already_done: a repeated call
VerdictWord = Literal["held", "deleted", "accepted", "released", "already_done", "cancelled", "lost", "busy"]
ResultStatus = Literal["succeeded", "failed", "retry", "snooze", "cancelled"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task that this worker holds until lease_until."""

    task_id: UUID
    token: int
    type: str
    executor: str
    payload_json: str
    attempt: int
    max_attempts: int
    lease_until: datetime
    timeout: timedelta | None
    metadata_json: str | None
    run_at: datetime
    lane_id: int

    @property
    def payload(self) -> Any:
        return json.loads(self.payload_json)

    @property
    def metadata(self) -> Any:
        return None if self.metadata_json is None else json.loads(self.metadata_json)


@dataclass(frozen=True, slots=True)
class NextDue:
    """How long until a claim may find something, and whether a due task waits for one that runs to end."""

    due: timedelta | None
    held: bool


@dataclass(frozen=True, slots=True)
class Held:
    """What a worker says it holds, for a heartbeat or a release."""

    task_id: UUID
    token: int
    started_at: datetime | None = None
    progress: Any = None


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt went, for a finish. `run_at` says when a retry or a snooze is due."""

    task_id: UUID
    token: int
    status: ResultStatus
    result: Any = None
    error: Any = None
    run_at: datetime | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one element of a heartbeat, finish or release."""

    task_id: UUID
    verdict: VerdictWord


@dataclass(frozen=True, slots=True)
class Swept:
    recovered: int
    dead: int


@dataclass(frozen=True, slots=True)
class LastError:
    """How the attempt before this one ended, and how long ago it was claimed."""

    kind: str
    recovered: bool
    detail: Json
    age: timedelta
