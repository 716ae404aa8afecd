"""holdfast tasks: the task types of an application."""

import inspect
import re
from typing import Any

import typer

from holdfast._worker.handler import Handler
from holdfast.cli.app_loader import Application, load_app
from holdfast.cli.frame import add_commands
from holdfast.cli.report import Note, Report, table


def register(app: typer.Typer) -> None:
    add_commands(app, tasks)


def tasks(application: Application) -> Report:
    """List the task types of an application. --json adds the schemas of their arguments and results."""
    app = load_app(application)
    handlers = sorted(app.handlers.values(), key=lambda handler: handler.type)
    if not handlers:
        return Report(app.schema, Note("The application has no tasks."))
    shown = table(
        handlers,
        "type queue signature max_attempts retry timeout executor",
        queue=lambda handler: handler.queue or _first_segment(handler.type),
        signature=_signature,
        retry=lambda handler: repr(handler.retry),
        timeout=lambda handler: None if handler.timeout is None else f"{handler.timeout:g}s",
    )
    return Report(app.schema, shown)


def _first_segment(task_type: str) -> str:
    return re.split(r"[.:]", task_type, maxsplit=1)[0]


def _signature(handler: Handler) -> str:
    """The signature as enqueue sees it: without the context, which the worker adds."""
    signature = inspect.signature(handler.function)
    parameters = list(signature.parameters.values())[1 if handler.wants_context else 0 :]
    shown = ", ".join(_parameter(parameter) for parameter in parameters)
    returns = signature.return_annotation
    return f"({shown})" + ("" if returns is signature.empty else f" -> {_annotation(returns)}")


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    annotation = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}{annotation}{default}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
