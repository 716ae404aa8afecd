"""Options of long-running commands that stand for settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

# Plain text: the settings validate the values and name the variable in errors.
Text = str | None

LogFormat = Annotated[Text, typer.Option(metavar="FORMAT", help="Log format: console or json.")]
LogLevel = Annotated[Text, typer.Option(metavar="LEVEL", help="Log level: debug, info, warning or error.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")]


def given(options: object) -> dict[str, Any]:
    """The settings that a dataclass of options gives: its fields have the names of settings."""
    return {name: value for name, value in vars(options).items() if value is not None}
