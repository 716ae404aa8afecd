"""POST /v1/tasks and /v1/tasks/batch: the body goes to the engine as it was written."""

import json
import time
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response
from pydantic import TypeAdapter

from holdfast.client.span import WAIT_TTL
from holdfast.client.wait_ticket import issue
from holdfast.engine.enqueue import Enqueued, enqueue_written
from holdfast.errors import HoldfastError
from holdfast.http import request_body, schemas
from holdfast.http.auth import MayEnqueue
from holdfast.http.openapi import body_schema, json_body, problems
from holdfast.http.problem import Problem
from holdfast.http.site import Site, site_of

router = APIRouter(tags=["tasks"])

MAX_TASKS = 1000
_WHOLE = ("priority", "max_attempts", "timeout", "lease")

_ONE = TypeAdapter(schemas.NewTask)
_ONE_OF_BATCH = TypeAdapter(schemas.NewBatchTask)
_ONE_SCHEMA = body_schema(schemas.NewTask)
_MANY_SCHEMA = {
    "type": "array",
    "items": body_schema(schemas.NewBatchTask),
    "minItems": 1,
    "maxItems": MAX_TASKS,
}

IdempotencyKey = Annotated[
    str | None,
    Header(
        description="Asking twice with the same key makes one task.",
        pattern=schemas.KEY,
        max_length=500,
        examples=["invoice-7"],
    ),
]


@router.post(
    "/tasks",
    status_code=201,
    response_model=schemas.Enqueued,
    summary="Enqueue a task",
    openapi_extra=json_body(_ONE_SCHEMA),
    responses={
        201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "Where the task is."}}},
        200: {"model": schemas.Enqueued, "description": "The key already stood for this task"},
        **problems(409, 413, 415, 422),
    },
)
async def enqueue(
    request: Request, response: Response, caller: MayEnqueue, idempotency_key: IdempotencyKey = None
) -> schemas.Enqueued:
    """Answers 201 for a new task, 200 for one that the key already stood for, 409 if that one was another."""
    site = site_of(request)
    given = await request_body.read_text(request)
    written = await request_body.work_on(given, lambda: _read_one(site, given))
    if idempotency_key is not None:
        written = f'{written[:-1]},"idempotency_key":{json.dumps(idempotency_key)}}}'
    [enqueued] = await site.enqueue(
        caller,
        enqueue_written(f"[{written}]", caller.token_hash),
        repeatable=idempotency_key is not None,
    )
    response.status_code = 201 if enqueued.created else 200
    response.headers["Location"] = str(request.app.url_path_for("show_task", task_id=str(enqueued.task_id)))
    return _answer(site, enqueued)


@router.post(
    "/tasks/batch",
    status_code=201,
    response_model=schemas.Batch,
    summary="Enqueue many tasks, all or none",
    openapi_extra=json_body(_MANY_SCHEMA),
    responses=problems(409, 413, 415, 422),
)
async def enqueue_batch(request: Request, caller: MayEnqueue) -> schemas.Batch:
    """Answers in the order of the tasks. If one of them is refused, none is enqueued."""
    site = site_of(request)
    written = await request_body.read_text(request, request_body.MAX_BATCH_BYTES)
    each, keyed = await request_body.work_on(written, lambda: _read_batch(site, written))
    enqueued = await site.enqueue(
        caller,
        enqueue_written(f"[{','.join(each)}]", caller.token_hash),
        repeatable=keyed,
    )
    return schemas.Batch(tasks=[_answer(site, one) for one in enqueued])


def _read_one(site: Site, written: str) -> str:
    given = request_body.parse(written)
    request_body.validate(_ONE, given)
    return _with_defaults(site, given, written)


def _read_batch(site: Site, written: str) -> tuple[list[str], bool]:
    """The tasks as they go to the engine, and whether each has a key. One at a time is held parsed."""
    each, keyed = [], True
    for number, (given, element) in enumerate(request_body.elements(written)):
        if number == MAX_TASKS:
            raise Problem(400, f"a batch has 1 to {MAX_TASKS} tasks, and this one has more")
        request_body.validate(_ONE_OF_BATCH, given, f"[{number}]")
        keyed = keyed and "idempotency_key" in given
        each.append(_with_defaults(site, given, element))
    if not each:
        raise Problem(400, f"a batch has 1 to {MAX_TASKS} tasks, and this one has none")
    return each, keyed


def _with_defaults(site: Site, given: dict[str, Any], written: str) -> str:
    """What the application declares for this type goes first: of two members of a name, the last counts."""
    written = _whole(given, written.strip())
    task = site.tasks.get(given["type"])
    if task is None:
        return written
    handler = task.handler
    try:
        handler.decode(json.dumps(given.get("payload", {})))
    except HoldfastError as error:
        raise Problem(422, error.message, code="payload_misfit", hint=error.hint) from None
    declared = {
        "queue": handler.queue,
        "priority": handler.priority,
        "max_attempts": handler.max_attempts,
        "lease": handler.lease,
        "executor": handler.executor,
    }
    said = {name: value for name, value in declared.items() if value is not None}
    return f"{json.dumps(said)[:-1]},{written[1:]}"


def _whole(given: dict[str, Any], written: str) -> str:
    """Numbers that are whole but not written so are said again: of two members of a name, the last counts."""
    again = {name: int(given[name]) for name in _WHOLE if isinstance(given.get(name), float)}
    return f"{written[:-1]},{json.dumps(again)[1:]}" if again else written


def _answer(site: Site, enqueued: Enqueued) -> schemas.Enqueued:
    return schemas.Enqueued(
        task_id=enqueued.task_id, created=enqueued.created, wait_url=wait_address(site, enqueued.task_id)
    )


def wait_address(site: Site, task_id: UUID) -> str | None:
    """Where a front end may wait for the result of this task and no other."""
    secrets = site.options.secrets
    if not secrets:
        return None
    ticket = issue(secrets, task_id, WAIT_TTL, time.time())
    return f"{site.options.url or ''}/v1/tasks/{task_id}/wait?ticket={ticket}"
