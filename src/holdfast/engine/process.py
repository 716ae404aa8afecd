"""Statements about business processes: where one stands, who waits for it, and which to repair."""

import re
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

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
from holdfast.model.process import ProcessId, ProcessLook, ProcessStatus, RegisteredProcess, ToRepair

_FUNCTION = re.compile(r"[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}", re.ASCII)


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
