"""holdfast mcp: serve tools for agents over standard input and output."""

import asyncio
from contextlib import suppress
from typing import Annotated

import typer

from holdfast.cli.app_loader import load_app
from holdfast.cli.connection import DatabaseUrl
from holdfast.cli.frame import add_commands
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings


def register(app: typer.Typer) -> None:
    add_commands(app, mcp)


def mcp(
    application: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="Application whose task types are validated on enqueue."),
    ] = None,
    *,
    allow_acts: Annotated[
        bool,
        typer.Option("--allow-acts", help="Offer tools that cancel, retry, pause, signal and enqueue."),
    ] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve MCP tools on standard input and output. Agents start this command themselves."""
    try:
        from holdfast.server.mcp.server import serve_stdio  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"holdfast mcp needs {error.name}, which is not installed", hint="pip install 'holdfast-pg[mcp]'"
        ) from error
    from holdfast._connections.session import DatabaseAddress  # noqa: PLC0415 - other commands start faster
    from holdfast._install.postgres.database_url import resolve_database_url  # noqa: PLC0415 - as above
    from holdfast._telemetry.logs import configure  # noqa: PLC0415 - as above
    from holdfast.server.site import Site, SiteOptions  # noqa: PLC0415 - as above

    app = None if application is None else load_app(application)
    known = {} if app is None else app.settings.model_dump(exclude_unset=True)
    settings = Settings.load(**known | ({} if database_url is None else {"database_url": database_url}))
    configure(settings.log_format, "warning")
    address = DatabaseAddress(lambda: resolve_database_url(settings))
    site = Site(address, SiteOptions(samples=False), {} if app is None else app.tasks)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve_stdio(site, allow_acts=allow_acts))
