"""POST /v1/tasks and /v1/tasks/batch. The engine receives the text of the body, so that no digit is lost."""

import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, TypeAdapter

from holdfast._connections.wait_ticket import WAIT_TTL, issue
from holdfast._engine import Statement
from holdfast._engine.enqueue import Enqueued, enqueue_json
from holdfast.errors import HoldfastError, close_to, did_you_mean
from holdfast.options import is_arranged, parameters
from holdfast.server import request_body
from holdfast.server.access import Caller
from holdfast.server.api.enqueue_request import request_models, whole_numbers
from holdfast.server.auth import MayEnqueue
from holdfast.server.openapi import body_schema, json_body, problems
from holdfast.server.problem import Problem
from holdfast.server.schemas import EnqueuedBatch, EnqueuedTask
from holdfast.server.site import Site, site_of

router = APIRouter(tags=["tasks"])

MAX_TASKS = 1000
_NEW_TASK, _NEW_BATCH_TASK = request_models()
_ONE = TypeAdapter(_NEW_TASK)
_ONE_OF_BATCH = TypeAdapter(_NEW_BATCH_TASK)
_ONE_SCHEMA = body_schema(_NEW_TASK)
_MANY_SCHEMA = {
    "type": "array",
    "items": body_schema(_NEW_BATCH_TASK),
    "minItems": 1,
    "maxItems": MAX_TASKS,
}

IdempotencyKey = Annotated[
    str | None,
    Header(
        description="Enqueueing again with the same key returns the existing task.",
        pattern=parameters()["idempotency_key"].schema["pattern"],
        max_length=parameters()["idempotency_key"].schema["maxLength"],
        examples=["invoice-7"],
    ),
]


@dataclass(slots=True)
class _WrittenTasks:
    """Tasks as they go to the engine."""

    written: list[str] = field(default_factory=list)
    keyed: bool = True
    """Whether every task has a key, so that the request may be repeated."""
    delayed: bool = False
    """Whether a task has a delay, which the engine turns into a time."""

    def statement(self, caller: Caller) -> Statement[list[Enqueued]]:
        return enqueue_json(f"[{','.join(self.written)}]", caller.token_hash, delayed=self.delayed)


@router.post(
    "/tasks",
    status_code=201,
    summary="Enqueue a task",
    openapi_extra=json_body(_ONE_SCHEMA),
    responses={
        201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "The URL of the task."}}},
        200: {"model": EnqueuedTask, "description": "The key already belonged to this task"},
        **problems(404, 409, 413, 415, 422),
    },
)
async def enqueue(
    request: Request, response: Response, caller: MayEnqueue, idempotency_key: IdempotencyKey = None
) -> EnqueuedTask:
    """Returns 201 for a new task, 200 for the task that the key belongs to, 409 if that task is another."""
    site = site_of(request)
    given = await request_body.read_text(request)
    batch = await request_body.work_on(given, lambda: read_one(site, given, idempotency_key))
    [enqueued] = await site.enqueue(caller, batch.statement(caller), repeatable=batch.keyed)
    response.status_code = 201 if enqueued.created else 200
    response.headers["Location"] = str(request.app.url_path_for("show_task", task_id=str(enqueued.task_id)))
    return _with_wait_url(site, enqueued)


@router.post(
    "/tasks/batch",
    status_code=201,
    summary="Enqueue many tasks, all or none",
    openapi_extra=json_body(_MANY_SCHEMA),
    responses=problems(404, 409, 413, 415, 422),
)
async def enqueue_batch(request: Request, caller: MayEnqueue) -> EnqueuedBatch:
    """Returns the tasks in their order. If one of them is refused, none is enqueued."""
    site = site_of(request)
    given = await request_body.read_text(request, request_body.MAX_BATCH_BYTES)
    batch = await request_body.work_on(given, lambda: _read_batch(site, given))
    enqueued = await site.enqueue(caller, batch.statement(caller), repeatable=batch.keyed)
    return EnqueuedBatch(tasks=[_with_wait_url(site, one) for one in enqueued])


def read_one(site: Site, text: str, idempotency_key: str | None) -> _WrittenTasks:
    given = request_body.parse(text)
    _check_names(given, _NEW_TASK, "")
    request_body.validate(_ONE, given)
    _check_times(given, "")
    if idempotency_key is None and ("unique" in given or "debounce" in given):
        raise Problem(422, "a unique or debounced task needs the header Idempotency-Key")
    key = {} if idempotency_key is None else {"idempotency_key": idempotency_key}
    return _WrittenTasks(
        [_with_defaults(site, given, text, key)],
        keyed=bool(key) and not is_arranged(given),
        delayed="delay" in given,
    )


def _read_batch(site: Site, text: str) -> _WrittenTasks:
    """Only one task at a time is held parsed."""
    batch = _WrittenTasks()
    for number, (given, element) in enumerate(request_body.elements(text)):
        if number == MAX_TASKS:
            raise Problem(400, f"a batch has 1 to {MAX_TASKS} tasks, and this one has more")
        _check_names(given, _NEW_BATCH_TASK, f"[{number}]: ")
        request_body.validate(_ONE_OF_BATCH, given, f"[{number}]")
        _check_times(given, f"[{number}]: ")
        batch.written.append(_with_defaults(site, given, element, {}))
        batch.keyed = batch.keyed and "idempotency_key" in given and not is_arranged(given)
        batch.delayed = batch.delayed or "delay" in given
    if not batch.written:
        raise Problem(400, f"a batch has 1 to {MAX_TASKS} tasks, and this one has none")
    return batch


def _check_names(given: Any, model: type[BaseModel], place: str) -> None:
    for name in given if isinstance(given, dict) else ():
        if name not in model.model_fields and close_to(name, model.model_fields):
            raise Problem(400, f"{place}unknown member {name!r}{did_you_mean(name, model.model_fields)}")


def _check_times(given: dict[str, Any], place: str) -> None:
    if "run_at" in given and "delay" in given:
        raise Problem(400, f"{place}give run_at or delay, not both")
    if given.get("debounce_max") is not None and given["debounce_max"] < given.get("debounce", 0):
        raise Problem(422, f"{place}debounce_max is shorter than debounce")


def _with_defaults(site: Site, given: dict[str, Any], text: str, key: dict[str, str]) -> str:
    """The object with members added before and after its own: of two members of a name, the last counts.

    The text is not serialized again, because numbers would lose digits.
    """
    whole = {name: int(given[name]) for name in whole_numbers() if isinstance(given.get(name), float)}
    before, after = _written(_declared(site, given)), _written(whole | key)
    return "{" + ",".join(filter(None, (before, text.strip()[1:-1], after))) + "}"


def _declared(site: Site, given: dict[str, Any]) -> dict[str, Any]:
    """The defaults of the type, where this server has its code. Refuses a payload that does not fit."""
    task = site.tasks.get(given["type"])
    if task is None:
        return {}
    handler = task.handler
    try:
        handler.arguments.decode(json.dumps(given.get("payload", {})))
    except HoldfastError as error:
        raise Problem(422, error.message, code="payload_misfit", hint=error.hint) from None
    return {**handler.defaults, "priority": handler.priority, "executor": handler.executor}


def _written(members: dict[str, Any]) -> str:
    """Members of a JSON object, without its braces."""
    return json.dumps(members, default=timedelta.total_seconds)[1:-1]


def _with_wait_url(site: Site, enqueued: Enqueued) -> EnqueuedTask:
    return EnqueuedTask(
        task_id=enqueued.task_id, created=enqueued.created, wait_url=_wait_url(site, enqueued.task_id)
    )


def _wait_url(site: Site, task_id: UUID) -> str | None:
    """The URL at which a front end can wait for the result of this task and no other."""
    secrets = site.options.secrets
    if not secrets:
        return None
    ticket = issue(secrets, task_id, WAIT_TTL, time.time())
    return f"{site.options.url or ''}/v1/tasks/{task_id}/wait?ticket={ticket}"
