"""What a run remembers: the facts that `read_steps` returns, and the memos that `record_steps` takes."""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, NamedTuple

from holdfast.errors import (
    HoldfastError,
    ResultError,
    RunTooLong,
    StepFailed,
    StepShapeChanged,
    TooLarge,
    UnexpectedDatabaseError,
)
from holdfast.serialization.text import RawJson, load_json, report_json

StepKind = Literal["step", "transaction", "sleep", "signal", "children", "first", "since"]
DEFAULT_MAX_STEPS = 10_000
DEFAULT_MAX_MEMO_BYTES = 16 * 1024 * 1024
DEFAULT_MAX_RESULT_BYTES = 1024 * 1024
MAX_PLAIN_CHARACTERS = 4000
CERTAINLY_SHALLOW = 500
"""Characters: too few to be nested too deeply for a report."""
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
    """One that no wait has taken."""

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
        self._results = results
        self._too_large: int | None = about.get("too_large")
        self.is_partial = results is None and bool(about.get("paged"))
        """Whether there are results that were not read."""
        self.open: int = about["open"]
        self.keys: Sequence[str] | None = about.get("keys")
        self.others = {number: ChildFact(number, *rest) for number, *rest in about.get("others") or ()}

    @property
    def bytes(self) -> int:
        return len(self._results or "")

    def results(self, name: str) -> str:
        """Those of the tasks that succeeded, as a JSON array. `name` is that of the step."""
        if self._too_large is not None:
            whose = f"the tasks of {name}" if name else "the tasks before this one"
            raise RunTooLong(
                f"the results of {whose} are too large: a run reads {self._too_large} bytes of them",
                hint="Let the tasks return references, join fewer, or raise the setting max_memo_bytes.",
            )
        return self._results or "[]"

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
        self.unread: set[str] = set()
        """Names of signals that have come, and of which not all payloads were read."""
        self._taken: set[int] = set()
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
            case "unread":
                self.unread.add(name)
            case "children":
                self.children[name] = Children(row.number or 0, row.result, load_json(row.error))
                self.bytes += self.children[name].bytes
            case "wait":
                self.waits[name] = row.until or 0.0
            case "run":
                self._limit(load_json(row.result), row.until)

    def look_again(self, later: "Memory") -> None:
        """Take over what can have come from outside. A signal that was taken may not be on disk yet."""
        self.bytes += sum(one.bytes for one in later.children.values())
        self.bytes -= sum(one.bytes for one in self.children.values())
        self.children = later.children
        self.unread = later.unread
        for name, signals in later.inbox.items():
            self.inbox[name] = deque(signal for signal in signals if signal.signal_id not in self._taken)

    def has_unread(self, name: str) -> bool:
        """Whether signals with this name have come whose payloads were not read."""
        return not self.inbox.get(name) and name in self.unread

    def take_signal(self, name: str) -> Signal | None:
        """The oldest one with this name, for one wait only."""
        signals = self.inbox.get(name)
        if not signals:
            return None
        taken = signals.popleft()
        self._taken.add(taken.signal_id)
        self.bytes += len(taken.payload)
        return taken

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


class StepMemo(NamedTuple):
    """How a step ended, to be recorded. `result` is JSON."""

    name: str
    number: int
    kind: StepKind
    tries: int = 1
    took: float = 0.0
    result: str | None = None
    error: Any = None
    until: float | None = None
    signal_id: int | None = None
    arguments: str | None = None
    """JSON, of at most 2 KiB."""

    @property
    def took_ms(self) -> int:
        return min(int(self.took * 1000), 2_000_000_000)

    @property
    def is_plain(self) -> bool:
        """Whether `record_step` takes it, if it comes alone."""
        return (
            self.kind == "step"
            and self.tries == 1
            and self.result is not None
            and len(self.result) <= MAX_PLAIN_CHARACTERS
        )

    def as_json(self) -> str:
        """For `record_steps`."""
        result = self.result
        written = (
            f'{{"name":{encode_basestring_ascii(self.name)},"number":{self.number},"kind":"{self.kind}",'
            f'"tries":{min(self.tries, 32_000)},"took_ms":{self.took_ms}'
        )
        if result is not None:
            written += (
                f',"result":{result if len(result) <= CERTAINLY_SHALLOW else report_json(RawJson(result))}'
            )
        if self.error is not None:
            written += f',"error":{json.dumps(self.error)}'
        if self.until is not None:
            written += f',"until":"{to_timestamp(self.until)}"'
        if self.signal_id is not None:
            written += f',"signal_id":{self.signal_id}'
        if self.arguments is not None:
            written += f',"arguments":{self.arguments}'
        return written + "}"


class FailedStep(NamedTuple):
    """A try of a step that failed just now."""

    name: str
    function: str
    number: int
    tries: int
    """How many the step has in all."""
    error: dict[str, Any]
    retry_at: float | None
    """None if it was the last one."""

    def brief(self) -> dict[str, Any]:
        """For the worker of a child process, without the traceback."""
        return self._asdict() | {"error": brief_error(self.error)}

    def as_json(self) -> str:
        """For `record_steps`, of a try that is not the last one."""
        return (
            f'{{"name":{json.dumps(self.name)},"try":{self.number},"tries":{self.tries},'
            f'"retry_at":"{to_timestamp(self.retry_at or 0.0)}","error":{json.dumps(self.error)}}}'
        )


def memo_json(steps: Iterable[StepMemo], tries: Sequence[FailedStep] = ()) -> str:
    """What a run records, as the inside of a JSON object."""
    written = f'"steps":[{",".join([step.as_json() for step in steps])}]'
    return f'{written},"tries":[{",".join([one.as_json() for one in tries])}]' if tries else written


class RunReport(NamedTuple):
    """What the report about an attempt carries: steps, failed tries, and what a suspended run waits for."""

    steps: Sequence[StepMemo] = ()
    tries: Sequence[FailedStep] = ()
    waits: Sequence[Wait] = ()

    def as_json(self) -> str:
        """The inside of a JSON object, for `finish`."""
        written = memo_json(self.steps, self.tries)
        if self.waits:
            run_at = min(wait.until for wait in self.waits)
            waits = ",".join(wait.as_json() for wait in self.waits)
            written += f',"run_at":"{to_timestamp(run_at)}","waits":[{waits}]'
        return written


def to_timestamp(seconds: float) -> str:
    """Format seconds since 1970 for PostgreSQL, exact to the microsecond."""
    return to_datetime(seconds).isoformat()


def to_datetime(seconds: float) -> datetime:
    return _EPOCH + timedelta(microseconds=round(seconds * 1e6))


def unreadable_row(error: HoldfastError) -> FactRow:
    """The only row of a run that the database refuses to read."""
    kind = "too_large" if isinstance(error, TooLarge) else "refused"
    return FactRow("unreadable", None, None, kind, None, None, None, str(error))


def unreadable(row: FactRow) -> HoldfastError:
    """The error with which such a run fails."""
    message = f"what the run remembers cannot be read: {row.error}"
    if row.kind == "too_large":
        return RunTooLong(message, hint="Return references from its steps and tasks, and begin it again.")
    return UnexpectedDatabaseError(message)


def brief_error(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in ("kind", "message", "exception") if name in described}


def failure_of(fact: StepFact) -> Exception:
    error = fact.error if isinstance(fact.error, dict) else {"message": str(fact.error)}
    if fact.kind == "signal" and error.get("kind") == "timeout":
        return TimeoutError(f"no signal came for {fact.name} in time")
    if fact.kind in ("children", "first") and error.get("kind") == "timeout":
        return TimeoutError(f"the tasks of {fact.name} did not end in time")
    return failed_step(fact.name, error)


def shape_changed(name: str, kind: str, error: ResultError) -> StepShapeChanged:
    """What was recorded of a step does not fit the type that the code names."""
    if kind == "signal":
        message = f"the signal that {name} has taken does not fit: {error.message}"
        return StepShapeChanged(
            message, hint="Catch StepShapeChanged and wait again, or deploy code that reads it."
        )
    message = f"the step {name} was recorded with a result that does not fit: {error.message}"
    return StepShapeChanged(message, hint="Deploy code that reads it, pass adapt=, or rename the step.")


def failed_step(name: str, error: dict[str, Any]) -> StepFailed:
    return StepFailed(
        f"the step {name} failed: {error.get('message') or 'no message'}",
        step=name,
        kind=str(error.get("kind") or "handler_error"),
        exception=error.get("exception"),
        arguments=error.get("arguments"),
    )
