"""What goes over the wire, as OpenAPI describes it."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from holdfast.engine.access import Scope
from holdfast.engine.tasks import Status

# As the engine has it: segments separated by . or :, without white space or control characters.
_SEGMENT = r"[^.:\x00-\x20\x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]+"
NAME = rf"^{_SEGMENT}([.:]{_SEGMENT})*$"
_PLAIN = r"[!-\-/-9;-~]+"
# The engine counts bytes, and a schema characters: 200 plain ones, or 50 of any.
NAME_RULE: dict[str, Any] = {
    "anyOf": [
        {"maxLength": 200, "pattern": rf"^{_PLAIN}([.:]{_PLAIN})*$"},
        {"maxLength": 50, "pattern": NAME},
    ]
}
KEY = r"^[!-~]([ -~]{0,498}[!-~])?$"
CONCURRENCY_KEY = r"^[!-~]([ -~]{0,198}[!-~])?$"
TIME = (
    r"^(19[7-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]"
    r":[0-5][0-9](\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$"
)

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strict=True)]
Json = Annotated[Any, WithJsonSchema({"description": "Any JSON."})]
Payload = Annotated[
    Any,
    WithJsonSchema({"type": ["object", "array", "string", "number", "boolean"], "description": "The input."}),
]


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is as whole as 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Reason = Annotated[str, StringConstraints(min_length=1, max_length=2000, strict=True)]

TASK_ID = "019a8f6e-7c1d-7b3a-9d65-3f2b8c0a4e11"
WHEN = "2030-01-31T08:00:00+00:00"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewTask(_Strict):
    """A task to enqueue. What is left out is for the engine to choose."""

    type: Annotated[Name, Field(examples=["billing.invoice_charge.v1"], json_schema_extra=NAME_RULE)]
    payload: Annotated[Payload, Field(examples=[{"invoice": 7}])] = None
    queue: Annotated[Name, Field(examples=["billing"], json_schema_extra=NAME_RULE)] = ""
    priority: Annotated[int, Field(ge=-100, le=100, examples=[0]), WHOLE] = 0
    run_at: Annotated[
        str, Field(examples=[WHEN], json_schema_extra={"format": "date-time", "pattern": TIME})
    ] = ""
    max_attempts: Annotated[int, Field(ge=1, le=1000, examples=[3]), WHOLE] = 3
    timeout: Annotated[int, Field(ge=1, le=2_592_000, description="Seconds.", examples=[30]), WHOLE] = 1
    lease: Annotated[int, Field(ge=1, le=86_400, description="Seconds.", examples=[30]), WHOLE] = 1
    executor: Annotated[Literal["python", "process", "command"], Field(examples=["python"])] = "python"
    metadata: Annotated[dict[str, Json], Field(examples=[{"order": 1}], max_length=50)] = {}
    concurrency_key: Annotated[
        str,
        StringConstraints(min_length=1, max_length=200, strict=True),
        Field(
            description="Of tasks with the same one, only so many run at once.",
            examples=["customer-7"],
            json_schema_extra={"pattern": CONCURRENCY_KEY},
        ),
    ] = ""


class NewBatchTask(NewTask):
    """The same with a key of its own."""

    idempotency_key: Annotated[
        str,
        StringConstraints(min_length=1, max_length=500, strict=True),
        Field(examples=["invoice-7"], json_schema_extra={"pattern": KEY}),
    ] = ""


class Enqueued(BaseModel):
    task_id: Annotated[UUID, Field(examples=[TASK_ID])]
    created: Annotated[bool, Field(description="False if the key already stood for this task.")]
    wait_url: Annotated[
        str | None,
        Field(
            description="Where whoever has this address may wait for the result; null if no secret is set."
        ),
    ] = None


class Batch(BaseModel):
    tasks: list[Enqueued]


class TaskSummary(BaseModel):
    """A task of a listing, without its documents."""

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
    last_error: Annotated[
        str | None, Field(description="The last error: its kind, or its text where values are shown.")
    ]
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    deleted_at: datetime | None


class TaskDetail(TaskSummary):
    """Where a task stands. Values are hidden unless `reveal` was asked for and allowed."""

    values_hidden: Annotated[
        bool,
        Field(description="Whether documents show their shape only, and errors their kind."),
    ]
    payload: Json
    metadata: Json
    result: Json
    progress: Json
    error: Annotated[Json, Field(description="The last error: kind, message, attempt, detail.")]
    reason: str | None
    spec_hash: str
    claimed_at: datetime | None
    lease_until: datetime | None
    delete_reason: str | None
    enqueued_by: str
    namespace: str
    why: Annotated[str, Field(description="In a sentence: why it is not running, or how it ended.")]


class TaskPage(BaseModel):
    """Newest first."""

    tasks: list[TaskSummary]
    next: Annotated[
        str | None,
        Field(
            description="The address of the next page; null on the last.",
            examples=["/v1/tasks?limit=50&before=…"],
        ),
    ]


class Event(BaseModel):
    event_type: Annotated[str, Field(examples=["claimed"])]
    occurred_at: datetime
    attempt: int | None
    worker_id: str | None
    actor: str | None
    reason: str | None
    data: Json


class Events(BaseModel):
    """In the order in which they happened."""

    events: list[Event]


class Error(BaseModel):
    attempt: int
    kind: Annotated[str, Field(examples=["TimeoutError"])]
    message: str
    detail: Json
    worker_id: str | None
    recovered: Annotated[bool, Field(description="Whether its worker fell silent, and others wrote this.")]
    occurred_at: datetime
    retry_at: datetime | None


class Errors(BaseModel):
    errors: list[Error]


class Act(_Strict):
    """Why something is done. It is recorded, with the name of the token."""

    reason: Annotated[Reason | None, Field(examples=["the customer asked for it"])] = None


class Acted(BaseModel):
    task_id: Annotated[UUID, Field(examples=[TASK_ID])]
    status: Annotated[
        Status | Literal["deleted"], Field(description="What it led to.", examples=["cancelled"])
    ]


class Waiting(BaseModel):
    """How a task ended, or where it stands after the time given."""

    task_id: Annotated[UUID, Field(examples=[TASK_ID])]
    status: Status
    attempt: int
    max_attempts: int
    progress: Json = None
    result: Annotated[Json, Field(description="Of a task that succeeded.")] = None
    values_hidden: Annotated[bool, Field(description="Whether the result shows its shape only.")] = False
    next: Annotated[
        str | None,
        Field(description="Where to go on waiting, if it has not ended.", examples=["/v1/tasks/…/wait"]),
    ] = None


class WaitingForProcess(BaseModel):
    """How a process ended, or where it stands after the time given."""

    process: Annotated[str, Field(examples=["comms.send_email"])]
    process_id: Annotated[int, Field(examples=[17])]
    status: Annotated[
        str, Field(description="scheduled, running, or the decision that ended it.", examples=["succeeded"])
    ]
    ended_at: datetime | None = None
    next: Annotated[
        str | None,
        Field(description="Where to go on waiting, if it has not ended.", examples=["/v1/processes/…/wait"]),
    ] = None


class Queue(BaseModel):
    queue: Annotated[str, Field(examples=["billing"])]
    due: int
    scheduled: int
    running: int
    oldest_due: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    live_workers: int


class Queues(BaseModel):
    queues: list[Queue]


class Paused(BaseModel):
    queue: Annotated[str, Field(examples=["billing"])]
    paused: bool
    changed: Annotated[bool, Field(description="False if it was so already.")]


class Worker(BaseModel):
    worker_id: str
    hostname: str
    pid: int | None
    version: str | None
    queues: list[str]
    type_prefixes: list[str]
    concurrency: int
    in_flight: int
    running: Annotated[int, Field(description="Of those in flight, how many have started.")]
    state: Annotated[str, Field(description="working, idle, late or silent.", examples=["working"])]
    idle: bool
    live: bool
    leader: bool
    started_at: datetime
    last_heartbeat: datetime


class Workers(BaseModel):
    workers: list[Worker]


class Schedule(BaseModel):
    name: str
    namespace: str
    state: Annotated[str, Field(examples=["active"])]
    type: str
    cron: str | None
    tz: str | None
    next_at: datetime | None
    last_nominal_at: datetime | None
    last_task_id: UUID | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    problem: str | None


class Schedules(BaseModel):
    schedules: list[Schedule]


class HealthLine(BaseModel):
    check_name: str
    level: Literal["green", "amber", "red"]
    subject: str | None
    value: float | None
    message: str
    advice: str | None


class Health(BaseModel):
    level: Literal["green", "amber", "red"]
    lines: list[HealthLine]


class NewToken(_Strict):
    name: Annotated[
        str,
        StringConstraints(min_length=1, max_length=100, strict=True),
        Field(
            examples=["shop"],
            json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"},
        ),
    ]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=4, examples=[["enqueue", "read"]])]
    days: Annotated[int, Field(ge=1, le=3600, description="Until it expires.", examples=[90]), WHOLE] = 90
    namespace: Annotated[
        str | None,
        StringConstraints(min_length=1, max_length=100, strict=True),
        Field(
            description="Whose tasks those enqueued with it are; else a namespace of the token's own.",
            json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"},
        ),
    ] = None


class Token(BaseModel):
    token_id: int
    name: str
    namespace: str
    scopes: list[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    good: bool


class Tokens(BaseModel):
    tokens: list[Token]


class CreatedToken(BaseModel):
    token_id: int
    token: Annotated[str, Field(description="Shown this once, and kept nowhere.", examples=["hf_…"])]


class Revoked(BaseModel):
    token_id: int
    changed: Annotated[bool, Field(description="False if it was so already.")]


class ProblemBody(BaseModel):
    """What went wrong (RFC 9457), with the code that docs/reference/errors.md explains."""

    type: Annotated[str, Field(examples=["about:blank"])]
    title: Annotated[str, Field(examples=["Not Found"])]
    status: Annotated[int, Field(examples=[404])]
    detail: Annotated[str, Field(examples=["there is no task 019a8f6e-…"])]
    code: Annotated[str, Field(examples=["QF404"])]
    hint: str | None
