"""The API: one file per noun, each with a router."""

from fastapi import APIRouter

from holdfast.http.api import deliveries, enqueue, queues, status, task_actions, tasks, tokens, waits, workers

__all__ = ["router"]

router = APIRouter(prefix="/v1")
for noun in (enqueue, tasks, task_actions, waits, queues, workers, status, tokens, deliveries):
    router.include_router(noun.router)
