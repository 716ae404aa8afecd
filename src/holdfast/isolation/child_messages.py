"""What a child process may tell its worker. A handler can write any bytes there, so each message is checked.

A message is its kind, its fields as JSON, and then texts, which the fields announce in their order: results
of steps, payloads. The worker knows which task it has given to the process; no message names a task.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from holdfast._engine.steps import StartingStep
from holdfast._serialization.preview import MAX_PREVIEW_BYTES
from holdfast._serialization.text import report_json, storable_json, storage_problem
from holdfast._worker.report import AttemptEnd, Status
from holdfast._workflows.facts import StepKind
from holdfast._workflows.memory import FailedStep, RunReport, StepMemo, Wait
from holdfast._workflows.step import MAX_NAME_BYTES

FRAME = struct.Struct(">cII")
"""The kind, the bytes of the fields, and the bytes of the texts."""
TEXT = struct.Struct(">I")
MAX_TEXT_BYTES = 8 * 1024 * 1024
LARGE_BYTES = 64 * 1024
MAX_SHOWN = 200
"""Characters of each name of a failed try."""
MAX_SIGNALS = 1000
"""For which one run in a child process waits at the same time."""
READY, REFUSED, PROGRESS, FAILED_TRY, READ, RECORD, START, ANSWER = (
    b"R",
    b"X",
    b"P",
    b"F",
    b"?",
    b"W",
    b"S",
    b"A",
)
MAX_FIELD_BYTES = {
    READY: 16,
    REFUSED: 256 * 1024,
    PROGRESS: 8 * 1024,
    FAILED_TRY: 64 * 1024,
    READ: 2 * 1024 * 1024,  # even if each character of each signal is escaped
    RECORD: 256 * 1024,
    START: 8 * 1024,
    ANSWER: 2 * 1024 * 1024,  # as many waits, or the tasks of a race
}
_WITH_TEXTS = (RECORD, START, ANSWER)


NOTHING = RunReport()


class MalformedMessage(Exception):
    """What a child process wrote is not a message, or is too long for one."""


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """How long a message may be. `result` is the setting max_result_bytes of the database."""

    result: int

    @property
    def texts(self) -> int:
        return max(MAX_TEXT_BYTES, self.result + TEXT.size)

    def check(self, kind: bytes, fields: int, texts: int) -> None:
        if kind not in MAX_FIELD_BYTES:
            raise MalformedMessage(f"a message begins with {kind!r}, which is no kind of message")
        most = MAX_FIELD_BYTES[kind], self.texts if kind in _WITH_TEXTS else 0
        if fields > most[0] or texts > most[1]:
            raise MalformedMessage(
                f"a message of the kind {kind.decode()} has {fields} + {texts} bytes,"
                f" and at most {most[0]} + {most[1]} are allowed"
            )


@dataclass(frozen=True, slots=True)
class Told:
    """A message that was checked. Only what belongs to its kind is set; results and payloads are JSON."""

    kind: bytes
    run: int | None = None
    ask: int = 0
    """The number of a question."""
    why: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    failed: FailedStep | None = None
    signals: Sequence[str] = ()
    report: RunReport = NOTHING
    lazy: bool = False
    step: StartingStep | None = None
    tasks: str = ""
    payloads: list[str] | None = None
    end: AttemptEnd | None = None
    left: bool = False
    memory: int = 0


def _document(text: str) -> str:
    """Raises ValueError if it is not one document."""
    from_json(text, allow_inf_nan=False)
    return storable_json(text)


Whole = Annotated[int, Field(ge=0, lt=2**31)]
Long = Annotated[int, Field(ge=0, lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=10**10)]
Moment = Annotated[float, Field(ge=0, le=250_000_000_000)]  # year 9892: a datetime ends with the year 9999
SignalName = Annotated[str, Field(max_length=MAX_NAME_BYTES)]
Preview = Annotated[str, Field(max_length=MAX_PREVIEW_BYTES), AfterValidator(_document)]
TaskId = Annotated[str, AfterValidator(lambda text: str(UUID(text)))]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Step(_Fields):
    name: str
    number: Whole
    kind: StepKind
    tries: Whole
    took: Seconds
    result: bool
    error: JsonValue
    until: Moment | None
    signal_id: Long | None
    arguments: Preview | None


class _Failed(_Fields):
    name: str
    function: str
    number: Whole
    tries: Whole
    error: dict[str, JsonValue]
    retry_at: Moment | None


class _Wait(_Fields):
    name: str
    until: Moment
    signal: str | None
    policy: Literal["all"] | None
    on_tasks: list[tuple[Whole, TaskId]]


class _Report(_Fields):
    steps: list[_Step]
    tries: list[_Failed]
    waits: list[_Wait]


class _Refused(_Fields):
    why: dict[str, JsonValue]


class _Progress(_Fields):
    run: int
    done: int | Finite | None
    total: int | Finite | None
    note: str | None


class _FailedTry(_Fields):
    run: int
    failed: _Failed


class _Question(_Fields):
    run: int
    ask: Annotated[int, Field(gt=0)]


class _Read(_Question):
    signals: Annotated[list[SignalName], Field(max_length=MAX_SIGNALS)]


class _Record(_Question):
    lazy: bool
    report: _Report


class _Start(_Question):
    name: str
    number: Whole
    awaited: bool
    leave: bool
    batch: bool
    keys: bool
    payloads: bool


class _Answer(_Fields):
    run: int
    left: bool
    memory: Long
    status: Status | None
    result: bool
    payload: bool
    error: dict[str, JsonValue] | None
    delay: Seconds | None
    report: _Report | None


def encode(kind: bytes, fields: dict[str, Any], texts: Sequence[str], limits: MessageLimits) -> bytes:
    """In the child process. Raises MalformedMessage if the worker would not take the message."""
    head = storable_json(json.dumps(fields, ensure_ascii=False, separators=(",", ":"))).encode()
    whole = [storable_json(text).encode() for text in texts]
    body = b"".join(TEXT.pack(len(text)) + text for text in whole)
    limits.check(kind, len(head), len(body))
    return FRAME.pack(kind, len(head), len(body)) + head + body


def report_fields(report: RunReport, texts: list[str]) -> dict[str, Any]:
    """The fields of a report. Its results are appended to the texts."""
    texts += [step.result for step in report.steps if step.result is not None]
    return {
        "steps": [{**step._asdict(), "result": step.result is not None} for step in report.steps],
        "tries": [one._asdict() for one in report.tries],
        "waits": [wait._asdict() for wait in report.waits],
    }


def end_fields(end: AttemptEnd | None, texts: list[str], limits: MessageLimits) -> dict[str, Any]:
    """The fields of an answer. In place of a result that would not be stored, a note says why."""
    if end is None:
        end_of_none = dict.fromkeys(("status", "error", "delay", "report"))
        return {**end_of_none, "result": False, "payload": False}
    result = end.result
    if result is not None and (problem := storage_problem(result, limits.result)) is not None:
        result = report_json({"holdfast": "not stored", "reason": f"the value {problem}"})
    texts += [text for text in (result, end.payload) if text is not None]
    return {
        "status": end.status,
        "error": end.error,
        "delay": end.delay,
        "result": result is not None,
        "payload": end.payload is not None,
        "report": None if end.report is None else report_fields(end.report, texts),
    }


def split(report: RunReport, limits: MessageLimits) -> list[RunReport]:
    """Parts that each fit into a message. The waits come with the last one."""
    parts: list[RunReport] = []
    steps: list[StepMemo] = []
    tries: list[FailedStep] = []
    fields = texts = 0
    memos: list[StepMemo | FailedStep] = [*report.steps, *report.tries]
    for one in memos:
        result = (one.result or "") if isinstance(one, StepMemo) else ""
        more = len(json.dumps(one._asdict() | {"result": None}).encode()) + 64
        longer = len(result.encode("utf-8", "replace")) + TEXT.size
        # Half of what is allowed: the answer has an error and a result besides.
        is_full = fields + more > MAX_FIELD_BYTES[RECORD] // 2 or texts + longer > limits.texts // 2
        if is_full and (steps or tries):
            parts.append(RunReport(steps, tries))
            steps, tries, fields, texts = [], [], 0, 0
        if isinstance(one, StepMemo):
            steps.append(one)
        else:
            tries.append(one)
        fields, texts = fields + more, texts + longer
    return [*parts, RunReport(steps, tries, report.waits)]


def message_length(buffer: bytearray, limits: MessageLimits) -> int | None:
    """The length of the message that the buffer begins with; None if that is not known yet."""
    if len(buffer) < FRAME.size:
        return None
    kind, fields, texts = FRAME.unpack_from(buffer)
    limits.check(kind, fields, texts)
    return int(FRAME.size + fields + texts)


def decode(message: bytes, limits: MessageLimits) -> Told:
    """In the worker: check a whole message. Raises MalformedMessage."""
    kind, length, _ = FRAME.unpack_from(message)
    try:
        head = storable_json(str(message[FRAME.size : FRAME.size + length], "utf-8"))
        texts = _Texts(memoryview(message)[FRAME.size + length :], limits)
        told = _told(kind, head, texts)
        texts.end()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedMessage(
            f"a message of the kind {kind.decode()} is wrong: {place}: {first['msg']}"
        ) from None
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error) as error:
        raise MalformedMessage(f"a message of the kind {kind.decode()} is wrong: {error}") from None
    return told


def _told(kind: bytes, head: str, texts: "_Texts") -> Told:  # noqa: PLR0911 - one for each kind
    match kind:
        case b"R":
            _Fields.model_validate_json(head)
            return Told(READY)
        case b"X":
            return Told(REFUSED, why=_storable(_Refused.model_validate_json(head).why))
        case b"P":
            now = _Progress.model_validate_json(head)
            return Told(PROGRESS, now.run, progress=now.model_dump(exclude={"run"}))
        case b"F":
            tried = _FailedTry.model_validate_json(head)
            return Told(FAILED_TRY, tried.run, failed=_shown(_failed(tried.failed)))
        case b"?":
            asked = _Read.model_validate_json(head)
            return Told(READ, asked.run, asked.ask, signals=asked.signals)
        case b"W":
            kept = _Record.model_validate_json(head)
            return Told(RECORD, kept.run, kept.ask, report=_report(kept.report, texts), lazy=kept.lazy)
        case b"S":
            return _start(_Start.model_validate_json(head), texts)
        case _:
            return _answer(_Answer.model_validate_json(head), texts)


_KEYS = TypeAdapter(list[str])


def _start(told: _Start, texts: "_Texts") -> Told:
    # Tasks and payloads are parameters of their own: the database parses them.
    tasks = texts.next()
    keys = _KEYS.validate_json(texts.next(), strict=True) if told.keys else None
    step = StartingStep(told.name, told.number, told.awaited, told.leave, told.batch, keys)
    payloads = list(texts.rest()) if told.payloads else None
    return Told(START, told.run, told.ask, step=step, tasks=tasks, payloads=payloads)


def _answer(told: _Answer, texts: "_Texts") -> Told:
    if told.status is None:
        return Told(ANSWER, told.run, left=told.left, memory=told.memory)
    result = texts.document() if told.result else None
    payload = texts.document() if told.payload else None
    report = None if told.report is None else _report(told.report, texts)
    error = None if told.error is None else _storable(told.error)
    end = AttemptEnd(told.status, result, error, told.delay, report, payload)
    return Told(ANSWER, told.run, end=end, left=told.left, memory=told.memory)


def _report(told: _Report, texts: "_Texts") -> RunReport:
    steps = [
        StepMemo(
            **dict(step)
            | {
                "result": texts.document() if step.result else None,
                "error": _storable(step.error),
            }
        )
        for step in told.steps
    ]
    for what, given in (
        ("name", [step.name for step in steps]),
        ("signal", [step.signal_id for step in steps if step.signal_id is not None]),
    ):
        if len(set(given)) < len(given):
            raise ValueError(f"two of its steps have the same {what}")
    waits = [Wait(**dict(wait) | {"on_tasks": tuple(wait.on_tasks)}) for wait in told.waits]
    return RunReport(steps, [_failed(one) for one in told.tries], waits)


def _failed(told: _Failed) -> FailedStep:
    return FailedStep(**dict(told) | {"error": _storable(told.error)})


def _shown(failed: FailedStep) -> FailedStep:
    """For the log, and for the labels of metrics, which stay in memory."""
    error = {
        key: value if key == "message" else str(value)[:MAX_SHOWN] for key, value in failed.error.items()
    }
    return failed._replace(name=failed.name[:MAX_SHOWN], function=failed.function[:MAX_SHOWN], error=error)


def _storable(error: Any) -> Any:
    """Without the numbers that JSON cannot represent, such as Infinity."""
    return None if error is None else json.loads(report_json(error))


class _Texts:
    """The texts of a message, each of which is taken once."""

    def __init__(self, body: memoryview, limits: MessageLimits) -> None:
        self._limits = limits
        self._body = body
        self._position = 0

    def document(self) -> str:
        """One JSON document, of at most max_result_bytes. It stays text, so that no digit is lost."""
        text = self.next()
        if len(text) > self._limits.result:
            raise ValueError(f"a document has {len(text)} characters, of {self._limits.result} allowed")
        return _document(text)

    def rest(self) -> Iterator[str]:
        while self._position < len(self._body):
            yield self.next()

    def end(self) -> None:
        if self._position < len(self._body):
            raise ValueError("it has more texts than it announces")

    def next(self) -> str:
        (length,) = TEXT.unpack_from(self._body, self._position)
        begin = self._position + TEXT.size
        self._position = begin + length
        if self._position > len(self._body):
            raise ValueError("a text is longer than the message")
        return str(self._body[begin : self._position], "utf-8")
