"""holdfast enqueue: enqueue a task."""

import inspect
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from holdfast._engine import Engine
from holdfast._engine.enqueue import NewTask, enqueue_many
from holdfast._engine.workers import registered_types
from holdfast._serialization.text import load_json
from holdfast.cli.arguments import document, duration, instant
from holdfast.cli.frame import add_commands
from holdfast.cli.report import Note, Report
from holdfast.cli.task_name import resolve_tasks
from holdfast.errors import InvalidArgument, NotAllowed, NotInstalled, close_to, did_you_mean
from holdfast.options import ClientOptions, Option, Options, client_options

_PARSERS: dict[str, tuple[type, Callable[[str], Any], str]] = {
    "time": (datetime, instant, "TIME"),
    "duration": (timedelta, duration, "DURATION"),
    "document": (dict, document, "JSON"),
}


def register(app: typer.Typer) -> None:
    add_commands(app, with_task_options(enqueue))


def with_task_options(
    command: Callable[..., Report], names: Collection[str] | None = None
) -> Callable[..., Report]:
    """Give a command the declared options, or those with these names, in place of its `**options`."""
    signature = inspect.signature(command)
    *own, _ = signature.parameters.values()
    declared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _annotations().items()
        if names is None or name in names
    ]

    @wraps(command)
    def wrapped(**given: Any) -> Report:
        return command(**given)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + declared
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapped


def enqueue(
    *,
    engine: Engine,
    type_: Annotated[
        str, typer.Argument(metavar="TYPE", help="The type of the task: billing.invoice_charge.v1")
    ],
    payload: Annotated[
        Any,
        typer.Argument(
            parser=document, metavar="PAYLOAD", help="The arguments: JSON, @file, or - for standard input."
        ),
    ] = "{}",
    **options: Any,
) -> Report:
    """Enqueue a task and print its id.

    With a key that already belongs to the same task, print the id of that task.
    """
    if options.get("run_at") is not None and options.get("delay") is not None:
        raise typer.BadParameter("give --run-at or --delay, not both")
    known = client_options()
    given = {known[name].parameter or name: v for name, v in options.items() if v is not None and v != []}
    for name in (one for one in known if known[one].kind == "tasks" and one in given):
        given[name] = resolve_tasks(engine, given[name])
    task = NewTask(type_, payload, **given)
    _check_against_registered(engine, type_, str(payload))
    # A batch of one, because it also says whether the task is new.
    [enqueued] = engine.run(enqueue_many([task]))
    kept = Note("The key already belongs to this task: nothing new was enqueued.")
    return Report(enqueued, enqueued.task_id, *([] if enqueued.created else [kept]))


def _check_against_registered(engine: Engine, task_type: str, payload: str) -> None:
    """Refuse arguments that the handler does not have, where the login may read the declarations."""
    try:
        types = {one.type: one for one in engine.run(registered_types())}
    except (NotAllowed, NotInstalled):
        return
    if task_type not in types:
        if close_to(task_type, types):
            typer.echo(
                f"No worker has registered the type {task_type!r}{did_you_mean(task_type, types)}", err=True
            )
        return
    schema = (types[task_type].schema or {}).get("arguments", {})
    given = load_json(payload)
    if not isinstance(given, dict) or "properties" not in schema or schema.get("additionalProperties"):
        return
    for name in given:
        if name not in schema["properties"]:
            known = did_you_mean(name, schema["properties"])
            raise InvalidArgument(f"{task_type}: unknown argument {name!r}{known}")
    for name in schema.get("required", ()):
        if name not in given:
            raise InvalidArgument(f"{task_type}: argument {name!r} is missing")


def _annotations() -> dict[str, Any]:
    """The options of the declaration, as typer reads them."""
    hints = get_type_hints(Options, include_extras=True) | get_type_hints(ClientOptions, include_extras=True)
    return {
        name: _annotation(get_args(hints[name])[0], option)
        for name, option in client_options().items()
        if option.command_line
    }


def _annotation(declared: Any, option: Option) -> Any:
    help_text = option.help.replace("`", "")
    if option.kind == "tasks":
        return Annotated[list[str] | None, typer.Option(metavar="ID", help=help_text)]
    if option.kind not in _PARSERS:
        return Annotated[declared, typer.Option(help=help_text)]
    kind, parser, metavar = _PARSERS[option.kind]
    if option.kind == "document":
        help_text = f"{help_text} Also @file, or - for standard input."
    return Annotated[kind | None, typer.Option(parser=parser, metavar=metavar, help=help_text)]
