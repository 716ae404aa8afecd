"""Runs a handler under the debugger in this terminal, with the payload of a task."""

import asyncio
import json
import pdb  # noqa: T100 - this module is the debugger command
import sys
import time
from dataclasses import dataclass
from typing import Any

from holdfast._engine.tasks import TaskStatus
from holdfast._worker.handler import Handler
from holdfast.context import Context, SyncContext, TaskContext
from holdfast.outcome import OUTCOMES


@dataclass
class _DebuggedTask:
    """The attributes of a task that a handler's context reads."""

    task_id: str
    type: str
    attempt: int
    max_attempts: int
    metadata: str | None
    progress: dict[str, Any] | None = None
    stop: str | None = None

    def now(self) -> float:
        return time.time()


def run_under_debugger(handler: Handler, task: TaskStatus) -> str:
    """Return the result as JSON. Stops before the call of the handler (`s` steps in) and where it raises."""
    arguments = handler.arguments.decode(json.dumps(task.payload))
    given = (_context(task, is_async=handler.is_async),) if handler.wants_context else ()
    debugger = pdb.Pdb(stdin=sys.stdin, stdout=sys.stdout)
    try:
        if handler.is_async:
            value = asyncio.run(_arun(debugger, handler, given, arguments))
        else:
            value = _run(debugger, handler, given, arguments)
    except OUTCOMES as outcome:
        value = outcome
    except Exception as error:
        debugger.reset()
        debugger.interaction(None, error.__traceback__)
        raise
    finally:
        sys.settrace(None)
    return json.dumps(repr(value)) if isinstance(value, OUTCOMES) else handler.result.encode(value)


def _run(debugger: pdb.Pdb, handler: Handler, given: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    debugger.set_trace(sys._getframe())  # noqa: SLF001 - stop here, not inside the debugger
    return handler.function(*given, **arguments)


async def _arun(
    debugger: pdb.Pdb, handler: Handler, given: tuple[Any, ...], arguments: dict[str, Any]
) -> Any:
    debugger.set_trace(sys._getframe())  # noqa: SLF001 - as above
    return await handler.function(*given, **arguments)


def _context(task: TaskStatus, *, is_async: bool) -> TaskContext:
    metadata = None if task.metadata is None else json.dumps(task.metadata)
    debugged = _DebuggedTask(str(task.task_id), task.type, max(1, task.attempt), task.max_attempts, metadata)
    context = Context if is_async else SyncContext
    return context(debugged, lambda: None, _refuse_transaction, _refuse_steps)


def _refuse_steps() -> Any:
    raise RuntimeError("steps are not available under the debugger: replay the task without --here")


def _refuse_transaction() -> Any:
    raise RuntimeError(
        "ctx.transaction() is not available under the debugger: replay the task without --here"
    )
