"""The simplest worker: claims what is due, runs it here and now, says how it went."""

import asyncio
import traceback
from typing import Any

import psycopg

from holdfast._engine import Engine, leases
from holdfast._engine.leases import Claimed
from holdfast._serialization.text import RawJson
from holdfast._worker.handler import Handler
from holdfast.app import App
from holdfast.outcome import Cancel, Fail, Snooze
from support.database import shards_of
from support.leases import ended

WORKER = "drain"


def drain(app: App, connection: psycopg.Connection[Any]) -> int:
    """Run until nothing is due; returns how many attempts that took."""
    return sum(_drain_shard(app, Engine(shard)) for shard in shards_of(connection))


def _drain_shard(app: App, engine: Engine) -> int:
    done, prefixes = 0, list(app.handlers)
    while claimed := engine.run(leases.claim(WORKER, 100, type_prefixes=prefixes)):
        engine.run(leases.finish(WORKER, [_run(app.handlers[task.type], task) for task in claimed]))
        done += len(claimed)
    return done


def _run(handler: Handler, task: Claimed) -> str:
    context = (task,) if handler.wants_context else ()
    try:
        value = handler.function(*context, **handler.arguments.decode(task.payload))
        if handler.is_async:
            value = _awaited(value)
    except Exception as error:  # noqa: BLE001 - any of them is an attempt that went wrong
        detail = {
            "kind": "handler_error",
            "message": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
        return ended(task.task_id, task.token, "retry", error=detail)
    return _outcome(handler, task, value)


def _outcome(handler: Handler, task: Claimed, value: Any) -> str:
    match value:
        case Cancel(reason):
            return ended(task.task_id, task.token, "cancelled", error=reason)
        case Fail(reason):
            return ended(task.task_id, task.token, "failed", error=reason)
        case Snooze():
            raise AssertionError("nobody here waits that long")
    return ended(task.task_id, task.token, "succeeded", result=RawJson(handler.result.encode(value)))


def _awaited(value: Any) -> Any:
    # A loop of its own in a thread: the test may have one already.
    with asyncio.Runner() as runner:
        return runner.run(value)
