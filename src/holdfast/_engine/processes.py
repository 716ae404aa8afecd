"""Business processes: which are registered, and the status of each instance."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import psycopg

from holdfast._engine.leases import run_function
from holdfast._engine.statement import (
    BigInt,
    Bound,
    Engine,
    Rows,
    Statement,
    bigint,
    call,
    first,
    integer,
    interval,
    many,
    nothing,
    only,
    scalar,
    select,
    sql_function,
    text,
)
from holdfast._serialization.text import Json
from holdfast.errors import PayloadError, UnexpectedDatabaseError, translate

InstanceState = Literal["unfinished", "trouble"]

MAX_COUNTED = 1000
"""Instances of each process that are counted."""
_REFUSALS = ("P0001", "23")  # raise exception without a code, and constraints


@dataclass(frozen=True, slots=True)
class RegisteredProcess:
    """A kind of process, and the functions that run, repair, cancel and describe it."""

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
    kickoff: str | None


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """A kind of process: how many of its instances have not ended, and how many are in trouble."""

    process: str
    kind: str
    supervisor: str
    can_start: bool
    unfinished: int
    in_trouble: int
    newest_at: datetime | None


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A fact in the history of an instance."""

    at: datetime
    what: str
    reason: str | None
    task_id: UUID | None


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process. Its status is `scheduled`, `running`, or the decision that ended it."""

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

    @property
    def wait_key(self) -> UUID:
        return wait_key(self.process, self.process_id)

    @property
    def revision(self) -> tuple[object, ...]:
        """Differs whenever the process has changed."""
        return self.status, self.updated_at


@dataclass(frozen=True, slots=True)
class ToRepair:
    """A kind of process with instances of a namespace that lost their supervisor, and one of these."""

    process: str
    repair: str
    wait_key: UUID


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The process after which to continue; None at the end."""

    process: str | None
    process_id: int | None


def wait_key(process: str, process_id: int) -> UUID:
    """Identifies a process in notifications and waits, as a task_id identifies a task."""
    return UUID(hashlib.md5(f"{process} {process_id}".encode(), usedforsecurity=False).hexdigest())


def registered_processes() -> Statement[list[RegisteredProcess]]:
    return select(many(RegisteredProcess), "queues.registered_process", "order by 1")


def process_status(process: str, process_id: int) -> Statement[ProcessStatus | None]:
    rest = """where answer.process = $1::text and answer.process_id = $2::bigint"""
    return select(first(ProcessStatus), "queues.process_status", rest, (process, process_id))


def list_processes() -> Statement[list[ProcessSummary]]:
    return call("queues.list_processes", many(ProcessSummary), {"max_counted": integer(MAX_COUNTED)})


def list_process_instances(
    process: str | None = None,
    state: InstanceState | None = None,
    before: int | None = None,
    max_instances: int | None = None,
) -> Statement[list[ProcessStatus]]:
    """Returns instances of a process, or of all processes, newest first."""
    arguments = {
        "of_process": text(process),
        "state": text(state),
        "before": bigint(before),
        "max_instances": integer(max_instances),
    }
    return call("queues.list_process_instances", many(ProcessStatus), arguments)


def registered_process(process: str) -> Statement[RegisteredProcess | None]:
    rest = """where answer.process = $1::text"""
    return select(first(RegisteredProcess), "queues.registered_process", rest, (process,))


@sql_function("queues.process_history")
def process_history(process: str, process_id: BigInt) -> Statement[list[HistoryStep]]:
    """Returns the last steps, in order, as the history function of the process tells them."""


def start_process(process: str, body: str) -> Statement[int]:
    """Start an instance with the member `input` of this JSON object. Returns its id."""
    sql = """select queues.start_process(process => $1::text,
      input => pg_catalog.jsonb_extract_path($2::text::jsonb, 'input'))"""
    return Statement(sql, (process, body), scalar)


@contextmanager
def reporting_refusals() -> Iterator[None]:
    """Around a kickoff: what its own code raises, or a constraint of its tables, is about its input."""
    try:
        yield
    except UnexpectedDatabaseError as error:
        if error.sqlstate is None or not error.sqlstate.startswith(_REFUSALS):
            raise
        raise PayloadError(error.message, hint=error.hint, sqlstate=error.sqlstate) from error


@sql_function("queues.nudge_process")
def nudge_process(process: str, process_id: BigInt, reason: str | None = None) -> Statement[bool]:
    """Let the supervisor run now. Returns whether it waited for a later time."""


def process_statuses(wait_keys: Sequence[UUID]) -> Statement[list[ProcessStatus]]:
    """Returns the processes that have these wait keys."""
    rest = """where answer.wait_key = any ($1::uuid[])"""
    return select(many(ProcessStatus), "queues.process_status", rest, (list(wait_keys),))


def watch_processes(wait_keys: Sequence[UUID], ttl: timedelta | None = None) -> Statement[None]:
    """Request a notification when one of them ends."""
    arguments = {"wait_keys": Bound("uuid[]", list(wait_keys)), "ttl": interval(ttl)}
    return call("queues.watch_processes", Rows("answer.status", nothing), arguments)


@sql_function("queues.cancel_process")
def cancel_process(process: str, process_id: BigInt, reason: str | None = None) -> Statement[str]:
    """Cancel by the function that the process has registered. Returns the decision that ended it."""


@sql_function("queues.record_process_files")
def record_process_files(process: str, files: dict[str, str]) -> Statement[None]:
    """Record the SQL files with which a process was applied."""


def find_orphans(past: ProcessId | None = None, max_processes: int | None = None) -> Statement[ProcessId]:
    """Mark processes whose supervisor is gone or fails. Call again with the result until it is empty."""
    arguments = {
        "after_process": text(past.process if past else None),
        "after_process_id": bigint(past.process_id if past else None),
        "max_processes": integer(max_processes),
    }
    return call("queues.find_orphans", only(ProcessId), arguments)


@sql_function("queues.processes_to_repair")
def processes_to_repair() -> Statement[list[ToRepair]]:
    """Returns the kinds of processes that have orphans, once for each namespace."""


@sql_function("queues.prune_processes")
def prune_processes(max_processes: int | None = None) -> Statement[int]:
    """Returns how many were removed."""


def try_function(
    connection: psycopg.Connection[Any], function: str, payload: Json, instance: UUID | None = None
) -> Any:
    """Call a function of a process as a worker does, for the instance with this wait key, and roll back.

    Returns its envelope.
    """
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("set local role holdfast_worker")
            envelope, _ = Engine(connection).run(run_function(function, payload, instance))
    except psycopg.Error as error:
        raise translate(error) from error
    return envelope
