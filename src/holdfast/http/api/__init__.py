"""The API: one file per noun, each with a router."""

from fastapi import APIRouter

from holdfast.http.api import acts, enqueue, queues, tasks, tokens, wait, workers

__all__ = ["router"]

router = APIRouter(prefix="/v1")
for noun in (enqueue, tasks, acts, wait, queues, workers, tokens):
    router.include_router(noun.router)
