"""A handler in this terminal, under the debugger, with the payload that a task had."""

import asyncio
import json
import pdb  # noqa: T100 - it is what was asked for
import sys
from dataclasses import dataclass
from typing import Any

from holdfast.context import Context
from holdfast.engine.tasks import TaskStatus
from holdfast.handler import Handler
from holdfast.outcome import OUTCOMES


@dataclass
class _Held:
    """What a handler's context reads of its task."""

    task_id: str
    type: str
    attempt: int
    max_attempts: int
    metadata: str | None
    progress: dict[str, Any] | None = None
    stop: str | None = None


def run_under_debugger(handler: Handler, task: TaskStatus) -> str:
    """The result as JSON. It stops before the handler is called (s steps into it), and where it raises."""
    arguments = handler.decode(json.dumps(task.payload))
    given = (_context(task),) if handler.wants_context else ()
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
    return json.dumps(repr(value)) if isinstance(value, OUTCOMES) else handler.encode(value)


def _run(debugger: pdb.Pdb, handler: Handler, given: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    debugger.set_trace(sys._getframe())  # noqa: SLF001 - here, and not in the debugger itself
    return handler.function(*given, **arguments)


async def _arun(
    debugger: pdb.Pdb, handler: Handler, given: tuple[Any, ...], arguments: dict[str, Any]
) -> Any:
    debugger.set_trace(sys._getframe())  # noqa: SLF001 - as above
    return await handler.function(*given, **arguments)


def _context(task: TaskStatus) -> Context:
    metadata = None if task.metadata is None else json.dumps(task.metadata)
    held = _Held(str(task.task_id), task.type, max(1, task.attempt), task.max_attempts, metadata)
    return Context(held, lambda: None, _refuse_transaction)


def _refuse_transaction() -> Any:
    raise RuntimeError("there is no task to commit with: replay it without --here to see its transaction")
