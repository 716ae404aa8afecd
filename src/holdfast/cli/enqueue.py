"""holdfast enqueue: ask for work."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from holdfast.cli.arguments import document, duration, instant, resolve_future
from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json
from holdfast.engine.enqueue import Executor, NewTask, enqueue_many


def register(app: typer.Typer) -> None:
    app.command()(enqueue)


def enqueue(
    *,
    type_: Annotated[
        str, typer.Argument(metavar="TYPE", help="What kind of work: billing.invoice_charge.v1")
    ],
    payload: Annotated[
        Any,
        typer.Argument(parser=document, metavar="PAYLOAD", help="JSON, @file, or - for standard input."),
    ] = "{}",
    queue: Annotated[
        str | None, typer.Option(help="Else as declared, or the first segment of the type.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; else as declared, or 0.")] = None,
    run_at: Annotated[
        datetime | None, typer.Option(parser=instant, metavar="TIME", help="Not before: 2030-01-31T08:00Z")
    ] = None,
    delay: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="Not before so long from now: 5m"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: asking again with it makes no second task.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="How often to try; else as declared, or 3.")
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long an attempt may run."),
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long a silent worker keeps it."),
    ] = None,
    executor: Annotated[Executor | None, typer.Option(help="What runs it.")] = None,
    metadata: Annotated[
        Any,
        typer.Option(
            parser=document, metavar="JSON", help="An object that travels with it; also @file or -."
        ),
    ] = None,
    concurrency_key: Annotated[
        str | None, typer.Option(help="Of tasks with the same one, only so many run at once: see limits.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Enqueue a task and print its id.

    A key that already stands for the same request gives the id of that task.
    """
    with connected(database_url) as engine:
        task = NewTask(
            type=type_,
            payload=payload,
            queue=queue,
            priority=priority,
            run_at=resolve_future(engine, run_at, delay),
            idempotency_key=key,
            max_attempts=max_attempts,
            timeout=timeout,
            lease=lease,
            executor=executor,
            metadata=metadata,
            concurrency_key=concurrency_key,
        )
        # A batch of one, because it also says whether the task is new.
        [enqueued] = engine.run(enqueue_many([task]))
    if as_json:
        print_json(enqueued)
        return
    typer.echo(enqueued.task_id)
    if not enqueued.created:
        typer.echo("The key already stands for this task: nothing new was enqueued.", err=True)
