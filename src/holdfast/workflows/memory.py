"""What a run remembers: the facts that `read_steps` returns, and the memos that `record_steps` takes."""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from holdfast.errors import StepFailed
from holdfast.serialization.text import RawJson, load_json, report_json

StepKind = Literal["step", "transaction", "sleep", "signal", "children", "first", "since"]
DEFAULT_MAX_STEPS = 10_000
DEFAULT_MAX_MEMO_BYTES = 16 * 1024 * 1024
DEFAULT_MAX_RESULT_BYTES = 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FactRow(NamedTuple):
    """A row of `read_steps`. Documents are JSON text, times Unix seconds."""

    fact: str
    name: str | None
    number: int | None
    kind: str | None
    until: float | None
    signal_id: int | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class StepFact:
    """How a step ended. A sleep is recorded when it begins, and is over at `until`."""

    name: str
    kind: str
    until: float | None
    result: str | None
    error: Any


@dataclass(frozen=True, slots=True)
class FailedTry:
    """The last failed try of a step that has not ended."""

    number: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class Signal:
    signal_id: int
    payload: str


class ChildFact(NamedTuple):
    """A task that a step waits for, and that has not succeeded: open, or how it has ended."""

    number: int
    task_id: str
    status: str
    reason: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status == "open"


class Children:
    """The tasks that a step has started and waits for. Their results are one array, for there may be many."""

    def __init__(self, count: int, results: str | None, about: Mapping[str, Any]) -> None:
        self.count = count
        self.results = results
        self.open: int = about["open"]
        self.keys: Sequence[str] | None = about.get("keys")
        self.others = {number: ChildFact(number, *rest) for number, *rest in about.get("others") or ()}

    @classmethod
    def started(cls, task_ids: Sequence[str], keys: Sequence[str] | None) -> "Children":
        others = [[number, task_id, "open", None] for number, task_id in enumerate(task_ids, 1)]
        return cls(len(task_ids), None, {"open": len(others), "keys": keys, "others": others})


NO_CHILDREN = Children.started((), None)


class Memory:
    """The facts of one run, as of the time `clock` of the database."""

    def __init__(self, rows: Sequence[Sequence[Any]], clock: float) -> None:
        self.clock = clock
        self.steps: dict[str, StepFact] = {}
        self.tries: dict[str, FailedTry] = {}
        self.inbox: dict[str, deque[Signal]] = {}
        self.waits: dict[str, float] = {}
        self.children: dict[str, Children] = {}
        self.created_at = clock
        self.max_steps = DEFAULT_MAX_STEPS
        self.max_memo_bytes = DEFAULT_MAX_MEMO_BYTES
        self.max_result_bytes = DEFAULT_MAX_RESULT_BYTES
        self.changes: dict[str, float] = {}
        self.bytes = 0
        for row in rows:
            self._add(FactRow(*row))

    def _add(self, row: FactRow) -> None:
        name = row.name or ""
        match row.fact:
            case "step":
                fact = StepFact(name, row.kind or "step", row.until, row.result, load_json(row.error))
                self.steps[name] = fact
                self.bytes += len(row.result or "")
            case "try":
                self.tries[name] = FailedTry(row.number or 0, row.until or 0.0)
            case "signal":
                signal = Signal(row.signal_id or 0, row.result or "null")
                self.inbox.setdefault(name, deque()).append(signal)
            case "children":
                self.children[name] = Children(row.number or 0, row.result, load_json(row.error))
            case "wait":
                self.waits[name] = row.until or 0.0
            case "run":
                self._limit(load_json(row.result), row.until)

    def _limit(self, limits: Any, created_at: float | None) -> None:
        self.created_at = self.clock if created_at is None else created_at
        self.max_steps = limits["max_steps"]
        self.max_memo_bytes = limits["max_memo_bytes"]
        self.max_result_bytes = limits["max_result_bytes"]
        self.changes = {name: float(at) for name, at in (limits.get("changes") or {}).items()}


class Wait(NamedTuple):
    """What a suspended run waits for, at most until a time of the database."""

    name: str
    until: float
    signal: str | None = None
    policy: str | None = None
    """Of a join: `all` waits for every child of the step."""
    on_tasks: tuple[tuple[int, str], ...] = ()
    """Places and ids of the tasks of which it waits for the first."""

    def as_json(self) -> str:
        """One object, or one for each task."""
        if self.on_tasks:
            return ",".join(
                self._object(f"{self.name}/{n}", f',"policy":"first","number":{n},"on_task":"{task_id}"')
                for n, task_id in self.on_tasks
            )
        more = "" if self.signal is None else f',"signal":{json.dumps(self.signal)}'
        return self._object(self.name, more + ("" if self.policy is None else f',"policy":"{self.policy}"'))

    def _object(self, name: str, more: str) -> str:
        return f'{{"name":{json.dumps(name)},"until":"{to_timestamp(self.until)}"{more}}}'


def step_json(
    name: str,
    number: int,
    kind: StepKind,
    *,
    tries: int = 1,
    took: float = 0.0,
    result: str | None = None,
    error: Any = None,
    until: float | None = None,
    signal_id: int | None = None,
) -> str:
    """A step for `record_steps`. `result` is JSON."""
    written = (
        f'{{"name":{json.dumps(name)},"number":{number},"kind":"{kind}","tries":{min(tries, 32_000)},'
        f'"took_ms":{min(int(took * 1000), 2_000_000_000)}'
    )
    if result is not None:
        written += f',"result":{report_json(RawJson(result))}' if len(result) > 500 else f',"result":{result}'  # noqa: PLR2004 - too short to be nested too deeply
    if error is not None:
        written += f',"error":{json.dumps(error)}'
    if until is not None:
        written += f',"until":"{to_timestamp(until)}"'
    if signal_id is not None:
        written += f',"signal_id":{signal_id}'
    return written + "}"


def try_json(name: str, number: int, retry_at: float, error: Any) -> str:
    """A failed try of a step for `record_steps`."""
    return (
        f'{{"name":{json.dumps(name)},"try":{number},"retry_at":"{to_timestamp(retry_at)}",'
        f'"error":{json.dumps(error)}}}'
    )


def to_timestamp(seconds: float) -> str:
    """Format seconds since 1970 for PostgreSQL, exact to the microsecond."""
    return to_datetime(seconds).isoformat()


def to_datetime(seconds: float) -> datetime:
    return _EPOCH + timedelta(microseconds=round(seconds * 1e6))


def brief_error(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in ("kind", "message", "exception") if name in described}


def failure_of(fact: StepFact) -> Exception:
    error = fact.error if isinstance(fact.error, dict) else {"message": str(fact.error)}
    if fact.kind == "signal" and error.get("kind") == "timeout":
        return TimeoutError(f"no signal came for {fact.name} in time")
    if fact.kind in ("children", "first") and error.get("kind") == "timeout":
        return TimeoutError(f"the tasks of {fact.name} did not end in time")
    return failed_step(fact.name, error)


def failed_step(name: str, error: dict[str, Any]) -> StepFailed:
    return StepFailed(
        f"the step {name} failed: {error.get('message') or 'no message'}",
        step=name,
        kind=str(error.get("kind") or "handler_error"),
        exception=error.get("exception"),
    )
