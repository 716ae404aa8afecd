"""The API: one file per noun, each with a router."""

from fastapi import APIRouter

from holdfast.http.api import acts, deliveries, enqueue, house, queues, tasks, tokens, wait, workers

__all__ = ["router"]

router = APIRouter(prefix="/v1")
for noun in (enqueue, tasks, acts, wait, queues, workers, house, tokens, deliveries):
    router.include_router(noun.router)
