"""Actions on many tasks: the named ones, or all that match a filter, in bounded steps."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, WithJsonSchema

from holdfast._engine.task_actions import MAX_ACTED, ActedTask, Action
from holdfast._engine.tasks import Status, TaskFilter
from holdfast.server.auth import MayOperate
from holdfast.server.bulk_steps import BulkRequest, count_matching, take_step
from holdfast.server.hidden_values import values_hidden
from holdfast.server.openapi import body_schema, json_body, problems
from holdfast.server.problem import Problem
from holdfast.server.request_body import parse, read_text, validate
from holdfast.server.schemas import TIME, WHEN, WHOLE, Reason, ResponseModel, Strict
from holdfast.server.site import site_of

router = APIRouter(tags=["task actions"])

MAX_BODY = 64 * 1024
_Word = Annotated[str, StringConstraints(min_length=1, max_length=200, strict=True, pattern=r"^[^\x00]*$")]
_Search = Annotated[str, StringConstraints(min_length=1, max_length=500, strict=True, pattern=r"^[^\x00]*$")]


def _aware_time(given: str) -> str:
    """Any time with a zone. The pattern of the schema leaves out some: it only says what is usual."""
    try:
        datetime.fromisoformat(given).astimezone(UTC)  # fails if it is before the year 1 or after 9999 there
        aware = datetime.fromisoformat(given).tzinfo is not None
    except (ValueError, OverflowError):
        aware = False
    if not aware:
        raise ValueError("it is not a time with a zone, such as 2030-01-31T08:00:00+00:00")
    return given


_Time = Annotated[
    str,
    StringConstraints(strict=True, max_length=100),
    AfterValidator(_aware_time),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": TIME, "examples": [WHEN]}),
]
_Id = Annotated[UUID, Field(strict=False)]


class BulkFilter(Strict):
    """Tasks that match every member."""

    status: Annotated[Status | None, Field(description="By default every status that the action allows.")] = (
        None
    )
    queue: _Word | None = None
    type: Annotated[_Word | None, Field(description="Types that begin with this.")] = None
    since: Annotated[_Time | None, Field(description="Created at or after this time.")] = None
    search: Annotated[
        _Search | None,
        Field(description="Text in id, type or keys; where values are shown, also in error messages."),
    ] = None
    error: Annotated[
        str | None,
        StringConstraints(pattern=r"^[0-9a-f]{32}$", strict=True),
        Field(description="The last error is of this group."),
    ] = None
    where: Annotated[
        _Search | None,
        Field(description="A JSON path into the payload; only where values are shown.", examples=["$.to"]),
    ] = None


class BulkActionBody(Strict):
    """An action on the named tasks, or on all that match the filter."""

    action: Annotated[Action, Field(examples=["cancel"])]
    reason: Annotated[Reason | None, Field(examples=["the provider is back"])] = None
    task_ids: Annotated[list[_Id] | None, Field(min_length=1, max_length=MAX_ACTED)] = None
    filter: BulkFilter | None = None
    run_at: Annotated[_Time | None, Field(description="For reschedule.")] = None
    dry_run: Annotated[
        bool, Field(description="Only count, for some seconds and to at most 10,000 tasks.")
    ] = False
    limit: Annotated[int, Field(ge=1, le=MAX_ACTED, description="Tasks per call."), WHOLE] = MAX_ACTED
    cursor: Annotated[
        str | None,
        StringConstraints(max_length=100, strict=True, pattern=r"^[a-z_]+\.[0-9a-f-]*$"),
        Field(description="`next` of the previous call."),
    ] = None


class BulkActionResult(ResponseModel):
    changed: Annotated[int, Field(description="How many tasks were changed, or would be.")]
    problems: Annotated[list[ActedTask], Field(description="Tasks that were not changed, and why.")]
    next: Annotated[
        str | None, Field(description="The cursor of the next call; null after the last. Repeat until then.")
    ]
    more: Annotated[bool, Field(description="Whether there may be others.")]


def _schema() -> dict[str, Any]:
    """The filter is written where it is used: a reference could not be resolved there."""
    schema = body_schema(BulkActionBody)
    described = schema.pop("$defs")["BulkFilter"]
    schema["properties"]["filter"] = {"anyOf": [described, {"type": "null"}]}
    return schema


_BODY = TypeAdapter(BulkActionBody)


@router.post(
    "/tasks/act",
    summary="Act on many tasks",
    openapi_extra=json_body(_schema()),
    responses=problems(404, 413, 415, 422),
)
async def act_on_many(request: Request, caller: MayOperate) -> BulkActionResult:
    """One call changes at most `limit` tasks; repeat it with `next` as `cursor` until that is null.

    Each change is recorded with the reason, as that of a single task is.
    """
    body = validate(_BODY, parse(await read_text(request, MAX_BODY)))
    site = site_of(request)
    wanted = bulk_request(body, shows_values=site.options.shows_values)
    if body.dry_run:
        changed, more = await count_matching(site, caller, wanted)
        return BulkActionResult(changed=changed, problems=[], next=None, more=more)
    step = await take_step(site, caller, wanted, body.cursor, body.limit)
    problems = [one for one in step.acted if not one.changed]
    return BulkActionResult(
        changed=step.changed, problems=problems, next=step.next, more=step.next is not None
    )


def bulk_request(body: BulkActionBody, *, shows_values: bool) -> BulkRequest:
    if (body.task_ids is None) == (body.filter is None):
        raise Problem(422, "give either task_ids or filter")
    if (body.run_at is None) == (body.action == "reschedule"):
        raise Problem(422, "run_at is required for reschedule, and for nothing else")
    given = body.filter or BulkFilter()
    if given.where is not None and not shows_values:
        raise values_hidden()
    matching = TaskFilter(
        given.status,
        given.queue,
        given.type,
        _moment(given.since),
        None,
        given.search,
        given.error,
        given.where,
        search_errors=shows_values,
    )
    return BulkRequest(body.action, matching, body.task_ids or (), body.reason, _moment(body.run_at))


def _moment(given: str | None) -> datetime | None:
    return None if given is None else datetime.fromisoformat(given)
