"""The state of one run during one attempt, whichever way its handler is called."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any, Protocol
from uuid import UUID

from pydantic_core import from_json

from holdfast.context import Stopped
from holdfast.errors import InvalidStep, ResultError, RunTooLong, StepFailed
from holdfast.retry import DEFAULT_RETRY, RetryPolicy, next_delay
from holdfast.serialization.codec import ResultCodec
from holdfast.serialization.failure import describe, error_of
from holdfast.serialization.preview import preview
from holdfast.serialization.text import load_json, storage_problem
from holdfast.workflows.callbacks import open_callback
from holdfast.workflows.calls import Calls, calls_of
from holdfast.workflows.changes import MAX_CHANGE
from holdfast.workflows.joins import Join, results_before
from holdfast.workflows.journal import Host, Journal
from holdfast.workflows.memory import (
    NO_CHILDREN,
    Children,
    FactRow,
    FailedStep,
    FailedTry,
    Memory,
    RunReport,
    StepFact,
    StepKind,
    StepMemo,
    Wait,
    brief_error,
    failed_step,
    failure_of,
    memo_json,
    shape_changed,
    to_datetime,
    unreadable,
)
from holdfast.workflows.names import StepNames
from holdfast.workflows.step import Step, check_not_inside, describe_function

LINGER_SECONDS = 0.05
"""A wait that is over sooner stays in memory."""
LONGEST_DELAY_IN_MEMORY = 2.0
"""Of a step that is tried again; a longer delay suspends the run."""
DEFAULT_TIMEOUT = 30 * 86400.0
LONGEST_WAIT = 90 * 365 * 86400.0


class Suspended(BaseException):
    """Ends the attempt of a plain function whose run waits. Do not catch it.

    Not an Exception, so that `except Exception` in a handler does not catch it by mistake.
    """


class RunTask(Protocol):
    """The task of a run."""

    type: str
    calls: Calls | None

    @property
    def stop(self) -> str | None: ...


class Run:
    """Names, memory and memos of a run. The subclasses know how to wait."""

    def __init__(self, task: RunTask, journal: Journal, host: Host) -> None:
        self._task = task
        self._journal = journal
        self._host = host
        self.calls = calls_of(task)
        self._names = StepNames()
        self._numbers = 0
        self._memory: Memory | None = None
        self._heard = 0.0
        self._steps: list[StepMemo] = []
        self._tries: list[FailedStep] = []
        self._failures: list[tuple[Any, StepMemo]] = []
        self._all_lazy = True
        self._sent_lazily = True
        self._in_flight = 0
        self._broken: BaseException | None = None
        self._is_over = False
        self._records_arguments: bool | None = None
        self.suspended: list[Wait] | None = None

    @property
    def waits_for_tasks(self) -> bool:
        return any(wait.policy or wait.on_tasks for wait in self.suspended or ())

    @property
    def waits_for_signal(self) -> bool:
        """Whether it waits for a signal or a task: then the worker looks again after the commit."""
        return self.waits_for_tasks or any(wait.signal for wait in self.suspended or ())

    def report(self, status: str) -> RunReport:
        """What the report about this attempt carries.

        A failed step of a failed attempt is not remembered: the next attempt tries it again.
        """
        steps = self._steps if status == "retry" else [*self._steps, *(memo for _, memo in self._failures)]
        return RunReport(steps, self._tries, self.suspended or () if status == "suspend" else ())

    def _user(self) -> tuple[Any, Any]:
        """The asyncio task that calls, and that of the handler."""
        return None, None

    def _begin(self, base: str, key: object = None) -> tuple[str, int]:
        if self.suspended is not None or self._is_over:
            self._raise_suspended()
        self.calls.check()
        check_not_inside(base)
        user, root = self._user()
        name = self._names.give(base, key, user, root)
        self._numbers += 1
        return name, self._numbers

    def _raise_suspended(self) -> None:
        raise Suspended

    def _plan(
        self,
        function: Callable[..., Any],
        *,
        key: object,
        retries: int,
        retry: RetryPolicy | None,
        timeout: float | timedelta | None,
        lazy: bool,
    ) -> Step:
        described = describe_function(function)
        if retries.__class__ is not int or retries < 0:
            raise InvalidStep(f"retries of the step {described.name} has to be 0 or more, not {retries!r}")
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise InvalidStep(f"retry of the step {described.name} takes a policy, not {retry!r}")
        limit = None if timeout is None else seconds_of("timeout", timeout)
        name, number = self._begin(described.name, key)
        policy = DEFAULT_RETRY if retry is None else retry
        return Step(described, name, number, retries=retries, retry=policy, timeout=limit, lazy=lazy)

    def _loaded(self, rows: Sequence[Sequence[Any]] | None, clock: float) -> None:
        """The answer to a read."""
        self._heard = clock - time.monotonic()
        if rows is None or any(row[0] == "lost" for row in rows):
            self._broken = Stopped(self._task.stop or "lost")
        elif rows and rows[0][0] == "unreadable":
            self._broken = unreadable(FactRow(*rows[0]))
        else:
            try:
                self._remember(Memory(rows, clock))
            except Exception as error:  # noqa: BLE001 - of this run alone; the caller is its worker
                self._broken = error

    def _remember(self, read: Memory) -> None:
        if self._memory is None:
            self._memory = read
        else:  # a later look: only signals and ends of children can have come from outside
            self._memory.look_again(read)

    def now(self) -> float:
        """The time of the database, estimated from its last answer."""
        return time.monotonic() + self._heard

    def _until_of(self, seconds: float, moment: float | None) -> float:
        """The end of a sleep of some seconds, or until a moment."""
        now = self.now()
        if moment is not None and moment > now + LONGEST_WAIT:
            raise InvalidStep(f"ctx.sleep_until waits at most 90 years, not until {to_datetime(moment)}")
        return now + seconds if moment is None else moment

    def recall(self, name: str) -> StepFact | None:
        assert self._memory is not None  # noqa: S101 - it was loaded
        return self._memory.steps.get(name)

    def _failed_before(self, step: Step) -> FailedTry | None:
        """Go on counting where an earlier attempt stopped. Returns its last try, if it failed."""
        assert self._memory is not None  # noqa: S101 - it was loaded
        failed = self._memory.tries.get(step.name)
        if failed is not None:
            step.tries = failed.number
        return failed

    def check_room(self, name: str, number: int) -> None:
        """Before the step runs: what cannot be recorded must not happen."""
        memory = self._memory
        assert memory is not None  # noqa: S101 - it was loaded
        if self._broken is not None:
            raise self._broken
        if self._task.stop is not None:
            raise Stopped(self._task.stop)
        if number > memory.max_steps:
            raise RunTooLong(
                f"the run has {memory.max_steps} steps, and {name} would be one more",
                hint="End it with ctx.continue_as, or raise the setting max_steps.",
            )
        if memory.bytes > memory.max_memo_bytes:
            raise RunTooLong(
                f"the steps have results of {memory.bytes} bytes, of {memory.max_memo_bytes} allowed",
                hint="Return references, end it with ctx.continue_as, or raise the setting max_memo_bytes.",
            )

    def value_of(self, fact: StepFact, codec: ResultCodec, adapt: Callable[[Any], Any] | None = None) -> Any:
        """What a recorded step returned, or raise what it raised."""
        if fact.error is not None:
            raise failure_of(fact)
        try:
            if adapt is not None:
                return adapt(None if fact.result is None else from_json(fact.result))
            return codec.load(fact.result)
        except ResultError as error:
            raise shape_changed(fact.name, fact.kind, error) from error

    def _succeeded(self, step: Step, value: Any, began: float) -> Any:
        """Keep the result, and return it as a resumed run will see it."""
        codec = step.function.codec
        memory = self._memory
        assert memory is not None  # noqa: S101 - it was loaded
        try:
            written, read = codec.encode_both_ways(value)
            self.check_result(written)
        except ResultError as error:
            raise self._gave_up(step, error, began) from error
        memory.bytes += len(written)
        took = time.monotonic() - began
        memo = StepMemo(step.name, step.number, "step", step.tries, took, written, arguments=step.arguments)
        self._keep(memo, lazy=step.lazy)
        return read

    def _failed(self, step: Step, error: Exception) -> float | None:
        """Keep the failed try, and return when to try again. None if that was the last one."""
        if step.tries > step.retries:
            return None
        delay = next_delay(step.policy, step.tries, error)
        if delay is None:
            return None
        retry_at = self.now() + delay
        self._keep_try(self._tell(step, describe(error) | shown_arguments(step), retry_at))
        return retry_at

    def _gave_up(self, step: Step, error: Exception, began: float) -> StepFailed:
        """Keep the failure until the handler has caught it: after one that ends the attempt, try again."""
        described = describe(error)
        self._tell(step, described, None)
        took = time.monotonic() - began
        shown = brief_error(described)
        memo = StepMemo(step.name, step.number, "step", tries=step.tries, took=took, error=shown)
        self._keep_failure(memo._replace(arguments=step.arguments))
        return failed_step(step.name, described | shown_arguments(step))

    def _tell(self, step: Step, error: dict[str, Any], retry_at: float | None) -> FailedStep:
        """Tell the worker at once, for its log and metrics."""
        name, function = step.name, step.function.name
        failed = FailedStep(name, function, step.tries, step.retries + 1, error, retry_at)
        self._journal.step_failed(failed)
        return failed

    def _keep(self, memo: StepMemo, *, lazy: bool = False) -> None:
        self._steps.append(memo)
        self._all_lazy = self._all_lazy and lazy

    def _keep_try(self, failed: FailedStep) -> None:
        self._tries.append(failed)
        self._all_lazy = False

    def _keep_failure(self, memo: StepMemo) -> None:
        self._failures.append((self._user()[0], memo))

    def _keep_simple(
        self, name: str, number: int, kind: StepKind, result: str | None = None, **more: Any
    ) -> None:
        self._keep(StepMemo(name, number, kind, result=result, **more))

    def transaction_memo(
        self, name: str, number: int, began: float, result: str | None, arguments: str | None
    ) -> str:
        """The inside of a JSON object, to be recorded in the transaction itself."""
        took = time.monotonic() - began
        memo = StepMemo(name, number, "transaction", took=took, result=result, arguments=arguments)
        return memo_json([memo])

    def check_result(self, written: str) -> str:
        """Return it, or raise ResultError if the database would not store it."""
        assert self._memory is not None  # noqa: S101 - it was loaded
        problem = storage_problem(written, self._memory.max_result_bytes)
        if problem is not None:
            raise ResultError(f"its result {problem}")
        return written

    def preview(self, function: Callable[..., Any], args: Sequence[Any], given: int = 0) -> str | None:
        """The arguments of a step as JSON, unless the settings say that they are not recorded."""
        if not args and function.__class__ is FunctionType:
            return None
        if self._records_arguments is None:
            try:
                self._records_arguments = bool(self._host.settings().record_step_arguments)
            except Exception:  # noqa: BLE001 - without readable settings, nothing shows that they may be
                self._records_arguments = False
        return preview(function, args, given) if self._records_arguments else None

    def open_transaction(self) -> Any:
        return self._host.open_transaction()

    def settings(self) -> Any:
        """Those of the worker or the application."""
        return self._host.settings()

    def callback(self, task_id: UUID, name: str, **options: Any) -> Any:
        return open_callback(self, task_id, name, **options)  # type: ignore[arg-type] # the subclasses have steps

    def since(self, change: str) -> bool:
        """Whether the run was enqueued after this change was first seen."""
        self.calls.check()
        memory = self._memory_now()
        name = f"since {change}"
        fact = memory.steps.get(name)
        if fact is None:
            first_seen = first_seen_of(change, memory)
            answer = memory.created_at >= first_seen
            self._numbers += 1
            self.check_room(name, self._numbers)
            fact = StepFact(name, "since", None, "true" if answer else "false", None)
            memory.steps[name] = fact
            self._keep_simple(name, self._numbers, "since", fact.result)
        return fact.result == "true"

    def _memory_now(self) -> Memory:
        """What the run remembers, without waiting for it."""
        if self._memory is None:
            raise InvalidStep(
                "ctx.since is asked in another function before the first step of the run",
                hint="Ask it in the handler itself, or after the first step.",
            )
        return self._memory

    def _took(self, since: float) -> float:
        """How long the run waited, in this and in earlier attempts, since a time of the database."""
        return max(0.0, self.now() - since)

    def _take_signal(self, name: str, number: int, signal: str, since: float) -> StepFact | None:
        memory = self._memory
        assert memory is not None  # noqa: S101 - it was loaded
        taken = memory.take_signal(signal)
        if taken is None:
            return None
        took = self._took(since)
        self._keep_simple(name, number, "signal", taken.payload, signal_id=taken.signal_id, took=took)
        return StepFact(name, "signal", None, taken.payload, None)

    def _timed_out(self, name: str, number: int, since: float) -> TimeoutError:
        error = error_of("timeout", "no signal came in time")
        self._keep_simple(name, number, "signal", error=error, took=self._took(since))
        return TimeoutError(f"no signal came for {name} in time")

    def _children_of(self, name: str) -> Children | None:
        memory = self._memory
        assert memory is not None  # noqa: S101 - it was loaded
        return memory.children.get(name)

    def _results_before(self, kinds: Sequence[Any]) -> list[Any]:
        """Of the tasks that `after=` named, which are the children of no step."""
        return results_before(self._children_of("") or NO_CHILDREN, kinds)

    def _started(self, name: str, join: Join, task_ids: Sequence[str]) -> Children:
        memory = self._memory
        assert memory is not None  # noqa: S101 - it was loaded
        memory.children[name] = Children.started(task_ids, join.keys)
        return memory.children[name]

    def _join_until(self, name: str, seconds: float) -> float:
        """When the join gives up: as the first attempt that waited for it said."""
        memory = self._memory
        assert memory is not None  # noqa: S101 - it was loaded
        known = [until for of, until in memory.waits.items() if of == name or of.startswith(f"{name}/")]
        return min(known, default=self.now() + seconds)

    def _joined(self, name: str, number: int, join: Join, children: Children, since: float) -> Any:
        """Record the end of a join, and return its value."""
        result = join.memo(children)
        self._keep_simple(name, number, join.kind, result, took=self._took(since))
        return join.value(name, StepFact(name, join.kind, None, result, None), children)

    def _join_timed_out(self, name: str, number: int, join: Join, since: float) -> TimeoutError:
        error = error_of("timeout", "the tasks did not end in time")
        self._keep_simple(name, number, join.kind, error=error, took=self._took(since))
        return TimeoutError(f"the tasks of {name} did not end in time")

    def _join_value(self, name: str, join: Join, fact: StepFact) -> Any:
        """What a join that is over returned, or raise what it raised."""
        if fact.error is not None:
            raise failure_of(fact)
        return join.value(name, fact, self._children_of(name) or NO_CHILDREN)

    def _send(self, *, caught: bool) -> None:
        """Hand what is kept to the journal; failures only if the handler has `caught` them, as it goes on.

        It has caught those of the asyncio task that calls; the handler's own task has caught them all.
        """
        steps, tries, lazy = self._steps, self._tries, self._all_lazy
        if caught and self._failures:
            user, root = self._user()
            failures = [one for one in self._failures if user is root or one[0] is user]
            self._failures = [one for one in self._failures if one not in failures]
            steps, lazy = [*steps, *(memo for _, memo in failures)], lazy and not failures
        if not steps and not tries:
            return
        self._steps, self._tries, self._all_lazy = [], [], True
        self._sent_lazily = lazy and (self._sent_lazily or not self._in_flight)
        self._in_flight += 1
        if len(steps) == 1 and not tries and not lazy and steps[0].is_plain:
            self._journal.record_one(steps[0], self._recorded)
        else:
            self._journal.record(steps, tries, self._recorded, lazy=lazy)

    def _recorded(self, verdict: str, error: BaseException | None) -> None:
        self._in_flight -= 1
        if verdict not in ("recorded", "already"):
            self._broken = error if error is not None else Stopped(self._task.stop or verdict)


def shown_arguments(step: Step) -> dict[str, Any]:
    """A member of a stored error."""
    return {} if step.arguments is None else {"arguments": load_json(step.arguments)}


def moment_of(what: str, given: object) -> float:
    """A time with a time zone, as seconds since 1970."""
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidStep(
            f"{what} takes a datetime with a time zone, not {given!r}",
            hint="Pass tzinfo=ZoneInfo('Europe/Berlin') or UTC to it, or add a timedelta to ctx.now().",
        )
    return given.timestamp()


def first_seen_of(change: object, memory: Memory) -> float:
    """When a worker with this change first started. It announces the names that it finds in the code."""
    if not isinstance(change, str) or not 1 <= len(change) <= MAX_CHANGE:
        raise InvalidStep(f"ctx.since takes text of 1 to {MAX_CHANGE} characters, not {change!r:.100}")
    if change not in memory.changes:
        raise InvalidStep(
            f"ctx.since({change!r}): no worker has found this name in the code, so it has no beginning",
            hint="Pass text, or a constant of a module or class, in the handler or a function that gets ctx.",
        )
    return memory.changes[change]


def seconds_of(what: str, given: object) -> float:
    """A duration in seconds or as a timedelta."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_WAIT:
        raise InvalidStep(f"{what} takes seconds or a timedelta of at most 90 years, not {given!r}")
    return float(seconds)
