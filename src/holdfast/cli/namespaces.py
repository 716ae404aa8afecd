"""holdfast namespaces: which logins share their tasks, idempotency keys, inbox events and schedules."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Annotated

import typer

from holdfast.cli.database import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.cli.task_actions import Reason
from holdfast.engine import access
from holdfast.engine.access import NamespaceMember
from holdfast.errors import NotAllowed
from holdfast.serialization.text import visible

LoginArgument = Annotated[str, typer.Argument(metavar="LOGIN", help="A role that connects to the database.")]

commands = typer.Typer(help="Let logins share their tasks, keys and schedules.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="namespaces")


@commands.command("list")
def list_namespaces(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """List the namespaces that logins share or tokens use. Every other login has its own."""
    with connected(database_url) as engine:
        found = engine.run(access.namespace_members())
    grouped = {name: list(members) for name, members in groupby(found, key=lambda one: one.namespace)}
    if as_json:
        print_json({"namespaces": [_described(name, members) for name, members in grouped.items()]})
    elif not grouped:
        typer.echo("No logins share a namespace, and there is no token.", err=True)
    else:
        print_table(
            ["namespace", "logins", "tokens"],
            [
                [name, ", ".join(_names(members, "login")), ", ".join(_names(members, "token"))]
                for name, members in grouped.items()
            ],
        )


@commands.command()
def show(
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="Else that of your own login.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show which logins and tokens use a namespace."""
    with connected(database_url) as engine:
        namespace = namespace or engine.run(access.namespace())
        found = [one for one in engine.run(access.namespace_members()) if one.namespace == namespace]
    if as_json:
        print_json({"namespace": namespace, "members": found})
        return
    typer.echo(f"Namespace {visible(namespace)}")
    columns = ["kind", "name", "added_at", "added_by"]
    if found:
        print_table(columns, [[getattr(one, column) for column in columns] for one in found])
    else:
        typer.echo("Only a login of this name uses it.", err=True)


@commands.command()
def add(
    login: LoginArgument,
    namespace: Annotated[
        str, typer.Argument(metavar="NAMESPACE", help="Another login's name, or a new one.")
    ],
    *,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Let a login use a namespace from now on. What it enqueued before stays where it is."""
    with _administering(), connected(database_url) as engine:
        changed = engine.run(access.add_to_namespace(login, namespace, reason))
    if as_json:
        print_json({"login": login, "namespace": namespace, "changed": changed})
    else:
        verb = "uses" if changed else "already uses"
        typer.echo(f"Login {visible(login)} {verb} namespace {visible(namespace)}.")


@commands.command()
def remove(
    login: LoginArgument, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Give a login its own namespace back. What it enqueued stays where it is."""
    with _administering(), connected(database_url) as engine:
        changed = engine.run(access.remove_from_namespace(login, reason))
    if as_json:
        print_json({"login": login, "changed": changed})
    else:
        typer.echo(f"Login {visible(login)} {'has' if changed else 'already had'} its own namespace.")


@contextmanager
def _administering() -> Iterator[None]:
    try:
        yield
    except NotAllowed as error:
        raise NotAllowed(
            error.message,
            hint="Use the login that migrates, or another member of holdfast_owner.",
            sqlstate=error.sqlstate,
        ) from None


def _described(name: str, members: list[NamespaceMember]) -> dict[str, object]:
    return {"namespace": name, "logins": _names(members, "login"), "tokens": _names(members, "token")}


def _names(members: list[NamespaceMember], kind: str) -> list[str]:
    return [one.name for one in members if one.kind == kind]
