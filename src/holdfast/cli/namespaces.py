"""holdfast namespaces: logins that share tasks, idempotency keys, inbox events and schedules."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Annotated

import typer

from holdfast.cli.arguments import Reason
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.engine import access
from holdfast.engine.access import NamespaceMember
from holdfast.errors import NotAllowed
from holdfast.serialization.text import visible

LoginArgument = Annotated[str, typer.Argument(metavar="LOGIN", help="Name of a database role.")]

commands = typer.Typer(help="Let logins share tasks, keys and schedules.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="namespaces")


@commands.command("list")
def list_namespaces(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """List the namespaces that are shared by logins or used by tokens. Every other login has its own."""
    with connected(database_url) as engine:
        found = engine.run(access.namespace_members())
    grouped = {name: list(members) for name, members in groupby(found, key=lambda one: one.namespace)}
    if as_json:
        print_json({"namespaces": [_described(name, members) for name, members in grouped.items()]})
    elif not grouped:
        typer.echo("No shared namespaces and no tokens found.", err=True)
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
        str | None, typer.Argument(metavar="NAMESPACE", help="Default: the namespace of your login.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Show the logins and tokens that use a namespace."""
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
        typer.echo("Only the login of the same name uses it.", err=True)


@commands.command()
def add(
    login: LoginArgument,
    namespace: Annotated[
        str, typer.Argument(metavar="NAMESPACE", help="Name of another login, or a new name.")
    ],
    *,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Let a login use a namespace from now on. Tasks that it already enqueued keep their namespace."""
    with _owner_hint(), connected(database_url) as engine:
        changed = engine.run(access.add_to_namespace(login, namespace, reason))
    if as_json:
        print_json({"login": login, "namespace": namespace, "changed": changed})
    else:
        verb = "now uses" if changed else "already uses"
        typer.echo(f"Login {visible(login)} {verb} namespace {visible(namespace)}.")


@commands.command()
def remove(
    login: LoginArgument, reason: Reason = None, database_url: DatabaseUrl = None, as_json: Json = False
) -> None:
    """Give a login its own namespace back. Tasks that it already enqueued keep their namespace."""
    with _owner_hint(), connected(database_url) as engine:
        changed = engine.run(access.remove_from_namespace(login, reason))
    if as_json:
        print_json({"login": login, "changed": changed})
    else:
        typer.echo(f"Login {visible(login)} {'now' if changed else 'already'} uses its own namespace.")


@contextmanager
def _owner_hint() -> Iterator[None]:
    try:
        yield
    except NotAllowed as error:
        raise NotAllowed(
            error.message,
            hint="Use the login that runs migrations, or another member of holdfast_owner.",
            sqlstate=error.sqlstate,
        ) from None


def _described(name: str, members: list[NamespaceMember]) -> dict[str, object]:
    return {"namespace": name, "logins": _names(members, "login"), "tokens": _names(members, "token")}


def _names(members: list[NamespaceMember], kind: str) -> list[str]:
    return [one.name for one in members if one.kind == kind]
