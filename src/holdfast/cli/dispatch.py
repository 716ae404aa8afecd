"""holdfast dispatch: run a dispatcher, which sends the events of the outbox."""

from typing import Annotated

import typer

from holdfast.cli.connection import DatabaseUrl
from holdfast.errors import ConfigurationError
from holdfast.settings import DispatcherSettings

# Plain text: the settings validate the values and name the variable in errors.
Text = str | None


def register(app: typer.Typer) -> None:
    app.command()(dispatch)


def dispatch(
    *,
    lease: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long an event is reserved while it is sent.")
    ] = None,
    grace: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long sends in progress may take after a signal.")
    ] = None,
    poll_interval: Annotated[
        Text, typer.Option(metavar="DURATION", help="Maximum time between polls for events.")
    ] = None,
    directory: Annotated[
        Text, typer.Option(metavar="PATH", help="Directory for the files of file sinks.")
    ] = None,
    allow: Annotated[
        Text,
        typer.Option(
            metavar="HOSTS",
            help="Internal hosts and networks that events may be sent to, separated by commas.",
        ),
    ] = None,
    log_format: Annotated[Text, typer.Option(metavar="FORMAT", help="Log format: console or json.")] = None,
    log_level: Annotated[
        Text, typer.Option(metavar="LEVEL", help="Log level: debug, info, warning or error.")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run a dispatcher, which sends events to the sinks of their subscriptions, until SIGTERM or Ctrl-C."""
    try:
        from holdfast.outbox.dispatcher import run_dispatcher  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"holdfast dispatch needs the package {error.name}", hint="Run pip install 'holdfast-pg[events]'."
        ) from None
    options = {
        "lease": lease,
        "grace": grace,
        "poll_interval": poll_interval,
        "outbox_directory": directory,
        "outbox_allow": allow,
        "log_format": log_format,
        "log_level": log_level,
        "database_url": database_url,
    }
    run_dispatcher(DispatcherSettings.load(**options))
