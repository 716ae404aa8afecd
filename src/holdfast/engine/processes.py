"""Business processes: which are registered, and the status of each instance."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from holdfast.engine.documents import Json
from holdfast.engine.statement import (
    Bound,
    Statement,
    bigint,
    call,
    columns_of,
    first,
    integer,
    many,
    nothing,
    only,
    scalar,
    span,
    text,
)
from holdfast.errors import InvalidArgument

_FUNCTION = re.compile(r"[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}", re.ASCII)


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


def registered_processes() -> Statement[list[RegisteredProcess]]:
    sql = f"select {columns_of(RegisteredProcess)} from queues.registered_process answer order by 1"  # noqa: S608 - our names only
    return Statement(sql, (), many(RegisteredProcess))


def process_status(process: str, process_id: int) -> Statement[ProcessStatus | None]:
    sql = f"""select {columns_of(ProcessStatus)} from queues.process_status answer
      where answer.process = $1::text and answer.process_id = $2::bigint"""  # noqa: S608 - our names only
    return Statement(sql, (process, process_id), first(ProcessStatus))


def process_looks(wait_keys: Sequence[UUID]) -> Statement[list[ProcessLook]]:
    """Of many processes, for those who wait for them."""
    sql = f"""select {columns_of(ProcessLook)} from queues.process_status answer
      where answer.wait_key = any ($1::uuid[])"""  # noqa: S608 - our names only
    return Statement(sql, (list(wait_keys),), many(ProcessLook))


def watch_processes(wait_keys: Sequence[UUID], ttl: timedelta | None = None) -> Statement[None]:
    """Ask for a notification when one of them ends."""
    arguments = {"wait_keys": Bound("uuid[]", list(wait_keys)), "ttl": span(ttl)}
    return call("queues.watch_processes", nothing, arguments, "answer.status")


def cancel_process(cancel: str, process_id: int, reason: str | None = None) -> Statement[str]:
    """By the function that the process has registered. Returns the decision that it ended with."""
    if not _FUNCTION.fullmatch(cancel):
        raise InvalidArgument(f"{cancel!r} is not the name of a function")
    sql = f"select {cancel}($1::bigint, $2::text)"
    return Statement(sql, (process_id, reason), scalar)


def record_process_files(process: str, files: dict[str, str]) -> Statement[None]:
    arguments = {"process": text(process), "files": Bound("text::jsonb", files)}
    return call("queues.record_process_files", nothing, arguments)


def find_orphans(past: ProcessId | None = None, max_processes: int | None = None) -> Statement[ProcessId]:
    """Mark processes whose supervisor is gone or fails. Call it again with the answer until that is empty."""
    arguments = {
        "after_process": text(past.process if past else None),
        "after_process_id": bigint(past.process_id if past else None),
        "max_processes": integer(max_processes),
    }
    return call("queues.find_orphans", only(ProcessId), arguments, columns_of(ProcessId))


def processes_to_repair() -> Statement[list[ToRepair]]:
    return call("queues.processes_to_repair", many(ToRepair), {}, columns_of(ToRepair))


def prune_processes(max_processes: int | None = None) -> Statement[int]:
    return call("queues.prune_processes", scalar, {"max_processes": integer(max_processes)})
