"""holdfast tokens: access tokens for the HTTP API and the dashboard."""

from typing import Annotated

import typer

from holdfast.cli.arguments import Reason, duration
from holdfast.cli.connection import DatabaseUrl, connected
from holdfast.cli.output import Json, print_json, print_table
from holdfast.engine import access
from holdfast.engine.access import SCOPES
from holdfast.http.access import hash_of, new_token
from holdfast.serialization.text import visible

commands = typer.Typer(help="Manage access tokens for the HTTP API and the dashboard.", no_args_is_help=True)

Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help=f"What the token permits: {', '.join(SCOPES)}; repeatable. Default: read.",
    ),
]
Ttl = Annotated[str, typer.Option(metavar="DURATION", help="How long the token is valid: 12h, 90d.")]


Namespace = Annotated[
    str | None,
    typer.Option(
        metavar="NAMESPACE",
        help="Namespace of the tasks enqueued with the token. Default: its own, token:NAME.",
    ),
]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="tokens")


@commands.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Owner or purpose of the token.")],
    *,
    scope: Scopes = None,
    ttl: Ttl = "90d",
    namespace: Namespace = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    token, span = new_token(), duration(ttl)
    with connected(database_url) as engine:
        token_id = engine.run(access.create_token(name, scope or ["read"], hash_of(token), span, namespace))
    if as_json:
        print_json({"token_id": token_id, "token": token})
    else:
        typer.echo(token)
        typer.echo(
            f"Created token {token_id} for {visible(name)}. Save it now; it cannot be shown again.", err=True
        )


@commands.command("list")
def list_tokens(database_url: DatabaseUrl = None, as_json: Json = False) -> None:
    """List tokens, newest first."""
    with connected(database_url) as engine:
        found = engine.run(access.access_tokens())
    if as_json:
        print_json({"tokens": found})
    elif not found:
        typer.echo("No tokens found. Create one: holdfast tokens create NAME --scope read", err=True)
    else:
        columns = [
            "token_id",
            "name",
            "namespace",
            "scopes",
            "good",
            "sessions",
            "expires_at",
            "last_used_at",
            "revoked_at",
        ]
        rows = [
            [", ".join(token.scopes) if name == "scopes" else getattr(token, name) for name in columns]
            for token in found
        ]
        print_table(columns, rows)


@commands.command()
def revoke(
    token_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the token.")],
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: Json = False,
) -> None:
    """Revoke a token and its sessions immediately."""
    with connected(database_url) as engine:
        changed = engine.run(access.revoke_token(token_id, reason))
    if as_json:
        print_json({"token_id": token_id, "changed": changed})
    else:
        typer.echo(f"Token {token_id} {'is' if changed else 'was already'} revoked.")
