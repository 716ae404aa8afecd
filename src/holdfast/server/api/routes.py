"""The routes of the API: those of every noun."""

from fastapi import APIRouter

from holdfast.server.api import (
    bulk_actions,
    deliveries,
    enqueue,
    error_groups,
    processes,
    queues,
    schedules,
    status,
    subscriptions,
    task_actions,
    tasks,
    tokens,
    waits,
)

__all__ = ["router"]

router = APIRouter(prefix="/v1")
for noun in (
    *(enqueue, tasks, bulk_actions, task_actions, waits, queues, error_groups, status, tokens),
    *(schedules, processes, subscriptions, deliveries),
):
    router.include_router(noun.router)
