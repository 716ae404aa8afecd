"""Business processes: which there are, and where one of them stands."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast.model.document import Json


@dataclass(frozen=True, slots=True)
class RegisteredProcess:
    """A kind of process, and the functions by which it is run, repaired, ended and read."""

    process: str
    kind: str
    schema_name: str
    root_table: str
    supervisor: str
    repair: str
    cancel: str
    history: str
    files: Json
    registered_at: datetime
    registered_by: str


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """Where one process stands: `scheduled`, `running`, or the decision that ended it."""

    process: str
    process_id: int
    status: str
    decision: str | None
    reason: str | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    next_run_at: datetime | None
    task_id: UUID | None
    awaited_task_id: UUID | None
    trouble: str | None
    troubled_at: datetime | None
    repairs: int
    repaired_at: datetime | None
    ended_at: datetime | None

    @property
    def ended(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """What somebody who waits for a process wants to know."""

    wait_key: UUID
    process: str
    process_id: int
    status: str
    updated_at: datetime
    ended_at: datetime | None

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def life(self) -> tuple[object, ...]:
        """Changes whenever there is news."""
        return self.status, self.updated_at


@dataclass(frozen=True, slots=True)
class ToRepair:
    """A process with instances that have lost their supervisor, and its function that enqueues it again."""

    process: str
    repair: str


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Past which process to go on; None at the end."""

    process: str | None
    process_id: int | None


def wait_key(process: str, process_id: int) -> UUID:
    """Stands for a process where a task_id stands for a task: in notifications, and among those who wait."""
    return UUID(hashlib.md5(f"{process} {process_id}".encode(), usedforsecurity=False).hexdigest())
