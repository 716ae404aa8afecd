"""Tasks of holdfast.contrib.django and of django.tasks, found by Django through the name of this module."""

import threading
from datetime import timedelta
from typing import Any

from django.db import connection

from holdfast import Fail, Snooze
from holdfast.contrib.django import app
from holdfast.contrib.django.backend import task

connected: list[bool] = []
"""Whether a task found Django's connection open when it started."""
calls: list[Any] = []


@app.task("shop.double")
def double(number: int) -> int:
    return 2 * number


@app.task("shop.adouble")
async def adouble(number: int) -> int:
    return 2 * number


@app.task("shop.count_users")
def count_users() -> int:
    connected.append(connection.connection is not None)
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_roles")
        return int(cursor.fetchone()[0])


@app.task("shop.acount_users")
async def acount_users() -> str:
    from asgiref.sync import sync_to_async

    def thread() -> str:
        connected.append(connection.connection is not None)
        with connection.cursor() as cursor:
            cursor.execute("select 1")
        return threading.current_thread().name

    found: str = await sync_to_async(thread)()
    return found


@app.task("shop.double_later", max_attempts=2)
def double_later(number: int) -> None:
    double.using(key=f"later-{number}").enqueue(number)
    if number < 0:
        raise ValueError(number)


@task
def add(first: int, second: int = 0) -> int:
    return first + second


@task
async def aadd(first: int, second: int = 0) -> int:
    return first + second


def backoff(error: BaseException, task_result: Any) -> timedelta | None:
    calls.append((type(error), task_result.attempts, len(task_result.errors)))
    return timedelta(minutes=task_result.attempts) if task_result.attempts < 3 else None


@task(max_attempts=5, backoff=backoff)
def stumble(times: int, why: str = "again") -> str:
    calls.append("run")
    if len([call for call in calls if call == "run"]) <= times:
        raise ValueError(why)
    return "done"


@task(takes_context=True, max_attempts=3)
def attempts(context: Any) -> list[Any]:
    if context.attempt < 2:
        raise ValueError("first")
    return [context.attempt, context.task_result.id]


@task(timeout=1)
async def hang() -> None:
    import asyncio

    await asyncio.sleep(60)


@task
def give_up() -> Fail:
    return Fail("no")


@task
def wait_once() -> Any:
    calls.append("run")
    return Snooze(60) if len(calls) == 1 else "awake"


@task
def as_is() -> object:
    return object()


not_a_task = "just a text"
