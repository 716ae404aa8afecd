"""The embedded PostgreSQL: a real server, unprivileged, reachable through a private Unix socket only."""

import os
import sys
from collections.abc import Callable

from holdfast.errors import ConfigurationError
from holdfast.postgres.installation import EMBEDDED_VERSION, binaries
from holdfast.postgres.server import EmbeddedServer, ServerStatus
from holdfast.settings import WITHHELD, Settings

__all__ = ["EMBEDDED_VERSION", "EmbeddedServer", "ServerStatus", "binaries", "resolve_database_url"]


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - the one line that tells people where their data goes


def resolve_database_url(settings: Settings, echo: Callable[[str], None] = _say) -> str:
    """DATABASE_URL where it is given, else the embedded server, announced in one line and started."""
    if settings.database_url:
        return settings.database_url
    if "DATABASE_URL" in os.environ.get(WITHHELD, "").split(","):
        raise ConfigurationError(
            "a task in a process of its own is not given the worker's DATABASE_URL",
            hint="If its handlers may use the database, add it: HOLDFAST_PROCESS_ENV=DATABASE_URL.",
        )
    echo(f"No DATABASE_URL: using the embedded PostgreSQL {EMBEDDED_VERSION} in {settings.home}")
    return EmbeddedServer(settings.home).start()
