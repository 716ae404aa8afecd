"""holdfast namespaces: logins that share tasks, idempotency keys, inbox events and schedules."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Annotated

import typer

from holdfast._engine import Engine, access
from holdfast._engine.access import NamespaceMember
from holdfast._serialization.text import visible
from holdfast.cli.arguments import Reason
from holdfast.cli.frame import add_commands, group
from holdfast.cli.report import Note, Report, Table, change, table
from holdfast.errors import NotAllowed

LoginArgument = Annotated[str, typer.Argument(metavar="LOGIN", help="Name of a database role.")]


def register(app: typer.Typer) -> None:
    commands = group(app, "namespaces", "Let logins share tasks, keys and schedules.")
    add_commands(commands, list=list_namespaces, show=show, add=add, remove=remove)


def list_namespaces(engine: Engine) -> Report:
    """List the namespaces that are shared by logins or used by tokens. Every other login has its own."""
    found = groupby(engine.run(access.namespace_members()), key=lambda one: one.namespace)
    listed = [(name, *_names_of_both_kinds(list(members))) for name, members in found]
    columns = ("namespace", "logins", "tokens")
    document = {"namespaces": [dict(zip(columns, one, strict=True)) for one in listed]}
    if not listed:
        return Report(document, Note("No shared namespaces and no tokens found."))
    rows = [(name, ", ".join(logins), ", ".join(tokens)) for name, logins, tokens in listed]
    return Report(document, Table(columns, rows))


def show(
    engine: Engine,
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="Default: the namespace of your login.")
    ] = None,
) -> Report:
    """Show the logins and tokens that use a namespace."""
    namespace = namespace or engine.run(access.namespace())
    found = [one for one in engine.run(access.namespace_members()) if one.namespace == namespace]
    alone = Note("Only the login of the same name uses it.")
    members = table(found, "kind name added_at added_by") if found else alone
    return Report({"namespace": namespace, "members": found}, f"Namespace {visible(namespace)}", members)


def add(
    engine: Engine,
    login: LoginArgument,
    namespace: Annotated[
        str, typer.Argument(metavar="NAMESPACE", help="Name of another login, or a new name.")
    ],
    reason: Reason = None,
) -> Report:
    """Let a login use a namespace from now on. Tasks that it already enqueued keep their namespace."""
    with _owner_hint():
        changed = engine.run(access.add_to_namespace(login, namespace, reason))
    return change(
        changed,
        f"Login {visible(login)} now uses namespace {visible(namespace)}.",
        f"Login {visible(login)} already uses namespace {visible(namespace)}.",
        login=login,
        namespace=namespace,
    )


def remove(engine: Engine, login: LoginArgument, reason: Reason = None) -> Report:
    """Give a login its own namespace back. Tasks that it already enqueued keep their namespace."""
    with _owner_hint():
        changed = engine.run(access.remove_from_namespace(login, reason))
    return change(
        changed,
        f"Login {visible(login)} now uses its own namespace.",
        f"Login {visible(login)} already uses its own namespace.",
        login=login,
    )


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


def _names_of_both_kinds(members: list[NamespaceMember]) -> tuple[list[str], list[str]]:
    logins = [one.name for one in members if one.kind == "login"]
    return logins, [one.name for one in members if one.kind == "token"]
