"""holdfast process: scaffold, check, apply and inspect business processes."""

from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from holdfast.cli.arguments import Reason, document
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, count_of, print_fields, print_json, print_table
from holdfast.engine import processes
from holdfast.engine.processes import InstanceState
from holdfast.errors import ConfigurationError
from holdfast.processes.apply import apply_files, compare_files, read_files
from holdfast.processes.check import check_process, find_processes
from holdfast.processes.instance import cancel, history, plan
from holdfast.processes.rules import ProcessDefinition
from holdfast.processes.scaffold import scaffold
from holdfast.serialization.text import dump_json

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the process: shipping, or comms.send_email.")
]
Id = Annotated[int, typer.Argument(metavar="ID", help="Id that the kickoff returned.")]


def register(app: typer.Typer) -> None:
    commands = typer.Typer(help="Create, check, apply and inspect business processes.", no_args_is_help=True)
    commands.command("new")(new)
    commands.command("apply")(apply)
    commands.command("check")(check)
    commands.command("list")(list_processes)
    commands.command("show")(show)
    commands.command("plan")(plan_instance)
    commands.command("start")(start_instance)
    commands.command("nudge")(nudge_instance)
    commands.command("cancel")(cancel_instance)
    app.add_typer(commands, name="process")


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the schema, queue and module: shipping.")
    ],
    *,
    directory: Annotated[
        Path | None, typer.Option(help="Directory for the files. Default: the name of the process.")
    ] = None,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Write the files and do not change the database.")
    ] = False,
    decision: Annotated[
        bool,
        typer.Option(
            "--decision", help="Create a process that waits for a person to decide, until a deadline."
        ),
    ] = False,
    python: Annotated[
        bool,
        typer.Option("--python", help="Create a process whose supervisor is a Python task with steps."),
    ] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Create a business process: tables, facts, handlers, supervisor, kickoff, grants and a test."""
    if decision and python:
        raise ConfigurationError(
            "--decision and --python exclude each other",
            hint="A Python task waits for a person with ctx.wait or ctx.callback.",
        )
    made = scaffold(name, directory, "decision" if decision else "python" if python else "attempts")
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
    typer.echo(f"Next: read {made.directory / 'README.md'}, then run holdfast process check {name}")


def apply(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the process: shipping.")],
    directory: Annotated[
        Path | None, typer.Option(help="Directory of the files. Default: the name of the process.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Apply the files even if none has changed.")] = False,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Apply the files of a business process in one transaction and show what has changed."""
    files = read_files(name, directory)
    with connected(database_url) as engine:
        changes = compare_files(engine.connection, name, files)
        applied = force or any(one.change != "unchanged" for one in changes)
        if applied:
            apply_files(engine.connection, name, files)
    if as_json:
        print_json({"name": name, "applied": applied, "files": changes})
        return
    print_table(["file", "change"], [(one.file, one.change) for one in changes])
    if not applied:
        typer.echo("Nothing to do.")
        return
    typer.echo(f"Applied {count_of(len(files), 'file')}. Next: holdfast process check {name}")
    if any(one.file.startswith("1_") and one.change == "changed" for one in changes):
        typer.echo("Existing tables keep their columns: use alter table to change them.")


def check(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the process. Default: all processes.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Check that business processes follow the rules, and show violations."""
    with connected(database_url) as engine:
        checked = find_processes(engine.connection, name)
        found = [finding for one in checked for finding in check_process(engine.connection, one)]
    # Processes in the same schema share its violations.
    found = list({(one.object, one.rule, one.fix): one for one in found}.values())
    if as_json:
        print_json({"processes": [str(one) for one in checked], "findings": found})
    elif found:
        print_table(
            ["process", "object", "rule", "fix"],
            [(one.process, one.object, one.rule, one.fix) for one in found],
        )
    else:
        typer.echo(f"{', '.join(str(one) for one in checked) or 'no processes'}: all checks passed")
    if found:
        raise typer.Exit(1)


def list_processes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a process. Default: all processes.")
    ] = None,
    *,
    state: Annotated[
        InstanceState | None, typer.Option(help="Only instances that have not ended, or are in trouble.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of instances.")] = 50,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """List business processes; with a name or a state, their instances, newest first."""
    with connected(database_url) as engine:
        if name is None and state is None:
            summaries = engine.run(processes.list_processes())
            if as_json:
                print_json({"processes": summaries})
            else:
                columns = ("process", "kind", "unfinished", "in_trouble", "newest_at")
                print_table([*columns], [[getattr(one, column) for column in columns] for one in summaries])
            return
        wanted = None if name is None else str(_find_one(engine.connection, name))
        found = engine.run(processes.list_process_instances(wanted, state, None, limit))
    if as_json:
        print_json({"instances": found})
    elif not found:
        typer.echo("No instances found.", err=True)
    else:
        shown = ("process", "process_id", "status", "trouble", "next_run_at", "reason", "created_at")
        print_table([*shown], [[getattr(one, column) for column in shown] for one in found])


def show(name: Name, process_id: Id, database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """Show an instance: what happened, what its supervisor decided and why, and what comes next."""
    with connected(database_url) as engine:
        steps = history(engine.connection, _find_one(engine.connection, name), process_id)
    if as_json:
        print_json(steps)
        return
    print_table(["at", "what", "reason", "task"], [(s.at, s.what, s.reason, s.task_id) for s in steps])


def plan_instance(
    name: Name, process_id: Id, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Show what the supervisor would do now. It runs in a transaction that is rolled back."""
    with connected(database_url) as engine:
        planned = plan(engine.connection, _find_one(engine.connection, name), process_id)
    if as_json:
        print_json(planned)
    else:
        print_fields(planned.items())


def start_instance(
    name: Name,
    document_given: Annotated[
        Any, typer.Argument(metavar="INPUT", parser=document, help="Input as JSON. Default: {}.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Start an instance with the kickoff of the process, and print its id."""
    given = dump_json("input", {} if document_given is None else document_given)
    with connected(database_url) as engine:
        process = _find_one(engine.connection, name)
        with processes.reporting_refusals():
            process_id = engine.run(processes.start_process(str(process), f'{{"input": {given}}}'))
    if as_json:
        print_json({"process": str(process), "process_id": process_id})
    else:
        typer.echo(process_id)


def nudge_instance(
    name: Name, process_id: Id, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Let the supervisor of an instance run now instead of at its next check."""
    with connected(database_url) as engine:
        process = str(_find_one(engine.connection, name))
        changed = engine.run(processes.nudge_process(process, process_id, reason))
    if as_json:
        print_json({"process": process, "process_id": process_id, "changed": changed})
    else:
        typer.echo("The supervisor is due now." if changed else "The supervisor is due or runs already.")


def cancel_instance(
    name: Name,
    process_id: Id,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reason, recorded in the history.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Cancel an instance and print its decision. Cancelling only its task has no effect: it is repaired."""
    with connected(database_url) as engine:
        process = _find_one(engine.connection, name)
        ended = cancel(engine.connection, process, process_id, reason)
    if as_json:
        print_json({"process": str(process), "process_id": process_id, "decision": ended})
    else:
        typer.echo(ended)


def _find_one(connection: psycopg.Connection[Any], name: str) -> ProcessDefinition:
    found = find_processes(connection, name)
    if len(found) > 1:
        raise ConfigurationError(
            f"{name} has several processes", hint=f"Choose one of {', '.join(str(one) for one in found)}."
        )
    return found[0]
