"""What a worker sends about a task that it holds, from Python values."""

from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast._engine.leases import Claimed, ResultStatus, held_json, result_json
from holdfast._serialization.text import report_json


def holding(task_id: UUID | str, token: int, started_at: datetime | None = None, progress: Any = None) -> str:
    """For a heartbeat or a release."""
    return held_json(task_id, token, started_at=_time(started_at), progress=_json(progress))


def ended(
    task_id: UUID | str,
    token: int,
    status: ResultStatus,
    result: Any = None,
    *,
    error: Any = None,
    run_at: datetime | None = None,
) -> str:
    """For a finish."""
    return result_json(task_id, token, status, result=_json(result), error=_json(error), run_at=_time(run_at))


def claimed(task_id: str, type_: str = "work.x", *, attempt: int = 1) -> Claimed:
    """A claim that no database has made."""
    return Claimed(task_id, 1, type_, "{}", attempt, 3, "python", None, None, 30.0, 0.0, 1, "work", None, 0.0)


def _json(value: Any) -> str | None:
    return None if value is None else report_json(value)


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
