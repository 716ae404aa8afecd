"""holdfast grant and revoke: the roles of a login, named by what it is for."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from holdfast._install.postgres.database_url import resolve_database_url
from holdfast.cli.frame import add_commands
from holdfast.cli.report import Report
from holdfast.settings import Settings
from holdfast.shards.logins import PURPOSES, Logins, Purpose, Statements, as_script

Login = Annotated[str, typer.Argument(metavar="LOGIN", help="A login that exists.")]
Purposes = Annotated[
    list[Purpose],
    typer.Option("--as", help="What the login is for; repeatable."),
]
Print = Annotated[bool, typer.Option("--print", help="Print the statements and change nothing.")]


def register(app: typer.Typer) -> None:
    add_commands(app, grant, revoke)


def grant(login: Login, purposes: Purposes, only_print: Print = False) -> Report:
    """Grant a login the roles that it needs. With shards: on the front and on every shard.

    Exit code: 0 if done or nothing to do, 4 if there is no such login, 7 if you may not grant the roles.
    """
    return _change(Logins.to_grant, login, purposes, ("has", "already has"), only_print=only_print)


def revoke(login: Login, purposes: Purposes, only_print: Print = False) -> Report:
    """Revoke roles that a login was granted. Roles that it has through other roles remain."""
    words = ("no longer has", "was not granted")
    return _change(Logins.to_revoke, login, purposes, words, only_print=only_print)


def _change(
    plan: Callable[[Logins, str, Sequence[Purpose]], list[Statements]],
    login: str,
    purposes: Sequence[Purpose],
    words: tuple[str, str],
    *,
    only_print: bool,
) -> Report:
    settings = Settings.load()
    logins = Logins(resolve_database_url(settings), settings.shards)
    planned = plan(logins, login, purposes)
    changes = any(one.statements for one in planned)
    if changes and not only_print:
        logins.apply(planned)
    document = {"login": login, "done": changes and not only_print, "databases": planned}
    if only_print:
        return Report(document, as_script(planned) if changes else f"-- nothing to do for {login}")
    roles = dict.fromkeys(f"holdfast_{role}" for one in purposes for role in PURPOSES[one])
    return Report(document, f"{login} {words[0 if changes else 1]} {', '.join(roles)}")
