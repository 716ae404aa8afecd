"""The API: one router per noun."""

from fastapi import APIRouter

from holdfast.http.api import deliveries, enqueue, queues, status, task_actions, tasks, tokens, waits

__all__ = ["router"]

router = APIRouter(prefix="/v1")
for noun in (enqueue, tasks, task_actions, waits, queues, status, tokens, deliveries):
    router.include_router(noun.router)
