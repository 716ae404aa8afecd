"""Commands run in this process, and tasks for them to work on."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from typer.testing import CliRunner, Result

from holdfast._engine import Engine, enqueue, leases
from holdfast._engine.enqueue import NewTask
from holdfast.cli.command_line import build_app
from support.leases import ended

app = build_app()
Holdfast = Callable[..., Result]


def run(*arguments: str, url: str, stdin: str | bytes | None = None) -> Result:
    """Run a command; what it cannot explain itself fails the test."""
    result = CliRunner().invoke(app, list(arguments), input=stdin, env={"DATABASE_URL": url})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(result: Result) -> Any:
    """The JSON document that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def fail(engine: Engine, *, queue: str = "billing", count: int = 1, status: str = "failed") -> list[UUID]:
    """Tasks that a worker has failed."""
    tasks = [NewTask(f"{queue}.charge", max_attempts=1) for _ in range(count)]
    ids = [enqueued.task_id for enqueued in engine.run(enqueue.enqueue_many(tasks))]
    claimed = engine.run(leases.claim("w1", count, queues=[queue]))
    assert {UUID(task.task_id) for task in claimed} == set(ids)
    word: Any = "retry" if status == "dead_letter" else status
    error = {"kind": "Boom", "message": "it broke"}
    engine.run(leases.finish("w1", [ended(task.task_id, task.token, word, error=error) for task in claimed]))
    return ids


def failed_task(engine: Engine, **more: Any) -> UUID:
    return fail(engine, **more)[0]
