"""The frame of every command: its connection, `--database-url`, `--json`, its exit code and confirmation.

A command is a function. Its signature says what it needs:

- `engine` adds `--database-url`. The connection is opened at the first statement.
- A dataclass stands for options that belong together: each of its fields is one.
- A `Report` as the result adds `--json`. The frame prints it when the connection is closed.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from holdfast.cli.connection import DatabaseUrl, connected

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_DATABASE_URL = Parameter("database_url", Parameter.KEYWORD_ONLY, default=None, annotation=DatabaseUrl)
_AS_JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json)
_LISTED_LAST = {"database_url": 1, "as_json": 2}


def group(app: typer.Typer, name: str, help_text: str) -> typer.Typer:
    commands = typer.Typer(name=name, help=help_text, no_args_is_help=True)
    app.add_typer(commands)
    return commands


def add_commands(app: typer.Typer, *functions: Callable[..., Any], **named: Callable[..., Any]) -> None:
    """Add commands under the names of their functions, or under other names."""
    for name, function in [*((one.__name__, one) for one in functions), *named.items()]:
        app.command(name)(framed(function))


def framed(function: Callable[..., Any]) -> Callable[..., None]:
    """The command that Typer is given for a function."""
    own = _parameters(function)
    groups: dict[str, Any] = {name: kind for name, kind in own.items() if is_dataclass(kind)}

    @wraps(function)
    def command(**given: Any) -> None:
        as_json = given["as_json"] if "as_json" in own else given.pop("as_json", False)
        for name, kind in groups.items():
            given[name] = kind(**{option: given.pop(option) for option in _parameters(kind)})
        if "engine" in own:
            with connected(given.pop("database_url")) as engine:
                report = function(engine=engine, **given)
        else:
            report = function(**given)
        if report is not None:
            report.print(as_json=as_json)

    offered = _offered(function)
    command.__signature__ = Signature(offered)  # type: ignore[attr-defined] # read by typer
    command.__annotations__ = {one.name: one.annotation for one in offered}
    return command


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a change, unless --yes is given. A refusal ends the command with 1."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _offered(function: Callable[..., Any]) -> list[Parameter]:
    """The arguments and options of a command."""
    signature = inspect.signature(function)
    offered = {one.name: one for one in _expanded(function)}
    if "engine" in offered:
        offered["engine"] = _DATABASE_URL
    if signature.return_annotation is not None:
        offered["as_json"] = _AS_JSON
    return sorted(offered.values(), key=lambda one: _LISTED_LAST.get(one.name, 0))


def _expanded(function: Any) -> Iterator[Parameter]:
    for one in inspect.signature(function).parameters.values():
        if is_dataclass(one.annotation):
            yield from _expanded(one.annotation)
        else:
            yield one.replace(kind=Parameter.KEYWORD_ONLY)


def _parameters(function: Any) -> dict[str, Any]:
    return {one.name: one.annotation for one in inspect.signature(function).parameters.values()}
