"""holdfast tokens: access tokens for the HTTP API and the dashboard."""

from typing import Annotated

import typer

from holdfast._engine import Engine, access
from holdfast._engine.access import SCOPES
from holdfast._serialization.text import visible
from holdfast.cli.arguments import Reason, duration
from holdfast.cli.frame import add_commands, group
from holdfast.cli.report import Note, Report, change, listing
from holdfast.server.access import hash_of, new_token

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
    tokens = group(app, "tokens", "Manage access tokens for the HTTP API and the dashboard.")
    add_commands(tokens, create=create, list=list_tokens, revoke=revoke)


def create(
    *,
    engine: Engine,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Owner or purpose of the token.")],
    scope: Scopes = None,
    ttl: Ttl = "90d",
    namespace: Namespace = None,
) -> Report:
    """Create a token and print it. It cannot be shown again."""
    token, span = new_token(), duration(ttl)
    token_id = engine.run(access.create_token(name, scope or ["read"], hash_of(token), span, namespace))
    saying = f"Created token {token_id} for {visible(name)}. Save it now; it cannot be shown again."
    return Report({"token_id": token_id, "token": token}, token, Note(saying))


def list_tokens(engine: Engine) -> Report:
    """List tokens, newest first."""
    return listing(
        "tokens",
        engine.run(access.access_tokens()),
        "token_id name namespace scopes good sessions expires_at last_used_at revoked_at",
        none="No tokens found. Create one: holdfast tokens create NAME --scope read",
        scopes=lambda token: ", ".join(token.scopes),
    )


def revoke(
    engine: Engine,
    token_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the token.")],
    reason: Reason = None,
) -> Report:
    """Revoke a token and its sessions immediately."""
    return change(
        engine.run(access.revoke_token(token_id, reason)),
        f"Token {token_id} is revoked.",
        f"Token {token_id} was already revoked.",
        token_id=token_id,
    )
