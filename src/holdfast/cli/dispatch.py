"""holdfast dispatch: run a dispatcher, which sends the events of the outbox."""

from dataclasses import dataclass
from typing import Annotated

import typer

from holdfast.cli.connection import DatabaseUrl
from holdfast.cli.frame import add_commands
from holdfast.cli.setting_options import LogFormat, LogLevel, Text, given
from holdfast.errors import ConfigurationError
from holdfast.settings import DispatcherSettings


def register(app: typer.Typer) -> None:
    add_commands(app, dispatch)


@dataclass(frozen=True)
class DispatcherOptions:
    """Settings of a dispatcher."""

    lease: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long an event is reserved while it is sent.")
    ] = None
    grace: Annotated[
        Text, typer.Option(metavar="DURATION", help="How long sends in progress may take after a signal.")
    ] = None
    poll_interval: Annotated[
        Text, typer.Option(metavar="DURATION", help="Maximum time between polls for events.")
    ] = None
    outbox_directory: Annotated[
        Text, typer.Option("--directory", metavar="PATH", help="Directory for the files of file sinks.")
    ] = None
    outbox_allow: Annotated[
        Text,
        typer.Option(
            "--allow",
            metavar="HOSTS",
            help="Internal hosts and networks that events may be sent to, separated by commas.",
        ),
    ] = None
    log_format: LogFormat = None
    log_level: LogLevel = None
    database_url: DatabaseUrl = None


def dispatch(options: DispatcherOptions) -> None:
    """Run a dispatcher, which sends events to the sinks of their subscriptions, until SIGTERM or Ctrl-C."""
    try:
        from holdfast.outbox.dispatcher import run_dispatcher  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"holdfast dispatch needs the package {error.name}", hint="Run pip install 'holdfast-pg[events]'."
        ) from None
    run_dispatcher(DispatcherSettings.load(**given(options)))
