"""The embedded PostgreSQL: an unprivileged server, reachable only through a private Unix socket."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError
from holdfast.settings import WITHHELD, Settings

if TYPE_CHECKING:
    from holdfast._install.postgres.embedded_server import EmbeddedServer, ServerStatus
    from holdfast._install.postgres.installation import EMBEDDED_VERSION, binaries

__all__ = ["EMBEDDED_VERSION", "EmbeddedServer", "ServerStatus", "binaries", "resolve_database_url"]

_MODULES = {
    "EMBEDDED_VERSION": "installation",
    "EmbeddedServer": "embedded_server",
    "ServerStatus": "embedded_server",
    "binaries": "installation",
}


def __getattr__(name: str) -> Any:
    """Loaded on first use: with a DATABASE_URL, none of them is needed."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - users must learn where their data is stored


def resolve_database_url(settings: Settings, echo: Callable[[str], None] = _say) -> str:
    """Return DATABASE_URL if it is set; otherwise start the embedded server and say so."""
    if settings.database_url:
        return settings.database_url
    if "DATABASE_URL" in os.environ.get(WITHHELD, "").split(","):
        raise ConfigurationError(
            "a task in a child process does not get the worker's DATABASE_URL",
            hint="To let its handlers use the database, set HOLDFAST_PROCESS_ENV=DATABASE_URL.",
        )
    from holdfast._install.postgres.embedded_server import EmbeddedServer  # noqa: PLC0415 - as above
    from holdfast._install.postgres.installation import EMBEDDED_VERSION  # noqa: PLC0415 - as above

    echo(f"No DATABASE_URL: using the embedded PostgreSQL {EMBEDDED_VERSION} in {settings.home}")
    return EmbeddedServer(settings.home).start()
