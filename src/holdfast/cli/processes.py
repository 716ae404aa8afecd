"""Commands about business processes."""

from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_fields, print_json, print_table
from holdfast.errors import ConfigurationError
from holdfast.processes.apply import apply_files, compare_files, read_files
from holdfast.processes.check import check_process, find_processes
from holdfast.processes.instance import cancel, history, plan
from holdfast.processes.rules import ProcessDefinition
from holdfast.processes.scaffold import scaffold

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the process: shipping, or comms.send_email.")
]
Id = Annotated[int, typer.Argument(metavar="ID", help="Which one: the id that its kickoff returned.")]


def register(app: typer.Typer) -> None:
    commands = typer.Typer(help="Write a business process, prove it, look at it.", no_args_is_help=True)
    commands.command("new")(new)
    commands.command("apply")(apply)
    commands.command("check")(check)
    commands.command("show")(show)
    commands.command("plan")(plan_one)
    commands.command("cancel")(cancel_one)
    app.add_typer(commands, name="process")


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A word such as shipping: schema, queue and module.")
    ],
    *,
    directory: Annotated[
        Path | None, typer.Option(help="Where the files go; else a directory of that name.")
    ] = None,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Write the files and leave the database alone.")
    ] = False,
    decision: Annotated[
        bool, typer.Option("--decision", help="One that waits for a person to decide, until a deadline.")
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Write a new business process: tables, facts, handlers, supervisor, kickoff, grants and a test."""
    made = scaffold(name, directory, "decision" if decision else "attempts")
    if files_only:
        written = made.create(None)
    else:
        with connected(database_url) as engine:
            written = made.create(engine.connection)
    if as_json:
        print_json({"name": name, "files": [str(path) for path in written], "installed": not files_only})
        return
    for path in written:
        typer.echo(path)
    typer.echo(f"read {made.directory / 'README.md'}, then: holdfast process check {name}")


def apply(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the process: shipping.")],
    directory: Annotated[
        Path | None, typer.Option(help="Where the files are; else a directory of that name.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Apply them even if none has changed.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Apply the files of a business process again, all in one transaction, and say what has changed."""
    files = read_files(name, directory)
    with connected(database_url) as engine:
        changes = compare_files(engine.connection, name, files)
        applied = force or any(one.change != "unchanged" for one in changes)
        if applied:
            apply_files(engine.connection, name, files)
    if as_json:
        print_json({"name": name, "applied": applied, "files": changes})
        return
    print_table(["file", "since it was applied last"], [(one.file, one.change) for one in changes])
    if not applied:
        typer.echo("nothing to do")
        return
    typer.echo(f"applied {len(files)} files; now: holdfast process check {name}")
    if any(one.file.startswith("1_") and one.change == "changed" for one in changes):
        typer.echo("tables that were there keep their columns: write changes of them as alter table")


def check(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the process; else all that there are.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Prove the rules of business processes against the database, and say what breaks them."""
    with connected(database_url) as engine:
        processes = find_processes(engine.connection, name)
        found = [finding for one in processes for finding in check_process(engine.connection, one)]
    # Two processes of a schema share what is wrong with it.
    found = list({(one.object, one.rule, one.fix): one for one in found}.values())
    if as_json:
        print_json({"processes": [str(one) for one in processes], "findings": found})
    elif found:
        print_table(
            ["process", "object", "rule", "what to do"],
            [(one.process, one.object, one.rule, one.fix) for one in found],
        )
    else:
        typer.echo(f"{', '.join(str(one) for one in processes) or 'no process'}: all checks passed")
    if found:
        raise typer.Exit(1)


def show(name: Name, process_id: Id, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Draw one process: what happened when, what its supervisor decided and why, and what comes next."""
    with connected(database_url) as engine:
        steps = history(engine.connection, _the_one(engine.connection, name), process_id)
    if as_json:
        print_json(steps)
        return
    print_table(["at", "what", "reason", "task"], [(s.at, s.what, s.reason, s.task_id) for s in steps])


def plan_one(name: Name, process_id: Id, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Say what the supervisor would do now. It runs in a transaction that is rolled back."""
    with connected(database_url) as engine:
        planned = plan(engine.connection, _the_one(engine.connection, name), process_id)
    if as_json:
        print_json(planned)
    else:
        print_fields(planned.items())


def cancel_one(
    name: Name,
    process_id: Id,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who look later.")] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """End one process, and say how it ended. Cancelling a task of it does not: that is repaired."""
    with connected(database_url) as engine:
        process = _the_one(engine.connection, name)
        ended = cancel(engine.connection, process, process_id, reason)
    if as_json:
        print_json({"process": str(process), "process_id": process_id, "decision": ended})
    else:
        typer.echo(ended)


def _the_one(connection: psycopg.Connection[Any], name: str) -> ProcessDefinition:
    found = find_processes(connection, name)
    if len(found) > 1:
        raise ConfigurationError(
            f"{name} has several processes", hint=f"Give one of {', '.join(str(one) for one in found)}."
        )
    return found[0]
