"""Business processes: which there are, one instance with its facts; start, nudge and cancel."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, TypeAdapter

from holdfast._engine import AsyncEngine, processes
from holdfast._engine.processes import HistoryStep, InstanceState, ProcessStatus, ProcessSummary
from holdfast._engine.tasks import TaskLine
from holdfast.errors import InvalidState
from holdfast.processes.instance import SupervisorRun, read_instance
from holdfast.server.access import Caller
from holdfast.server.auth import MayOperate, MayRead
from holdfast.server.hidden_values import hide_instance, hide_process
from holdfast.server.openapi import REASON_BODY, body_schema, json_body, problems
from holdfast.server.problem import Problem
from holdfast.server.request_body import parse, read_reason, read_text, validate
from holdfast.server.schemas import Json, ResponseModel, Strict
from holdfast.server.site import Site, site_of

router = APIRouter(tags=["processes"])

ProcessName = Annotated[
    str,
    Path(pattern=r"^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$", examples=["comms.send_email"]),
]
ProcessId = Annotated[int, Path(ge=1, le=2**63 - 1, description="The id that its kickoff returned.")]


class Processes(ResponseModel):
    """Instances are counted up to 1,000 of each process."""

    processes: list[ProcessSummary]


class ProcessInstances(ResponseModel):
    """By their ids, the highest first."""

    instances: list[ProcessStatus]
    next: Annotated[int | None, Field(description="`before` of the next page; null on the last.")]


class ProcessInstance(ResponseModel):
    """An instance. Reasons are hidden where values are."""

    process: str
    process_id: int
    status: Annotated[
        ProcessStatus | None, Field(description="Null if it ended so long ago that its row was removed.")
    ]
    timeline: Annotated[list[HistoryStep], Field(description="Its facts in order, then what comes next.")]
    outstanding: Annotated[list[TaskLine], Field(description="Tasks of attempts that have not ended.")]
    runs: Annotated[list[SupervisorRun], Field(description="The runs of its supervisor.")]
    supervisor: Annotated[TaskLine | None, Field(description="The task that runs its supervisor next.")]


class NewInstance(Strict):
    """What the kickoff gets."""

    input: Json


class StartedInstance(ResponseModel):
    process: str
    process_id: int


class NudgedInstance(StartedInstance):
    changed: Annotated[bool, Field(description="False if the supervisor is due or runs already.")]


class CancelledInstance(StartedInstance):
    decision: Annotated[Literal["cancelled"], Field(description="How it ended.")]


_NEW_INSTANCE = TypeAdapter(NewInstance)


@router.get("/processes", summary="List business processes", responses=problems())
async def list_processes(request: Request, caller: MayRead) -> Processes:
    del caller
    return Processes(processes=await site_of(request).read(processes.list_processes()))


@router.get("/processes/{process}", summary="List the instances of a process", responses=problems())
async def list_instances(
    request: Request,
    process: ProcessName,
    caller: MayRead,
    *,
    state: InstanceState | None = None,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ProcessInstances:
    """Empty for a process that does not exist. `state` selects those not ended, or in trouble."""
    del caller
    site = site_of(request)
    found = await site.read(processes.list_process_instances(process, state, before, limit + 1))
    shown = found[:limit] if site.options.shows_values else [hide_process(one) for one in found[:limit]]
    return ProcessInstances(instances=shown, next=shown[-1].process_id if len(found) > limit else None)


@router.post(
    "/processes/{process}",
    status_code=201,
    summary="Start an instance of a process",
    openapi_extra=json_body(body_schema(NewInstance)),
    responses=problems(404, 412, 413, 415, 422),
)
async def start(request: Request, process: ProcessName, caller: MayOperate) -> StartedInstance:
    text = await read_text(request)
    validate(_NEW_INSTANCE, parse(text))
    process_id = await start_instance(site_of(request), caller, process, text)
    return StartedInstance(process=process, process_id=process_id)


@router.get("/processes/{process}/{process_id}", summary="Show an instance", responses=problems(404, 412))
async def show_instance(
    request: Request, process: ProcessName, process_id: ProcessId, caller: MayRead
) -> ProcessInstance:
    del caller
    site = site_of(request)

    async def read(engine: AsyncEngine) -> ProcessInstance:
        found = await read_instance(engine, process, process_id)
        if found is None:
            raise Problem(404, f"there is no {process} {process_id}", code="QF404")
        shown = found if site.options.shows_values else hide_instance(found)
        return ProcessInstance.model_validate(shown, from_attributes=True)

    return await site.read(read)


@router.post(
    "/processes/{process}/{process_id}/nudge",
    summary="Let the supervisor of an instance run now",
    openapi_extra=REASON_BODY,
    responses=problems(404, 412, 413, 415, 422),
)
async def nudge(
    request: Request, process: ProcessName, process_id: ProcessId, caller: MayOperate
) -> NudgedInstance:
    reason = await read_reason(request)
    moved = await site_of(request).operate(caller, processes.nudge_process(process, process_id, reason))
    return NudgedInstance(process=process, process_id=process_id, changed=moved)


@router.post(
    "/processes/{process}/{process_id}/cancel",
    summary="Cancel an instance that has not ended",
    openapi_extra=REASON_BODY,
    responses=problems(404, 412, 413, 415, 422),
)
async def cancel(
    request: Request, process: ProcessName, process_id: ProcessId, caller: MayOperate
) -> CancelledInstance:
    reason = await read_reason(request)
    await cancel_instance(site_of(request), caller, process, process_id, reason)
    return CancelledInstance(process=process, process_id=process_id, decision="cancelled")


async def start_instance(site: Site, caller: Caller, process: str, body: str) -> int:
    """With the rights of a client. `body` is a JSON object with the member `input`."""

    async def begin(engine: AsyncEngine) -> int:
        with processes.reporting_refusals():
            return await engine.run(processes.start_process(process, body))

    return await site.enqueue(caller, begin, repeatable=False)


async def cancel_instance(
    site: Site, caller: Caller, process: str, process_id: int, reason: str | None
) -> str:
    """Raises InvalidState if it has ended otherwise."""
    ended = await site.operate(caller, processes.cancel_process(process, process_id, reason))
    if ended != "cancelled":
        raise InvalidState(
            f"{process} {process_id} cannot be cancelled: it has already ended ({ended})", sqlstate="QF412"
        )
    return ended
