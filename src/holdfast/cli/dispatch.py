"""holdfast dispatch: send the events of the outbox."""

from typing import Annotated

import typer

from holdfast.cli.database import DatabaseUrl
from holdfast.errors import ConfigurationError
from holdfast.settings import DispatcherSettings

# Text, whatever they mean: the settings themselves say what is allowed, with the name of the variable.
Text = str | None


def register(app: typer.Typer) -> None:
    app.command()(dispatch)


def dispatch(
    *,
    lease: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long an event is held while it is sent.")
    ] = None,
    grace: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long events on their way may take after a signal.")
    ] = None,
    poll_interval: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long to wait for a wake-up before looking.")
    ] = None,
    directory: Annotated[
        Text, typer.Option(metavar="PATH", help="Where the files of file sinks are written.")
    ] = None,
    allow: Annotated[
        Text,
        typer.Option(metavar="HOSTS", help="Internal hosts and networks that events may go to, by commas."),
    ] = None,
    log_format: Annotated[Text, typer.Option(metavar="FORMAT", help="console or json.")] = None,
    log_level: Annotated[Text, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Send events to the sinks of their subscriptions until it is asked to stop (SIGTERM, Ctrl-C)."""
    try:
        from holdfast.outbox.dispatcher import run_dispatcher  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"holdfast dispatch needs the package {error.name}", hint="Run pip install 'holdfast[events]'."
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
