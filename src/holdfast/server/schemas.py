"""Request and response bodies that are not rows of the engine, and the descriptions of their fields.

Where a response is a row of the engine, its dataclass is the response model; FIELDS adds what OpenAPI should
say about its fields.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from holdfast._engine.access import SCOPES, AccessTokenStatus, Scope
from holdfast._engine.enqueue import Enqueued
from holdfast._engine.queues import QueueStatus
from holdfast._engine.schedules import ScheduleStatus
from holdfast._engine.tasks import Explanation, Status, TaskError, TaskEvent, TaskStatus
from holdfast._engine.tasks import Reason as TaskReason
from holdfast._engine.workers import WorkerStatus

# The rule of the engine: segments separated by . or :, without white space or control characters.
_SEGMENT = r"[^.:\x00-\x20\x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]+"
NAME = rf"^{_SEGMENT}([.:]{_SEGMENT})*$"
_PLAIN = r"[!-\-/-9;-~]+"
# The engine counts bytes, a schema counts characters: 200 ASCII characters, or 50 of any kind.
NAME_RULE: dict[str, Any] = {
    "anyOf": [
        {"maxLength": 200, "pattern": rf"^{_PLAIN}([.:]{_PLAIN})*$"},
        {"maxLength": 50, "pattern": NAME},
    ]
}
# Only times that exist, for those who generate some from the schema: so without the 29th of February.
TIME = (
    r"^(19[7-9][0-9]|20[0-9]{2})-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)"
    r"|(0[13578]|1[02])-31)T([01][0-9]|2[0-3]):[0-5][0-9]"
    r":[0-5][0-9](\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$"
)

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strict=True)]
Json = Annotated[Any, WithJsonSchema({"description": "Any JSON."})]
Payload = Annotated[
    Any,
    WithJsonSchema({"type": ["object", "array", "string", "number", "boolean"], "description": "The input."}),
]


def _whole(value: Any) -> Any:
    """JSON has one number type: 3.0 is the integer 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Reason = Annotated[str, StringConstraints(min_length=1, max_length=2000, strict=True)]

TASK_ID = "019a8f6e-7c1d-7b3a-9d65-3f2b8c0a4e11"
SHARD = "The name of its shard; null without shards."
WHEN = "2030-01-31T08:00:00+00:00"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


SECONDS = ConfigDict(ser_json_timedelta="float")


class ResponseModel(BaseModel):
    """Lengths of time are seconds."""

    model_config = SECONDS


@dataclass(slots=True)
class EnqueuedTask(Enqueued):
    """A task that was enqueued, or that the idempotency key already belonged to."""

    wait_url: str | None = None


class EnqueuedBatch(ResponseModel):
    """In the order of the request."""

    tasks: list[EnqueuedTask]


class TaskSummary(ResponseModel):
    """A task in a list, without payload, metadata and result."""

    model_config = ConfigDict(from_attributes=True)

    task_id: Annotated[UUID, Field(examples=[TASK_ID])]
    type: Annotated[str, Field(examples=["billing.invoice_charge.v1"])]
    queue: Annotated[str, Field(examples=["billing"])]
    executor: str
    status: Status
    priority: int
    attempt: int
    max_attempts: int
    idempotency_key: str | None
    worker_id: str | None
    last_error: Annotated[str | None, Field(description="The kind of the last error.")]
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    deleted_at: datetime | None
    shard: Annotated[str | None, Field(description=SHARD)] = None


class TaskPage(ResponseModel):
    """Newest first."""

    tasks: list[TaskSummary]
    next: Annotated[
        str | None,
        Field(
            description="The URL of the next page; null on the last.",
            examples=["/v1/tasks?limit=50&before=…"],
        ),
    ]


@dataclass(frozen=True, slots=True)
class TaskDetail(TaskStatus):
    """A task. Values are hidden unless `reveal` was requested and allowed."""

    __pydantic_config__: ClassVar[ConfigDict] = SECONDS

    why: Annotated[str, Field(description="Why it is not running now.")]
    reasons: Annotated[list[TaskReason], Field(description="The same one by one, as codes with facts too.")]
    values_hidden: bool
    shard: str | None

    @classmethod
    def of(
        cls, task: TaskStatus, told: Explanation, shard: str | None, *, values_hidden: bool
    ) -> "TaskDetail":
        values = {field.name: getattr(task, field.name) for field in fields(TaskStatus)}
        return cls(**values, why=told.why, reasons=told.reasons, values_hidden=values_hidden, shard=shard)


class ReasonBody(Strict):
    """The reason of an action. It is recorded, with the name of the token."""

    reason: Annotated[Reason | None, Field(examples=["requested by the customer"])] = None


class TaskActionResult(ResponseModel):
    task_id: Annotated[UUID, Field(examples=[TASK_ID])]
    status: Annotated[
        Status | Literal["deleted"], Field(description="The new status.", examples=["cancelled"])
    ]


class TaskWait(ResponseModel):
    """How a task ended, or its status when the timeout was over."""

    task_id: Annotated[UUID, Field(examples=[TASK_ID])]
    status: Status
    attempt: int
    max_attempts: int
    progress: Json = None
    result: Annotated[Json, Field(description="Of a task that succeeded.")] = None
    values_hidden: Annotated[bool, Field(description="True if the result shows its structure only.")] = False
    next: Annotated[
        str | None,
        Field(
            description="The URL to continue waiting at; null after the end.", examples=["/v1/tasks/…/wait"]
        ),
    ] = None


class ProcessWait(ResponseModel):
    """How a process ended, or its status when the timeout was over."""

    process: Annotated[str, Field(examples=["comms.send_email"])]
    process_id: Annotated[int, Field(examples=[17])]
    status: Annotated[
        str, Field(description="scheduled, running, or the decision that ended it.", examples=["succeeded"])
    ]
    ended_at: datetime | None = None
    next: Annotated[
        str | None,
        Field(
            description="The URL to continue waiting at; null after the end.",
            examples=["/v1/processes/…/wait"],
        ),
    ] = None


class QueuePause(ResponseModel):
    queue: Annotated[str, Field(examples=["billing"])]
    paused: bool
    changed: Annotated[bool, Field(description="False if the queue was in this state already.")]


class NewToken(Strict):
    name: Annotated[
        str,
        StringConstraints(min_length=1, max_length=100, strict=True),
        Field(
            examples=["shop"],
            json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"},
        ),
    ]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=4, examples=[["enqueue", "read"]])]
    days: Annotated[int, Field(ge=1, le=3600, description="Days until it expires.", examples=[90]), WHOLE] = (
        90
    )
    namespace: Annotated[
        str | None,
        StringConstraints(min_length=1, max_length=100, strict=True),
        Field(
            description="The namespace of the tasks enqueued with it; default: one of the token's own.",
            json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"},
        ),
    ] = None


class CreatedToken(ResponseModel):
    token_id: int
    token: Annotated[str, Field(description="Save it now; it cannot be shown again.", examples=["hf_…"])]


class RevokedToken(ResponseModel):
    token_id: int
    changed: Annotated[bool, Field(description="False if it was revoked already.")]


class ProblemBody(BaseModel):
    """An error (RFC 9457). `code` is explained in the reference."""

    type: Annotated[str, Field(examples=["about:blank"])]
    title: Annotated[str, Field(examples=["Not Found"])]
    status: Annotated[int, Field(examples=[404])]
    detail: Annotated[str, Field(examples=["there is no task 019a8f6e-…"])]
    code: Annotated[str, Field(examples=["QF404"])]
    hint: str | None


_ANY_JSON = {"description": "Any JSON."}
_TASK_ID = {"examples": [TASK_ID]}

FIELDS: dict[type, dict[str, dict[str, Any]]] = {
    EnqueuedTask: {
        "task_id": _TASK_ID,
        "created": {"description": "False if the key already belonged to this task."},
        "wait_url": {
            "description": "At this URL a front end can wait for the result; null if no secret is configured."
        },
    },
    TaskDetail: {
        "task_id": _TASK_ID,
        "type": {"examples": ["billing.invoice_charge.v1"]},
        "queue": {"examples": ["billing"]},
        "payload": _ANY_JSON,
        "metadata": _ANY_JSON,
        "result": _ANY_JSON,
        "progress": _ANY_JSON,
        "error": {"description": "The last error: kind, message, attempt, detail."},
        "last_error": {"description": "The message of the last error, or its kind if values are hidden."},
        "timeout": {"description": "In seconds."},
        "lease": {"description": "In seconds."},
        "deadline": {"description": "In seconds from its enqueue, or from its last retry by hand."},
        "why": {"description": "One sentence: why it is not running, or how it ended."},
        "values_hidden": {
            "description": "True if documents show their structure only, and errors their kind."
        },
        "shard": {"description": SHARD},
    },
    TaskEvent: {"task_id": _TASK_ID, "event_type": {"examples": ["claimed"]}, "data": _ANY_JSON},
    TaskError: {
        "task_id": _TASK_ID,
        "kind": {"examples": ["TimeoutError"]},
        "detail": _ANY_JSON,
        "recovered": {"description": "True if the worker was lost and another one recorded the error."},
    },
    QueueStatus: {"queue": {"examples": ["billing"]}},
    WorkerStatus: {
        "in_flight": {"description": "How many tasks it holds."},
        "running": {"description": "How many of them have started."},
        "timeout": {"description": "Without a heartbeat for this many seconds, it counts as lost."},
        "heartbeat": {"description": "Seconds between two heartbeats."},
        "memory_bytes": {"description": "The resident memory of its process."},
        "finished": {"description": "Attempts that have ended since it started."},
        "per_second": {"description": "Attempts that ended per second, over the last five minutes."},
        "shard": {"description": SHARD},
    },
    ScheduleStatus: {
        "every": {"description": "In seconds."},
        "jitter": {"description": "In seconds."},
        "never": {"description": "True if it will not fire again."},
        "task": {"description": "What it enqueues. The values of payload and metadata are hidden."},
    },
    AccessTokenStatus: {
        "scopes": {"items": {"type": "string", "enum": list(SCOPES)}},
        "good": {"description": "False if it is expired or revoked."},
        "sessions": {"description": "Open sessions of the dashboard."},
    },
}
"""What OpenAPI says about the fields of the engine's rows."""
