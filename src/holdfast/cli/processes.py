"""holdfast process: scaffold, check, apply and inspect business processes."""

from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from holdfast._engine import Engine, processes
from holdfast._engine.processes import InstanceState
from holdfast._serialization.text import dump_json
from holdfast.cli.arguments import Reason, document
from holdfast.cli.frame import add_commands, group
from holdfast.cli.output import count_of
from holdfast.cli.report import Fields, Report, change, listing, table
from holdfast.errors import ConfigurationError
from holdfast.processes.apply import apply_files, compare_files, read_files
from holdfast.processes.check import check_process, find_processes
from holdfast.processes.instance import cancel, history, plan
from holdfast.processes.rules import ProcessDefinition
from holdfast.processes.scaffold import scaffold

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the process: shipping, or comms.send_email.")
]
Id = Annotated[int, typer.Argument(metavar="ID", help="Id that the kickoff returned.")]


def register(app: typer.Typer) -> None:
    add_commands(
        group(app, "process", "Create, check, apply and inspect business processes."),
        new=new,
        apply=apply,
        check=check,
        list=list_processes,
        show=show,
        plan=plan_instance,
        start=start_instance,
        nudge=nudge_instance,
        cancel=cancel_instance,
    )


def new(
    engine: Engine,
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
) -> Report:
    """Create a business process: tables, facts, handlers, supervisor, kickoff, grants and a test."""
    if decision and python:
        raise ConfigurationError(
            "--decision and --python exclude each other",
            hint="A Python task waits for a person with ctx.wait or ctx.callback.",
        )
    made = scaffold(name, directory, "decision" if decision else "python" if python else "attempts")
    written = made.create(None if files_only else engine.connection)
    return Report(
        {"name": name, "files": [str(path) for path in written], "installed": not files_only},
        *written,
        f"Next: read {made.directory / 'README.md'}, then run holdfast process check {name}",
    )


def apply(
    engine: Engine,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the process: shipping.")],
    directory: Annotated[
        Path | None, typer.Option(help="Directory of the files. Default: the name of the process.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Apply the files even if none has changed.")] = False,
) -> Report:
    """Apply the files of a business process in one transaction and show what has changed."""
    files = read_files(name, directory)
    changes = compare_files(engine.connection, name, files)
    applied = force or any(one.change != "unchanged" for one in changes)
    shown = ["Nothing to do."]
    if applied:
        apply_files(engine.connection, name, files)
        shown = [f"Applied {count_of(len(files), 'file')}. Next: holdfast process check {name}"]
        if any(one.file.startswith("1_") and one.change == "changed" for one in changes):
            shown.append("Existing tables keep their columns: use alter table to change them.")
    document = {"name": name, "applied": applied, "files": changes}
    return Report(document, table(changes, "file change"), *shown)


def check(
    engine: Engine,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the process. Default: all processes.")
    ] = None,
) -> Report:
    """Check that business processes follow the rules, and show violations."""
    checked = find_processes(engine.connection, name)
    found = [finding for one in checked for finding in check_process(engine.connection, one)]
    # Processes in the same schema share its violations.
    found = list({(one.object, one.rule, one.fix): one for one in found}.values())
    names = [str(one) for one in checked]
    passed = f"{', '.join(names) or 'no processes'}: all checks passed"
    return Report(
        {"processes": names, "findings": found},
        table(found, "process object rule fix") if found else passed,
        exit_code=1 if found else 0,
    )


def list_processes(
    engine: Engine,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a process. Default: all processes.")
    ] = None,
    *,
    state: Annotated[
        InstanceState | None, typer.Option(help="Only instances that have not ended, or are in trouble.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of instances.")] = 50,
) -> Report:
    """List business processes; with a name or a state, their instances, newest first."""
    if name is None and state is None:
        summaries = engine.run(processes.list_processes())
        return Report(
            {"processes": summaries}, table(summaries, "process kind unfinished in_trouble newest_at")
        )
    wanted = None if name is None else str(_find_one(engine.connection, name))
    found = engine.run(processes.list_process_instances(wanted, state, None, limit))
    return listing("instances", found, "process process_id status trouble next_run_at reason created_at")


def show(engine: Engine, name: Name, process_id: Id) -> Report:
    """Show an instance: what happened, what its supervisor decided and why, and what comes next."""
    steps = history(engine.connection, _find_one(engine.connection, name), process_id)
    return Report(steps, table(steps, "at what reason task", task=lambda step: step.task_id))


def plan_instance(engine: Engine, name: Name, process_id: Id) -> Report:
    """Show what the supervisor would do now. It runs in a transaction that is rolled back."""
    planned = plan(engine.connection, _find_one(engine.connection, name), process_id)
    return Report(planned, Fields(planned.items()))


def start_instance(
    engine: Engine,
    name: Name,
    document_given: Annotated[
        Any, typer.Argument(metavar="INPUT", parser=document, help="Input as JSON. Default: {}.")
    ] = None,
) -> Report:
    """Start an instance with the kickoff of the process, and print its id."""
    given = dump_json("input", {} if document_given is None else document_given)
    process = str(_find_one(engine.connection, name))
    with processes.reporting_refusals():
        process_id = engine.run(processes.start_process(process, f'{{"input": {given}}}'))
    return Report({"process": process, "process_id": process_id}, process_id)


def nudge_instance(engine: Engine, name: Name, process_id: Id, reason: Reason = None) -> Report:
    """Let the supervisor of an instance run now instead of at its next check."""
    process = str(_find_one(engine.connection, name))
    return change(
        engine.run(processes.nudge_process(process, process_id, reason)),
        "The supervisor is due now.",
        "The supervisor is due or runs already.",
        process=process,
        process_id=process_id,
    )


def cancel_instance(
    engine: Engine,
    name: Name,
    process_id: Id,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Reason, recorded in the history.")
    ] = None,
) -> Report:
    """Cancel an instance and print its decision. Cancelling only its task has no effect: it is repaired."""
    process = _find_one(engine.connection, name)
    ended = cancel(engine.connection, process, process_id, reason)
    return Report({"process": str(process), "process_id": process_id, "decision": ended}, ended)


def _find_one(connection: psycopg.Connection[Any], name: str) -> ProcessDefinition:
    found = find_processes(connection, name)
    if len(found) > 1:
        raise ConfigurationError(
            f"{name} has several processes", hint=f"Choose one of {', '.join(str(one) for one in found)}."
        )
    return found[0]
