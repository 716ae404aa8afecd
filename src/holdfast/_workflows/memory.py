"""What a run remembers: the facts that `read_steps` returns, and the memos that `record_steps` takes."""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, Protocol

from pydantic_core import from_json

from holdfast._serialization.codec import ResultCodec
from holdfast._serialization.text import RawJson, load_json, report_json, storage_problem
from holdfast._workflows.calls import Calls
from holdfast._workflows.children import NO_CHILDREN, Children
from holdfast._workflows.ends import Stopped
from holdfast._workflows.facts import FactRow, FailedTry, Signal, StepFact, StepKind
from holdfast._workflows.failures import brief_error, failure_of, shape_changed, unreadable
from holdfast.errors import ResultError, RunTooLong

DEFAULT_MAX_STEPS = 10_000
DEFAULT_MAX_MEMO_BYTES = 16 * 1024 * 1024
DEFAULT_MAX_RESULT_BYTES = 1024 * 1024
MAX_PLAIN_CHARACTERS = 4000
CERTAINLY_SHALLOW = 500
"""Characters: too few to be nested too deeply for a report."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Joined(Protocol):
    """A join, which makes a value of its tasks."""

    def value(self, name: str, fact: StepFact, children: Children) -> Any: ...


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

    def value_of(self, fact: StepFact, codec: ResultCodec, adapt: Callable[[Any], Any] | None = None) -> Any:
        """Return what a recorded step returned, or raise what it raised."""
        if fact.error is not None:
            raise failure_of(fact.name, fact.kind, fact.error)
        try:
            if adapt is not None:
                return adapt(None if fact.result is None else from_json(fact.result))
            return codec.load(fact.result)
        except ResultError as error:
            raise shape_changed(fact.name, fact.kind, error) from error

    def join_value(self, join: Joined, fact: StepFact) -> Any:
        """Return what a join that is over returned, or raise what it raised."""
        if fact.error is not None:
            raise failure_of(fact.name, fact.kind, fact.error)
        return join.value(fact.name, fact, self.children.get(fact.name, NO_CHILDREN))

    def join_until(self, name: str, otherwise: float) -> float:
        """When a join gives up: as the first attempt that waited for it said."""
        known = (until for of, until in self.waits.items() if of == name or of.startswith(f"{name}/"))
        return min(known, default=otherwise)

    def check_room(self, name: str, number: int) -> None:
        """Refuse a step before it runs: what cannot be recorded must not happen."""
        if number > self.max_steps:
            raise RunTooLong(
                f"the run has {self.max_steps} steps, and {name} would be one more",
                hint="End it with ctx.continue_as, or raise the setting max_steps.",
            )
        if self.bytes > self.max_memo_bytes:
            raise RunTooLong(
                f"the steps have results of {self.bytes} bytes, of {self.max_memo_bytes} allowed",
                hint="Return references, end it with ctx.continue_as, or raise the setting max_memo_bytes.",
            )

    def check_result(self, written: str) -> str:
        """Return it, or raise ResultError if the database would not store it."""
        problem = storage_problem(written, self.max_result_bytes)
        if problem is not None:
            raise ResultError(f"its result {problem}")
        return written

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


class RunTask(Protocol):
    """The task of a run."""

    type: str
    calls: Calls | None

    @property
    def stop(self) -> str | None: ...


class RunState:
    """What one attempt knows of its run, and what it has kept that is not on disk yet.

    The thread of a plain function shares it with that of the worker: `lock` is for what is kept.
    """

    def __init__(
        self, task: RunTask, read: Callable[[Sequence[Sequence[Any]], float], Memory] = Memory
    ) -> None:
        self.task = task
        self.lock = threading.RLock()
        self.memory: Memory | None = None
        self.suspended: list[Wait] | None = None
        self.is_over = False
        self.in_flight = 0
        self.awaited: Counter[str] = Counter()
        """How many calls wait for the signals of each name."""
        self.steps: list[StepMemo] = []
        self.tries: list[FailedStep] = []
        self.failures: list[tuple[Any, StepMemo]] = []
        """With the asyncio task that has called each."""
        self.broken: BaseException | None = None
        """Why the run cannot go on."""
        self._read = read
        self._ahead = 0.0
        self._all_lazy = True
        self._sent_lazily = True

    def now(self) -> float:
        """The time of the database, estimated from its last answer."""
        return time.monotonic() + self._ahead

    @property
    def loaded(self) -> Memory:
        """The memory, once it was read."""
        if self.memory is None:
            raise RuntimeError("the memory of the run was not read")
        return self.memory

    @property
    def signals(self) -> list[str]:
        """The names that calls wait for now, whose payloads are to be read, too."""
        return [name for name, waits in self.awaited.items() if waits]

    def skip_to(self, until: float) -> None:
        """Go on as if this time had come: a test does not wait."""
        self._ahead = max(self._ahead, until - time.monotonic())

    def check_unbroken(self) -> None:
        """Raise why the run cannot go on."""
        if self.broken is not None:
            raise self.broken

    def check(self) -> None:
        """Raise it before something new begins, also if the task was stopped meanwhile."""
        if self.broken is not None:
            raise self.broken
        if self.task.stop is not None:
            raise Stopped(self.task.stop)

    def remember(self, rows: Sequence[Sequence[Any]] | None, clock: float) -> None:
        """Take the answer to a read."""
        self._ahead = clock - time.monotonic()
        if rows is None or any(row[0] == "lost" for row in rows):
            self.broken = Stopped(self.task.stop or "lost")
        elif rows and rows[0][0] == "unreadable":
            row = FactRow(*rows[0])
            self.broken = unreadable(row.kind, row.error)
        else:
            try:
                self._take_over(self._read(rows, clock))
            except Exception as error:  # noqa: BLE001 - of this run alone; the caller is its worker
                self.broken = error

    def _take_over(self, read: Memory) -> None:
        if self.memory is None:
            self.memory = read
        else:  # a later look: only signals and ends of children can have come from outside
            self.memory.look_again(read)

    def keep(self, memo: StepMemo, *, lazy: bool = False) -> None:
        with self.lock:
            self.steps.append(memo)
            self._all_lazy = self._all_lazy and lazy

    def keep_try(self, failed: FailedStep) -> None:
        with self.lock:
            self.tries.append(failed)
            self._all_lazy = False

    def keep_failure(self, memo: StepMemo, user: Any) -> None:
        """Keep it until the handler has caught the error: after one that ends the attempt, try again."""
        with self.lock:
            self.failures.append((user, memo))

    def has_to_send(self, *, lazy: bool) -> bool:
        """Whether a step that begins has others before it which have to be on their way."""
        return bool(self.steps) and not (lazy and self._all_lazy)

    def has_to_flush(self, *, lazy: bool) -> bool:
        """Whether a step that begins has others before it which have to be on disk; lazy ones wait less."""
        if self.in_flight:
            return not (lazy and self._sent_lazily)
        return bool(self.steps or self.tries or self.failures) and not (lazy and self._all_lazy)

    def take(self, caught: tuple[Any, Any] | None) -> tuple[list[StepMemo], list[FailedStep], bool] | None:
        """Take what is kept, to send it, and whether all of it is lazy.

        Failures only if the handler has caught them, as it goes on.
        `caught` is the asyncio task that goes on, and the handler's own: that one has caught them all.
        """
        steps, tries, lazy = self.steps, self.tries, self._all_lazy
        if caught is not None and self.failures:
            user, root = caught
            failures = [one for one in self.failures if user is root or one[0] is user]
            self.failures = [one for one in self.failures if one not in failures]
            steps, lazy = [*steps, *(memo for _, memo in failures)], lazy and not failures
        if not steps and not tries:
            return None
        self.steps, self.tries, self._all_lazy = [], [], True
        self._sent_lazily = lazy and (self._sent_lazily or not self.in_flight)
        self.in_flight += 1
        return steps, tries, lazy

    def recorded(self, verdict: str, error: BaseException | None) -> None:
        """Take the answer to what was sent."""
        self.in_flight -= 1
        if verdict not in ("recorded", "already"):
            self.broken = error if error is not None else Stopped(self.task.stop or verdict)

    def report(self, status: str) -> RunReport:
        """What the report about this attempt carries.

        A failed step of a failed attempt is not remembered: the next attempt tries it again.
        """
        steps = self.steps if status == "retry" else [*self.steps, *(memo for _, memo in self.failures)]
        return RunReport(steps, self.tries, self.suspended or () if status == "suspend" else ())


def to_timestamp(seconds: float) -> str:
    """Format seconds since 1970 for PostgreSQL, exact to the microsecond."""
    return to_datetime(seconds).isoformat()


def to_datetime(seconds: float) -> datetime:
    return _EPOCH + timedelta(microseconds=round(seconds * 1e6))
